#include "lib/ops/random_input.h"

#include "lib/kernels/convert.h"

namespace lumen::ops {

Array random_input(const graph::TypedShape& type, const graph::OpCase& test, Philox& random) {
  Array array = Array::zeros(type.dtype, type.shape);
  if (type.dtype == DType::kI32) {
    for (int32_t& x : array.as_mutable<int32_t>()) x = static_cast<int32_t>(random.below(4));
    return array;
  }
  std::vector<float> values(static_cast<size_t>(type.shape.elements()));
  for (float& x : values) {
    x = static_cast<float>(test.low + (test.high - test.low) * random.uniform());
  }
  if (!values.empty()) {
    kernels::from_float(type.dtype, values.data(), array.mutable_data(), type.shape.elements());
  }
  return array;
}

}  // namespace lumen::ops
