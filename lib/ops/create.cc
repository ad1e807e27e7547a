// New tensors.
#include <cmath>

#include "lib/base/error.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {
Tensor full(const Shape& shape, Number value, DType dtype) {
  return graph::expand(element(value, dtype), shape);
}
Tensor zeros(const Shape& shape, DType dtype) {
  return full(shape, 0, dtype);
}
Tensor ones(const Shape& shape, DType dtype) {
  return full(shape, 1, dtype);
}
Tensor full_like(const Tensor& x, Number value) {
  return full(x.shape(), value, x.dtype());
}
Tensor zeros_like(const Tensor& x) {
  return zeros(x.shape(), x.dtype());
}
Tensor ones_like(const Tensor& x) {
  return ones(x.shape(), x.dtype());
}

Tensor arange(Number begin, Number end, Number step) {
  const bool real =
      begin.kind() == Number::kReal || end.kind() == Number::kReal || step.kind() == Number::kReal;
  // Integers are subtracted as such: beyond 2⁵³ double does not tell all of them apart.
  int64_t distance = 0;
  const bool exact = !real && !__builtin_sub_overflow(end.integer(), begin.integer(), &distance);
  const double length = exact ? static_cast<double>(distance) : end.real() - begin.real();
  const double span = length / step.real();
  if (!(std::abs(span) < static_cast<double>(int64_t{1} << 40))) {
    fail(ErrorKind::kMalformed, "arange: no list from ", begin.real(), " to ", end.real(),
         " in steps of ", step.real());
  }
  if (span < 0) {
    fail(ErrorKind::kMalformed, "arange: steps of ", step.real(), " lead away from ", end.real());
  }
  const auto count = static_cast<int64_t>(std::ceil(span));
  Array array = Array::zeros(real ? DType::kF32 : DType::kI64, {count});
  if (real) {
    auto values = array.as_mutable<float>();
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] =
          static_cast<float>(begin.real() + static_cast<double>(i) * step.real());
    }
  } else {
    auto values = array.as_mutable<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      values[static_cast<size_t>(i)] = begin.integer() + i * step.integer();
    }
  }
  return graph::constant(array);
}

Tensor linspace(double begin, double end, int64_t count) {
  if (count < 0) fail(ErrorKind::kMalformed, "linspace: ", count, " numbers");
  Array array = Array::zeros(DType::kF32, {count});
  auto values = array.as_mutable<float>();
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i) {
    // From the nearer end, so that both are exact.
    values[static_cast<size_t>(i)] = static_cast<float>(
        i < count / 2 || count == 1 ? begin + static_cast<double>(i) * step
                                    : end - static_cast<double>(count - 1 - i) * step);
  }
  return graph::constant(array);
}

Tensor eye(int64_t rows, int64_t columns) {
  const int64_t width = columns < 0 ? rows : columns;
  const Tensor row = unsqueeze(arange(0, rows), -1);
  return graph::contiguous(eq(row, arange(0, width)), DType::kF32);
}

}  // namespace lumen::ops
