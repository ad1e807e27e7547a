#include "lib/nn/init.h"

#include <cmath>
#include <vector>

#include "lib/kernels/convert.h"

namespace lumen::nn {

Init Init::fan_in_uniform() {
  return kaiming_uniform(std::sqrt(5.0));
}

Init Init::within_root(double n) {
  return uniform(n > 0 ? 1 / std::sqrt(n) : 0);
}

Fans fans(const Shape& shape) {
  LUMEN_CHECK(shape.rank() >= 2);
  double kernel = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) kernel *= static_cast<double>(shape[axis]);
  return {static_cast<double>(shape[1]) * kernel, static_cast<double>(shape[0]) * kernel};
}

namespace {

// `init` without fans.
Init resolved(const Init& init, const Shape& shape) {
  const double a = init.a;
  switch (init.kind) {
    case Init::Kind::kConstant:
    case Init::Kind::kNormal:
    case Init::Kind::kUniform:
    case Init::Kind::kLogUniform:
      return init;
    case Init::Kind::kKaimingUniform:
      return Init::uniform(std::sqrt(6 / ((1 + a * a) * fans(shape).in)));
    case Init::Kind::kKaimingNormal:
      return Init::normal(std::sqrt(2 / ((1 + a * a) * fans(shape).in)));
    case Init::Kind::kXavierUniform:
      return Init::uniform(a * std::sqrt(6 / (fans(shape).in + fans(shape).out)));
    case Init::Kind::kXavierNormal:
      return Init::normal(a * std::sqrt(2 / (fans(shape).in + fans(shape).out)));
  }
  return init;
}

}  // namespace

Array initialized(const Init& init, DType dtype, const Shape& shape, Philox& random) {
  Array array = Array::zeros(dtype, shape);
  std::vector<float> values(shape.elements());
  if (values.empty()) return array;
  const Init plain = resolved(init, shape);
  for (float& value : values) {
    double x = plain.a;
    if (plain.kind == Init::Kind::kNormal) x *= random.normal();
    if (plain.kind == Init::Kind::kUniform) x *= 2 * random.uniform() - 1;
    if (plain.kind == Init::Kind::kLogUniform) x = std::log(0.01 + (x - 0.01) * random.uniform());
    value = static_cast<float>(x);
  }
  if (init.zero_row) {
    const int64_t row = shape.elements() / shape[0];
    std::fill_n(values.begin() + *init.zero_row * row, row, 0.0f);
  }
  kernels::from_float(dtype, values.data(), array.mutable_data(), shape.elements());
  return array;
}

}  // namespace lumen::nn
