// Array: bytes with a shape and an element type. No arithmetic: that is graph/tensor.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/shape.h"

namespace lumen {

// A block of memory and what keeps it alive: heap memory from the allocator, or a mapped file.
// Shared by the arrays that point into it.
struct Buffer {
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool writable = true;
  bool mapped = false;          // pages of a file, which the system can fetch again
  std::shared_ptr<void> owner;  // releases the memory
};

// A contiguous array, row-major unless its layout says otherwise. Copies share the buffer. Reading
// from several threads is safe; writing is the caller's to order.
class Array {
 public:
  Array() = default;

  // New zero-filled memory, 64-byte aligned. Throws Error(kResource) if there is not enough
  // and Error(kMalformed) for what check_extents refuses.
  static Array zeros(DType dtype, const Shape& shape);
  // The same, holding what was there: for those who write every element before they read it.
  static Array uninitialized(DType dtype, const Shape& shape);

  // New memory holding a copy of `values`. Throws as zeros(), and Error(kMalformed) unless there
  // are shape.elements() of them.
  template <typename T>
  static Array from(std::span<const T> values, const Shape& shape);

  // A view of `bytes` at `offset` of `buffer`; they must lie inside it.
  // In panels it must be a matrix.
  static Array view(std::shared_ptr<const Buffer> buffer, size_t offset, DType dtype,
                    const Shape& shape, Layout layout = Layout::kRows);

  DType dtype() const { return dtype_; }
  Layout layout() const { return layout_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  // Bytes of the data; rows of a quantised type are whole blocks.
  size_t bytes() const;
  bool empty() const { return data_ == nullptr; }

  // The elements. Checks that they lie in rows: who reads panels asks for storage().
  const std::byte* data() const {
    LUMEN_CHECK(!in_panels(layout_));
    return data_;
  }
  // The first byte, whatever the layout.
  const std::byte* storage() const { return data_; }
  // What the bytes lie in; null if empty().
  const Buffer* buffer() const { return buffer_.get(); }
  // Checks that the buffer is writable.
  std::byte* mutable_data();

  // The elements as T, which must match dtype(). Not of a temporary: the span would dangle.
  template <typename T>
  std::span<const T> as() && = delete;
  template <typename T>
  std::span<const T> as() const& {
    LUMEN_CHECK(DTypeOf<T>::value == dtype_);
    return {reinterpret_cast<const T*>(data()), static_cast<size_t>(elements())};
  }
  template <typename T>
  std::span<T> as_mutable() {
    LUMEN_CHECK(DTypeOf<T>::value == dtype_);
    return {reinterpret_cast<T*>(mutable_data()), static_cast<size_t>(elements())};
  }

  // The same bytes with another shape of as many elements, in rows.
  Array reshaped(const Shape& shape) const;
  // The part `index` along the first axis, of an array in rows.
  Array part(int64_t index) const;
  // `count` of the parts along the first axis from `begin` on, of an array in rows.
  Array parts(int64_t begin, int64_t count) const;
  // The same rows of a matrix, to be multiplied like panels.
  Array as_panels() const;

 private:
  std::shared_ptr<const Buffer> buffer_;
  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Layout layout_ = Layout::kRows;
  Shape shape_;
};

template <typename T>
Array Array::from(std::span<const T> values, const Shape& shape) {
  Array array = uninitialized(DTypeOf<T>::value, shape);
  if (values.size() != static_cast<size_t>(shape.elements())) {
    fail(ErrorKind::kMalformed, values.size(), " values for an array of shape ", to_string(shape));
  }
  auto out = array.as_mutable<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return array;
}

}  // namespace lumen
