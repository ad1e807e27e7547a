#include "lib/tensor/array.h"

#include <cstring>

#include "lib/tensor/allocator.h"

namespace lumen {

Array Array::zeros(DType dtype, const Shape& shape) {
  Array array = uninitialized(dtype, shape);
  std::memset(array.data_, 0, array.buffer_->bytes);
  return array;
}

Array Array::uninitialized(DType dtype, const Shape& shape) {
  Array array;
  array.dtype_ = dtype;
  check_extents("an array", shape);
  array.shape_ = shape;
  auto buffer = std::make_shared<Buffer>(allocate(array.bytes()));
  array.data_ = buffer->data;
  array.buffer_ = std::move(buffer);
  return array;
}

Array Array::view(std::shared_ptr<const Buffer> buffer, size_t offset, DType dtype,
                  const Shape& shape, Layout layout) {
  Array array;
  array.dtype_ = dtype;
  array.layout_ = layout;
  array.shape_ = shape;
  LUMEN_CHECK(layout == Layout::kRows || shape.rank() == 2);
  LUMEN_CHECK(offset <= buffer->bytes && array.bytes() <= buffer->bytes - offset);
  array.data_ = buffer->data + offset;
  array.buffer_ = std::move(buffer);
  return array;
}

size_t Array::bytes() const {
  if (shape_.elements() == 0) return 0;
  if (in_panels(layout_)) {
    return static_cast<size_t>(matrix_bytes(layout_, dtype_, shape_[0], shape_[1]));
  }
  if (shape_.rank() == 0) return static_cast<size_t>(row_bytes(dtype_, 1));
  return static_cast<size_t>(shape_.elements() / shape_[-1] * row_bytes(dtype_, shape_[-1]));
}

std::byte* Array::mutable_data() {
  LUMEN_CHECK(buffer_ != nullptr && buffer_->writable && layout_ == Layout::kRows);
  return data_;
}

Array Array::reshaped(const Shape& shape) const {
  LUMEN_CHECK(shape.elements() == elements() && layout_ == Layout::kRows);
  Array array = *this;
  array.shape_ = shape;
  return array;
}

Array Array::part(int64_t index) const {
  LUMEN_CHECK(layout_ == Layout::kRows && shape_.rank() > 1 && index >= 0 && index < shape_[0]);
  Array array = *this;
  array.shape_ = {};
  for (int axis = 1; axis < shape_.rank(); ++axis) array.shape_.push_back(shape_[axis]);
  array.data_ += static_cast<size_t>(index) * array.bytes();
  return array;
}

Array Array::parts(int64_t begin, int64_t count) const {
  LUMEN_CHECK(layout_ == Layout::kRows && begin >= 0 && count > 0 && begin + count <= shape_[0]);
  Array array = *this;
  array.data_ += bytes() / static_cast<size_t>(shape_[0]) * static_cast<size_t>(begin);
  array.shape_ = {};
  array.shape_.push_back(count);
  for (int axis = 1; axis < shape_.rank(); ++axis) array.shape_.push_back(shape_[axis]);
  return array;
}

Array Array::as_panels() const {
  LUMEN_CHECK(shape_.rank() == 2 && !in_panels(layout_));
  Array array = *this;
  array.layout_ = Layout::kRowsAsPanels;
  return array;
}

}  // namespace lumen
