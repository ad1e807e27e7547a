// Mixed precision (graph::AutocastScope), forward and backward.
#include <cmath>

#include "lib/autograd/autograd.h"
#include "lib/base/testing.h"
#include "lib/ops/ops.h"

using namespace lumen;
using autograd::Tensor;
using graph::AutocastScope;

namespace {

Tensor matrix(std::vector<float> values, const Shape& shape) {
  return autograd::variable(Array::from<float>(values, shape));
}

}  // namespace

TEST_CASE("products round their inputs, everything else keeps float32") {
  const float x = 1 + 0x1p-10f;  // bf16 has 8 bits, f16 has 11
  const Tensor a = matrix({x, 2}, {1, 2}), b = matrix({x, 1}, {1, 2});
  auto product = [&] { return ops::linear(a, b).item(); };
  const double exact = product();
  CHECK(exact == static_cast<float>(double{x} * x + 2));
  {
    const AutocastScope scope(DType::kBF16);
    CHECK(graph::autocast_dtype() == DType::kBF16);
    CHECK(product() == 3);
    const Array sum = ops::add(a, b).eval();
    CHECK(sum.as<float>()[0] == 2 * x);
    CHECK(ops::softmax(a).dtype() == DType::kF32);
    CHECK(ops::matmul(a, graph::transpose(b, 0, 1)).item() == 3);
    {
      const AutocastScope off(DType::kF32);
      CHECK(product() == exact);
    }
    {
      const AutocastScope half(DType::kF16);
      CHECK(product() == exact);
    }
    CHECK(product() == 3);
  }
  CHECK(product() == exact);
  CHECK(graph::autocast_dtype() == DType::kF32);
}

TEST_CASE("gradients reach the float32 parameters through the rounding") {
  const float w = 1 + 0x1p-10f;
  const Tensor x = graph::constant(std::vector<float>{w, 3}, {1, 2});
  const Tensor weight = matrix({w, 5}, {1, 2});
  Tensor y;
  {
    const AutocastScope scope(DType::kBF16);
    y = ops::linear(x, weight);
  }
  autograd::backward(y);
  const auto gradient = autograd::grad(weight).eval();
  CHECK(gradient.dtype() == DType::kF32);
  CHECK(gradient.as<float>()[0] == 1);  // x as the product saw it
  CHECK(gradient.as<float>()[1] == 3);
  const Array kept = weight.eval();
  CHECK(kept.as<float>()[0] == w);
}

TEST_CASE("float16 overflows to infinity, which the gradient scaler looks for") {
  const Tensor a = matrix({70000}, {1, 1}), b = matrix({1}, {1, 1});
  const AutocastScope scope(DType::kF16);
  CHECK(std::isinf(ops::linear(a, b).item()));
}

TEST_CASE("only products have a low autocast policy") {
  int low = 0;
  for (const graph::OpDef* op : ops::op_list()) {
    const bool product = op->kind == graph::OpKind::kContraction;
    if (op->autocast == graph::Autocast::kLow) {
      ++low;
      INFO(op->name);
      CHECK(product);
    }
  }
  CHECK(low >= 2);
}
