#include "lib/kernels/select.h"

#include <algorithm>
#include <cstring>

#include "lib/base/check.h"

namespace lumen::kernels {
namespace {

constexpr int64_t kGrain = 4096;

// The lines along one axis of a shape, numbered row-major over the other axes.
class Lines {
 public:
  Lines(const Shape& shape, int axis) : shape_(shape), axis_(axis) {
    for (int i = 0; i < shape.rank(); ++i) count_ *= i == axis ? 1 : shape[i];
  }

  int64_t count() const { return count_; }
  int64_t length() const { return shape_[axis_]; }
  int64_t stride(const Strides& strides) const { return strides[static_cast<size_t>(axis_)]; }

  // Element offset of the start of a line.
  int64_t offset(const Strides& strides, int64_t line) const {
    int64_t offset = 0;
    for (int i = shape_.rank() - 1; i >= 0; --i) {
      if (i == axis_) continue;
      offset += line % shape_[i] * strides[static_cast<size_t>(i)];
      line /= shape_[i];
    }
    return offset;
  }

  template <typename Body>
  void parallel(ThreadPool& pool, Body body) const {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, length()));
    pool.parallel_for(count_, grain, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t line = begin; line < end; ++line) body(line, thread);
    });
  }

 private:
  const Shape& shape_;
  int axis_;
  int64_t count_ = 1;
};

int64_t index_at(const TypedOperand& index, int64_t offset) {
  if (index.dtype == DType::kI32) {
    int32_t value;
    std::memcpy(&value, index.data + offset * 4, 4);
    return value;
  }
  int64_t value;
  std::memcpy(&value, index.data + offset * 8, 8);
  return value;
}

template <typename T>
void add_to(std::byte* y, const std::byte* x) {
  T a, b;
  std::memcpy(&a, y, sizeof a);
  std::memcpy(&b, x, sizeof b);
  a = static_cast<T>(a + b);
  std::memcpy(y, &a, sizeof a);
}

// *y += *x; integers wrap, of bool it is "or".
using AddTo = void (*)(std::byte*, const std::byte*);
AddTo adder(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return add_to<float>;
    case DType::kF64:
      return add_to<double>;
    case DType::kI8:
    case DType::kU8:
      return add_to<uint8_t>;
    case DType::kI32:
      return add_to<uint32_t>;
    case DType::kI64:
      return add_to<uint64_t>;
    case DType::kBool:
      return [](std::byte* y, const std::byte* x) { *y |= std::byte{*x != std::byte{0}}; };
    default:
      LUMEN_CHECK(!"a type that scatter adds in");
      return nullptr;
  }
}

// Strict order of a line's values: NaN above all.
bool less(double a, double b) {
  return a < b || (b != b && a == a);
}
bool less(int64_t a, int64_t b) {
  return a < b;
}

template <typename T>
struct Keyed {
  T key;
  int64_t index;
};

// The first `count` of n in order; ties by index, so that any algorithm is stable.
template <typename T>
void order_line(Keyed<T>* line, int64_t n, int64_t count, bool descending) {
  auto before = [descending](const Keyed<T>& a, const Keyed<T>& b) {
    if (descending ? less(b.key, a.key) : less(a.key, b.key)) return true;
    if (descending ? less(a.key, b.key) : less(b.key, a.key)) return false;
    return a.index < b.index;
  };
  if (count < n / 2) {
    std::partial_sort(line, line + count, line + n, before);
  } else {
    std::sort(line, line + n, before);
  }
}

template <typename T>
void argsort_as(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis,
                int64_t count, bool descending, std::byte* workspace, int64_t* y) {
  const Lines lines(shape, axis);
  Shape sorted = shape;
  sorted[axis] = count;
  const Strides to = contiguous_strides(sorted);
  const int64_t n = lines.length();
  lines.parallel(pool, [&](int64_t line, int thread) {
    auto* keys = reinterpret_cast<Keyed<T>*>(workspace) + thread * n;
    const int64_t from = lines.offset(x.strides, line), stride = lines.stride(x.strides);
    for (int64_t i = 0; i < n; ++i) {
      load_typed(x.dtype, x.data + (from + i * stride) * info(x.dtype).block_bytes, 1, 1,
                 &keys[i].key);
      keys[i].index = i;
    }
    order_line(keys, n, count, descending);
    int64_t* out = y + Lines(sorted, axis).offset(to, line);
    for (int64_t i = 0; i < count; ++i) out[i * lines.stride(to)] = keys[i].index;
  });
}

