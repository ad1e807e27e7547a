// The work of steps, and the words for them.
#include "lib/graph/cost.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "lib/base/testing.h"
#include "lib/graph/display.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"
#include "lib/graph/views.h"
#include "lib/ops/loss.h"
#include "lib/ops/ops.h"

namespace lumen::graph {
namespace {

Tensor floats(const Shape& shape) {
  return input(DType::kF32, shape, "x");
}

// The last step of the graph that a plan of `tensor` would run.
NodePtr last_step(const Tensor& tensor) {
  const Graph graph = run_passes(Graph({tensor.node()}), passes::default_pipeline());
  NodePtr step = graph.outputs()[0];
  while (step->op->kind == OpKind::kView) step = step->inputs[0];
  return step;
}

TEST_CASE("a product with what is fused to it") {
  const Tensor y =
      ops::silu(ops::add(ops::linear(floats({4, 8}), floats({16, 8})), floats({4, 16})));
  const NodePtr step = last_step(y);
  CHECK(step_name(*step).starts_with("linear+add+"));
  CHECK(step_shapes(*step) == "4×16×8");
  const auto fused = static_cast<double>(4 * 16 * (step_name(*step) == "linear+add+silu" ? 2 : 0));
  CHECK(cost_of(*step).flops == 2.0 * 4 * 16 * 8 + fused);
  CHECK(cost_of(*step).bytes == 4.0 * (4 * 8 + 16 * 8 + 4 * 16 + 4 * 16));
  CHECK_FALSE(is_cost_a_bound(*step));
}

TEST_CASE("products by m, n and k; stacked ones by how many") {
  CHECK(step_shapes(*ops::matmul(floats({3, 5, 7}), floats({3, 7, 2})).node()) == "3 of 5×2×7");
  const Tensor weight = constant(Array::zeros(DType::kQ8_0, {6, 32}));
  CHECK(step_shapes(*ops::linear(floats({1, 2, 32}), weight).node()) == "2×6×32 q8_0");
  const NodePtr conv = ops::conv2d(floats({2, 3, 8, 8}), floats({4, 3, 3, 3}), {}, {}).node();
  CHECK(step_shapes(*conv) == "[2, 3, 8, 8] · [4, 3, 3, 3]");
}

TEST_CASE("element-wise steps by what they consist of, and one operation per element of each") {
  const Tensor x = floats({4, 8});
  const NodePtr step = last_step(ops::mul(ops::exp(x), expand(floats({8}), {4, 8})));
  CHECK(step_name(*step).ends_with("+mul"));
  CHECK(step_shapes(*step) == "[4, 8]");
  CHECK(cost_of(*step).bytes == 4.0 * (4 * 8 + 4 * 8 + 8));
  CHECK(cost_of(*step).flops == 4.0 * 8 * static_cast<double>(step->epilogue->code.size()));
  Tensor y = x;
  for (int i = 0; i < 8; ++i) y = ops::exp(y);
  CHECK(step_name(*last_step(y)).find(" more") != std::string::npos);
}

TEST_CASE("reductions by what they read") {
  const NodePtr sum = ops::sum(floats({4, 8}), 1).node();
  CHECK(step_name(*sum) == "sum_reduce");
  CHECK(step_shapes(*sum).starts_with("[4, 8] → [4, 1]"));
  const NodePtr flat = ops::sum(floats({32}), 0).node();
  CHECK(step_shapes(*last_step(Tensor(flat))).starts_with("[32] → [1"));
  const Tensor labels = constant(Array::zeros(DType::kI32, {4}));
  const Graph graph({ops::cross_entropy(floats({4, 8}), labels).node()});
  const auto loss = std::ranges::find_if(
      graph.nodes(), [](const NodePtr& node) { return node->op->name == "cross_entropy"; });
  REQUIRE(loss != graph.nodes().end());
  CHECK((*loss)->shape.rank() == 1);
  CHECK(step_shapes(**loss) == "[4, 8]");
}

TEST_CASE("a gather costs what it takes") {
  const Tensor rows = constant(Array::zeros(DType::kI32, {2}));
  const NodePtr chosen = ops::embedding(floats({1000, 4}), rows).node();
  CHECK_FALSE(is_cost_a_bound(*chosen));
  CHECK(cost_of(*chosen).bytes == 2 * 2 * 4 * 4 + 2 * 4);
  const Tensor codes = constant(Array::zeros(DType::kQ8_0, {1000, 32}));
  CHECK(cost_of(*ops::embedding(codes, rows).node()).bytes == 2 * (34 + 32 * 4) + 2 * 4);
}

TEST_CASE("the cost of what reads a cache is only a bound") {
  const Tensor cache = state(Array::zeros(DType::kF32, {1, 1, 3, 2}), "cache");
  const Tensor at = input(DType::kI32, {1}, "at");
  const NodePtr append = ops::kv_append(cache, floats({1, 1, 1, 2}), at).node();
  CHECK(is_cost_a_bound(*append));
  CHECK(step_shapes(*append) == "[1, 1, 1, 2]");
  CHECK(is_cost_a_bound(*ops::neg(Tensor(append)).node()));
  CHECK_FALSE(is_cost_a_bound(*ops::neg(floats({3})).node()));
  const Tensor parameter = state(Array::zeros(DType::kF32, {3}), "weight");
  CHECK_FALSE(is_cost_a_bound(*ops::neg(parameter).node()));
}

}  // namespace
}  // namespace lumen::graph
