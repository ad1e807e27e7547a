// Weights in panels: what may read them; narrow floats.
#include <algorithm>
#include <memory>
#include <vector>

#include "lib/base/testing.h"
#include "lib/kernels/panels.h"
#include "lib/ops/ops.h"
#include "lib/tensor/allocator.h"

using namespace lumen;
using graph::Tensor;
using testing::contains;

namespace {

Array in_panels(const Array& rows) {
  const int64_t n = rows.shape()[0], k = rows.shape()[1];
  const auto buffer = std::make_shared<const Buffer>(
      allocate(static_cast<size_t>(matrix_bytes(Layout::kPanels, rows.dtype(), n, k))));
  const int64_t panel = matrix_bytes(Layout::kPanels, rows.dtype(), kPanelRows, k);
  for (int64_t i = 0; i * kPanelRows < n; ++i) {
    kernels::pack_panel({rows.data(), rows.dtype(), n, k}, i, buffer->data + i * panel);
  }
  return Array::view(buffer, 0, rows.dtype(), rows.shape(), Layout::kPanels);
}

Array numbers(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 11) - 5;
  return Array::from<float>(values, shape);
}

}  // namespace

TEST_CASE("linear multiplies weights in panels, alone and side by side") {
  const Tensor x = graph::constant(numbers({3, 10}));
  const Array a = numbers({21, 10}), b = numbers({5, 10});
  auto both = [&](const Tensor& first, const Tensor& second) {
    const Tensor parts[] = {ops::linear(x, first), ops::linear(x, second)};
    return ops::concat(parts, -1).eval();
  };
  const Array want = both(graph::constant(a), graph::constant(b));
  const Array got = both(graph::constant(in_panels(a), "a"), graph::constant(b));
  // Small integers: exact in any order.
  CHECK(std::ranges::equal(want.as<float>(), got.as<float>()));
}

TEST_CASE("linear of narrow floats is rounded once, whatever its weights lie in") {
  const Tensor bias = graph::constant(numbers({21}));
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    auto narrow = [&](const Shape& shape) {
      return graph::contiguous(graph::constant(numbers(shape)), dtype);
    };
    const Tensor x = narrow({2, 3, 10}), w = narrow({21, 10});
    const Tensor wide = ops::linear(graph::contiguous(x, DType::kF32), w, bias);
    const Array want = graph::contiguous(graph::contiguous(wide, dtype), DType::kF32).eval();
    for (const Tensor& weight : {w, graph::constant(in_panels(w.eval()))}) {
      const Tensor y = ops::linear(x, weight, graph::contiguous(bias, dtype));
      CHECK(y.dtype() == dtype);
      CHECK(y.shape() == Shape{2, 3, 21});
      const Array got = graph::contiguous(y, DType::kF32).eval();
      CHECK(std::ranges::equal(want.as<float>(), got.as<float>()));
    }
    CHECK(ops::linear(narrow({0, 10}), w).eval().shape() == Shape{0, 21});
  }
}

TEST_CASE("anything else refuses weights in panels when it is recorded") {
  const Tensor w = graph::constant(in_panels(numbers({16, 16})), "layer.weight");
  const Tensor x = graph::constant(numbers({16, 16}));
  const Tensor ids = graph::constant(Array::zeros(DType::kI32, {2}));
  auto refusal = [](auto body) { return testing::refusal(ErrorKind::kUnsupported, body); };
  CHECK(contains(refusal([&] { ops::add(x, w); }), "add: input 1 'layer.weight' is a weight"));
  CHECK(contains(refusal([&] { ops::matmul(w, x); }), "which only linear layers read"));
  CHECK(contains(refusal([&] { ops::embedding(w, ids); }), "embedding: input 0"));
  CHECK(contains(refusal([&] { ops::linear(w, x); }), "linear: input 0"));
  CHECK(contains(refusal([&] { graph::transpose(w, 0, 1); }), "'layer.weight'"));
}