template <typename T>
void argmax_as(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis, int64_t* y) {
  const Lines lines(shape, axis);
  lines.parallel(pool, [&](int64_t line, int) {
    const int64_t stride = lines.stride(x.strides), bytes = info(x.dtype).block_bytes;
    const std::byte* from = x.data + lines.offset(x.strides, line) * bytes;
    constexpr int64_t kChunk = 256;
    T values[kChunk], best = 0;
    for (int64_t at = 0; at < lines.length(); at += kChunk) {
      const int64_t count = std::min(kChunk, lines.length() - at);
      load_typed(x.dtype, from + at * stride * bytes, stride, count, values);
      for (int64_t i = 0; i < count; ++i) {
        if (at + i > 0 && !less(best, values[i])) continue;
        best = values[i];
        y[line] = at + i;
      }
    }
  });
}

}  // namespace

int64_t find_out_of_range(const TypedOperand& index, const Shape& shape, int64_t limit,
                          int64_t& bad) {
  if (shape.elements() == 0) return -1;
  const Shape with_axis = shape.rank() > 0 ? shape : Shape{1};
  const Lines lines(with_axis, with_axis.rank() - 1);
  for (int64_t line = 0; line < lines.count(); ++line) {
    const int64_t from = lines.offset(index.strides, line);
    for (int64_t i = 0; i < lines.length(); ++i) {
      bad = index_at(index, from + i * lines.stride(index.strides));
      if (bad < 0 || bad >= limit) return line * lines.length() + i;
    }
  }
  return -1;
}

void take_along(ThreadPool& pool, const TypedOperand& x, const TypedOperand& index,
                const Shape& shape, int axis, std::byte* y) {
  if (shape.elements() == 0) return;
  const Lines lines(shape, axis);
  const Strides to = contiguous_strides(shape);
  const auto bytes = static_cast<size_t>(info(x.dtype).block_bytes);
  lines.parallel(pool, [&](int64_t line, int) {
    const int64_t from = lines.offset(x.strides, line), at = lines.offset(index.strides, line);
    const int64_t out = lines.offset(to, line);
    for (int64_t i = 0; i < lines.length(); ++i) {
      const int64_t j = index_at(index, at + i * lines.stride(index.strides));
      std::memcpy(y + static_cast<size_t>(out + i * lines.stride(to)) * bytes,
                  x.data + (from + j * lines.stride(x.strides)) * static_cast<int64_t>(bytes),
                  bytes);
    }
  });
}

void scatter(ThreadPool& pool, const TypedOperand& index, const TypedOperand& src,
             const Shape& shape, int axis, bool add, const Shape& y_shape, std::byte* y) {
  if (shape.elements() == 0) return;
  const Lines lines(shape, axis);
  const Strides to = contiguous_strides(y_shape);
  const int64_t bytes = info(src.dtype).block_bytes;
  const AddTo add_element = add ? adder(src.dtype) : nullptr;
  lines.parallel(pool, [&](int64_t line, int) {
    const int64_t from = lines.offset(src.strides, line), at = lines.offset(index.strides, line);
    const int64_t out = lines.offset(to, line);
    for (int64_t i = 0; i < lines.length(); ++i) {
      const int64_t j = index_at(index, at + i * lines.stride(index.strides));
      std::byte* target = y + (out + j * lines.stride(to)) * bytes;
      const std::byte* source = src.data + (from + i * lines.stride(src.strides)) * bytes;
      if (add_element) {
        add_element(target, source);
      } else {
        std::memcpy(target, source, static_cast<size_t>(bytes));
      }
    }
  });
}

void argmax_lines(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis,
                  int64_t* y) {
  if (is_float(x.dtype)) {
    argmax_as<double>(pool, x, shape, axis, y);
  } else {
    argmax_as<int64_t>(pool, x, shape, axis, y);
  }
}

void argsort_lines(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis,
                   int64_t count, bool descending, std::byte* workspace, int64_t* y) {
  if (shape.elements() == 0) return;
  if (is_float(x.dtype)) {
    argsort_as<double>(pool, x, shape, axis, count, descending, workspace, y);
  } else {
    argsort_as<int64_t>(pool, x, shape, axis, count, descending, workspace, y);
  }
}

size_t argsort_workspace(int64_t line, int threads) {
  static_assert(sizeof(Keyed<double>) == sizeof(Keyed<int64_t>));
  return static_cast<size_t>(line * threads) * sizeof(Keyed<double>);
}

}  // namespace lumen::kernels
