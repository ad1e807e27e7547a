#include "lib/runtime/generation/weights.h"

#include <cmath>

#include "lib/base/testing.h"
#include "lib/kernels/convert.h"

using namespace lumen;

namespace {

// A q8_0 array whose largest magnitude is about `largest`.
Array quantized(const Shape& shape, float largest) {
  Array array = Array::zeros(DType::kQ8_0, shape);
  std::vector<float> numbers(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = largest * std::sin(static_cast<float>(i));
  }
  kernels::from_float(DType::kQ8_0, numbers.data(), array.mutable_data(), shape.elements());
  return array;
}

std::vector<float> floats(const Array& array) {
  std::vector<float> numbers(static_cast<size_t>(array.elements()));
  kernels::to_float(array.dtype(), array.data(), numbers.data(), array.elements());
  return numbers;
}

}  // namespace

TEST_CASE("narrow quantised matrices become floats of the same numbers") {
  struct Case {
    Shape shape;
    float largest;
    DType want;
  };
  const Case cases[] = {{{70, 32}, 0.1f, DType::kF16},   {{3, 224}, 60000.0f, DType::kF16},
                        {{2, 5, 64}, 1.0f, DType::kF16}, {{600, 192}, 0.02f, DType::kF16},
                        {{5, 64}, 0.0f, DType::kF16},    {{5, 64}, 1e-3f, DType::kF32},
                        {{600, 192}, 1e6f, DType::kF32}, {{5, 256}, 0.1f, DType::kQ8_0},
                        {{5, 288}, 1e-3f, DType::kQ8_0}};
  ThreadPool pool(2);
  for (const Case& test : cases) {
    INFO(to_string(test.shape) << ", " << test.largest);
    const Array stored = quantized(test.shape, test.largest);
    NamedArrays tensors = {{"weight", stored}};
    runtime::widen_narrow_rows(tensors, pool);
    const Array& got = tensors.at("weight");
    CHECK(got.dtype() == test.want);
    CHECK(got.shape() == test.shape);
    const std::vector<float> want = floats(stored), numbers = floats(got);
    double difference = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      difference = std::max(difference, std::abs(static_cast<double>(numbers[i]) - want[i]));
    }
    CHECK(difference <= (test.want == DType::kF16 ? 0x1p-11 : 0) * test.largest);
  }
}

TEST_CASE("what is not a narrow quantised matrix, or has a damaged scale, stays as it is") {
  Array damaged = quantized({4, 64}, 1);
  damaged.mutable_data()[1] = std::byte{0x7C};  // infinity
  damaged.mutable_data()[0] = std::byte{0};
  NamedArrays tensors = {{"damaged", damaged},
                         {"float", Array::zeros(DType::kF32, {4, 64})},
                         {"none", Array::zeros(DType::kQ8_0, {0, 64})},
                         {"vector", quantized({64}, 1)}};
  const NamedArrays before = tensors;
  ThreadPool pool(1);
  runtime::widen_narrow_rows(tensors, pool);
  for (const auto& [name, array] : before) {
    INFO(name);
    CHECK(tensors.at(name).dtype() == array.dtype());
    CHECK(tensors.at(name).storage() == array.storage());
  }
}
