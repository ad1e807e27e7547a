// Each pass by what it does to a small graph, and that results stay the same.
#include "lib/graph/passes/passes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/graph/display.h"
#include "lib/graph/plan.h"
#include "lib/graph/program.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/tiles/amx_emulation.h"
#include "lib/ops/ops.h"

using namespace lumen;
using graph::Graph;
using graph::Tensor;
namespace passes = graph::passes;

namespace {

int count(const Graph& graph, std::string_view op) {
  int n = 0;
  for (const auto& node : graph.nodes()) n += node->op->name == op;
  return n;
}

Graph graph_of(const Tensor& tensor) {
  return Graph({tensor.node()});
}

Tensor input(const Shape& shape) {
  return graph::input(DType::kF32, shape, "x");
}

}  // namespace

TEST_CASE("a graph holds what its outputs need, inputs before users") {
  const Tensor x = input({3});
  const Tensor unused = ops::exp(x);
  const Tensor y = ops::add(ops::mul(x, x), x);
  const Graph graph = passes::eliminate_dead_code().run(graph_of(y));
  CHECK(graph.nodes().size() == 3);
  CHECK(graph.nodes().front() == x.node());
  CHECK(graph.uses().at(x.node().get()) == 3);
  (void)unused;
}

TEST_CASE("eliminate_common joins equal computations and equal small constants") {
  const Tensor x = input({3});
  const Tensor y = ops::add(ops::mul(x, graph::scalar(2)), ops::mul(x, graph::scalar(2)));
  const Graph graph = passes::eliminate_common().run(graph_of(y));
  CHECK(count(graph, "mul") == 1);
  CHECK(count(graph, "constant") == 1);
  const Tensor z = ops::add(ops::mul(x, graph::scalar(2)), ops::mul(x, graph::scalar(3)));
  CHECK(count(passes::eliminate_common().run(graph_of(z)), "mul") == 2);
}

TEST_CASE("simplify removes what changes no float, and only that") {
  const Tensor x = input({3});
  auto simplified = [](const Tensor& y) {
    return passes::simplify().run(graph_of(y)).outputs()[0];
  };
  CHECK(simplified(ops::mul(x, graph::scalar(1))) == x.node());
  CHECK(simplified(ops::div(x, graph::scalar(1))) == x.node());
  CHECK(simplified(ops::sub(x, graph::scalar(0))) == x.node());
  CHECK(simplified(ops::neg(ops::neg(x))) == x.node());
  CHECK(simplified(graph::reshape(graph::reshape(x, {3, 1}), {3})) == x.node());
  CHECK(simplified(graph::permute(graph::permute(graph::reshape(x, {1, 3}), {1, 0}), {1, 0}))
            ->op->name == "reshape");
  const Tensor image = graph::reshape(x, {1, 1, 3});
  const auto padded =
      simplified(graph::pad(graph::pad(graph::pad(image, 2, 1, 0), 1, 2, 1), 2, 0, 3));
  CHECK(padded->op->name == "pad_axes");
  CHECK(padded->inputs[0]->op->name == "reshape");
  CHECK(padded->attrs.integers("before") == std::vector<int64_t>{0, 2, 1});
  CHECK(padded->attrs.integers("after") == std::vector<int64_t>{0, 1, 3});
  // −0 + 0 = +0, NaN · 0 = NaN: these must stay.
  CHECK(simplified(ops::add(x, graph::scalar(0)))->op->name == "add");
  CHECK(simplified(ops::mul(x, graph::scalar(0)))->op->name == "mul");
  CHECK(simplified(ops::sub(x, graph::scalar(-0.0f)))->op->name == "sub");
  // Integers times one become floats: the type changes, so the operation stays.
  const Tensor i = graph::input(DType::kI32, {3}, "i");
  CHECK(simplified(ops::mul(i, graph::scalar(1)))->op->name == "mul");
}

TEST_CASE("fold_constants computes small constant parts and leaves large ones") {
  const Tensor x = input({4});
  const Tensor y = ops::add(x, ops::exp(ops::mul(graph::iota(4), graph::scalar(0.5f))));
  const Graph folded = passes::fold_constants().run(graph_of(y));
  CHECK(count(folded, "exp") == 0);
  CHECK(count(folded, "add") == 1);
  const Tensor large = graph::constant(Array::zeros(DType::kF32, {1 << 20}));
  CHECK(count(passes::fold_constants().run(graph_of(ops::exp(large))), "exp") == 1);
}

TEST_CASE("merge_siblings makes one product of several with the same activation") {
  const Tensor x = input({2, 8});
  const Tensor w1 = graph::constant(Array::zeros(DType::kF32, {3, 8}));
  const Tensor w2 = graph::constant(Array::zeros(DType::kF16, {5, 8}));
  const Tensor both = ops::add(ops::sum(ops::linear(x, w1), 1), ops::sum(ops::linear(x, w2), 1));
  const Graph merged = passes::merge_siblings().run(graph_of(both));
  CHECK(count(merged, "linear") == 1);
  CHECK(count(merged, "slice") == 2);
  const Tensor other =
      ops::add(ops::sum(ops::linear(x, w1), 1), ops::sum(ops::linear(ops::exp(x), w2), 1));
  CHECK(count(passes::merge_siblings().run(graph_of(other)), "linear") == 2);
}

TEST_CASE("fuse_gates computes what is made of gate and up in their product, in either order") {
  const Tensor x = input({2, 8});
  const auto weight = [](int64_t rows) {
    return graph::constant(Array::zeros(DType::kF32, {rows, 8}));
  };
  const Tensor w1 = weight(6), w2 = weight(6);
  const graph::Pipeline pipeline = {passes::merge_siblings(), passes::fuse_elementwise(),
                                    passes::fuse_gates(), passes::eliminate_dead_code()};
  const auto fused = [&](const Tensor& y) {
    return graph::run_passes(graph_of(y), pipeline, /*verified=*/true);
  };
  const auto gated = [&](const Tensor& a, const Tensor& b) {
    return fused(ops::mul(ops::silu(ops::linear(x, a)), ops::linear(x, b)));
  };
  const Graph one = gated(w1, w2);
  CHECK(count(one, "gated_linear") == 1);
  CHECK(count(one, "linear") + count(one, "fused") + count(one, "slice") == 0);
  CHECK(to_string(*one.outputs()[0]->epilogue) == "silu(r0) mul(r2, r1)");
  // The other half first.
  const Tensor gate = ops::linear(x, w1), up = ops::linear(x, w2);
  const Graph other = fused(ops::add(ops::mul(up, ops::silu(gate)), up));
  CHECK(count(other, "gated_linear") == 1);
  // One that something else reads, and a half with itself.
  const Tensor mixed = ops::mul(ops::silu(gate), up);
  CHECK(count(fused(ops::add(mixed, graph::expand(ops::sum(up, -1, true), {2, 6}))),
              "gated_linear") == 0);
  CHECK(count(fused(ops::mul(ops::silu(gate), gate)), "gated_linear") == 0);
}

TEST_CASE("reassociate multiplies a small table once, not every row looked up in it") {
  const auto products = [](int64_t ids, DType rounded) {
    const Tensor table = input({5, 16});
    const Tensor rows = graph::contiguous(
        graph::contiguous(ops::embedding(table, graph::input(DType::kI32, {2, ids}, "ids")),
                          rounded),
        DType::kF32);
    const Tensor y = ops::linear(rows, graph::input(DType::kF32, {3, 16}, "w"));
    const Graph graph = graph::run_passes(graph_of(y), {passes::reassociate()}, true);
    CHECK(graph.outputs()[0]->shape == y.shape());
    std::vector<int64_t> rows_multiplied;
    for (const auto& node : graph.nodes()) {
      if (node->op->name == "linear") rows_multiplied.push_back(node->shape.elements() / 3);
    }
    return rows_multiplied;
  };
  for (DType rounded : {DType::kF32, DType::kBF16}) {
    CHECK(products(5, rounded) == std::vector<int64_t>{5});
    CHECK(products(4, rounded) == std::vector<int64_t>{8});  // too few ids
  }
}

TEST_CASE("fuse_elementwise makes one step of a tree and keeps shared results") {
  const Tensor x = input({6}), y = graph::input(DType::kF32, {6}, "y");
  const Graph fused =
      passes::fuse_elementwise().run(graph_of(ops::mul(ops::silu(ops::add(x, y)), ops::sub(x, y))));
  CHECK(count(fused, "fused") == 1);
  CHECK(fused.outputs()[0]->inputs.size() == 2);
  CHECK(to_string(*fused.outputs()[0]->epilogue) == "sub(r0, r1) add(r0, r1) silu(r3) mul(r4, r2)");

  const Tensor shared = ops::exp(x);
  const Graph two = passes::fuse_elementwise().run(
      graph_of(ops::add(ops::neg(shared), graph::expand(ops::sum(shared, 0), {6}))));
  CHECK(count(two, "fused") == 2);
}

TEST_CASE("fuse_elementwise makes steps of float64 of their own") {
  const Tensor x = graph::input(DType::kF64, {6}, "x"), y = input({6});
  const Tensor chosen = ops::mul(ops::less_than(x, ops::neg(x)), ops::exp(x));
  const Graph one = passes::fuse_elementwise().run(graph_of(ops::mul(chosen, x)));
  CHECK(count(one, "fused") == 1);
  CHECK(one.outputs()[0]->epilogue->dtype == DType::kF64);
  // What is rounded to float32 between is not computed in float64.
  const Tensor sum = ops::add(ops::mul(y, y), y);
  const Graph two = passes::fuse_elementwise().run(graph_of(ops::mul(x, sum)));
  CHECK(count(two, "fused") == 2);
}

TEST_CASE("fuse_elementwise repeats cheap shared nodes that only element-wise ones read") {
  const Tensor x = input({6}), y = graph::input(DType::kF32, {6}, "y");
  auto fused = [](std::vector<Tensor> outputs) {
    std::vector<graph::NodePtr> nodes;
    for (const Tensor& output : outputs) nodes.push_back(output.node());
    return passes::fuse_elementwise().run(Graph(nodes));
  };
  const Tensor mask = ops::less_than(x, y), scaled = ops::mul(x, 0.5);
  const Tensor chosen = ops::where(mask, x, scaled), other = ops::where(mask, y, scaled);
  const Graph twice = fused({chosen, other});
  CHECK(count(twice, "fused") == 2);
  for (const auto& output : twice.outputs()) CHECK(output->epilogue->code.size() == 3);
  // What they have in common is computed once in each.
  const Tensor shifted = ops::add(x, 3.0);
  const Graph once = fused({ops::mul(shifted, ops::abs(shifted)), ops::neg(shifted)});
  CHECK(count(once, "fused") == 2);
  CHECK(to_string(*once.outputs()[0]->epilogue) == "add(r0, r1) abs(r2) mul(r2, r3)");
  // Not one that is a result or read by others, computes long, or has operands of which more would
  // be read.
  CHECK(count(fused({chosen, other, mask}), "fused") == 3);
  const Tensor total = graph::expand(ops::sum(mask, 0), {6});
  CHECK(count(fused({chosen, other, total}), "fused") == 3);
  const Tensor slow = ops::exp(x);
  CHECK(count(fused({ops::mul(slow, x), ops::mul(slow, y)}), "fused") == 3);
  const Tensor sum = ops::add(ops::add(x, y), input({6}));
  CHECK(count(fused({ops::neg(sum), ops::abs(sum), ops::square(sum)}), "fused") == 4);
}

TEST_CASE("fused steps are what their operations are one by one, to the bit") {
  Philox random(3);
  auto below = [&](size_t n) { return static_cast<size_t>(random.next_u64()) % n; };
  const Shape shape = {3, 601};
  for (int round = 0; round < 60; ++round) {
    std::vector<Tensor> values;
    for (int i = 0; i < 3; ++i) {
      const Shape own = i < 2 ? shape : Shape{601};
      Array array = Array::zeros(DType::kF32, own);
      for (float& x : array.as_mutable<float>()) x = static_cast<float>(random.normal());
      values.push_back(graph::expand(graph::constant(array), shape));
    }
    for (int i = 0; i < 24; ++i) {
      const Tensor &a = values[below(values.size())], &b = values[below(values.size())];
      const Tensor& c = values[below(values.size())];
      switch (below(10)) {
        case 0:
          values.push_back(ops::add(a, b));
          break;
        case 1:
          values.push_back(ops::mul(a, 0.5));
          break;
        case 2:
          values.push_back(ops::maximum(a, b));
          break;
        case 3:
          values.push_back(ops::less_than(a, b));
          break;
        case 4:
          values.push_back(ops::where(a, b, c));
          break;
        case 5:
          values.push_back(ops::tanh(a));
          break;
        case 6:
          values.push_back(ops::abs(a));
          break;
        case 7:
          values.push_back(ops::sigmoid(a));
          break;
        case 8:
          values.push_back(ops::minimum(ops::maximum(a, -1.0), 1.0));
          break;
        default:
          values.push_back(ops::sub(a, b));
      }
    }
    const Tensor outputs[] = {values[values.size() - 1], values[values.size() - 2]};
    graph::Plan fused = graph::compile(outputs), single = graph::compile(outputs, {.pipeline = {}});
    CHECK(fused.steps() <= single.steps());
    fused.run(graph::current_pool());
    single.run(graph::current_pool());
    for (size_t i = 0; i < 2; ++i) {
      CAPTURE(round, i, fused.text());
      REQUIRE(std::memcmp(fused.output(i).data(), single.output(i).data(),
                          fused.output(i).bytes()) == 0);
    }
  }
}

TEST_CASE("steps with operands whose columns lie together are those of copies, to the bit") {
  Philox random(4);
  // Rows and columns beyond a turned piece and short of one, of matrices and of batches.
  for (const Shape& shape : {Shape{75, 300}, {2, 33, 130}, {2, 5, 3, 700}, {1100, 3}, {40, 1}}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kU8}) {
      Array array = Array::zeros(DType::kF32, shape);
      for (float& x : array.as_mutable<float>()) {
        x = std::round(static_cast<float>(200 * random.uniform()));
      }
      const Tensor x = graph::constant(array);
      const Array stored = graph::contiguous(graph::transpose(x, -1, -2), dtype).eval();
      const Tensor turned = graph::transpose(graph::constant(stored), -1, -2);
      const Tensor sum = ops::add(ops::mul(turned, 0.5), x);
      const Array y =
          graph::contiguous(ops::sub(sum, graph::slice(x, -1, 0, 1)), DType::kF32).eval();
      const Array expected =
          ops::sub(graph::constant(ops::add(ops::mul(x, 0.5), x).eval()), graph::slice(x, -1, 0, 1))
              .eval();
      CAPTURE(name(dtype), to_string(shape));
      CHECK(std::memcmp(y.data(), expected.data(), y.bytes()) == 0);
    }
  }
}

TEST_CASE("a long chain is split at the limits of a program") {
  Tensor x = input({5});
  for (int i = 0; i < 100; ++i) x = ops::neg(x);
  const Graph fused =
      graph::run_passes(graph_of(x), {passes::fuse_elementwise()}, /*verified=*/true);
  CHECK(count(fused, "fused") == 7);
}

TEST_CASE("fuse_epilogues does the residual addition in the product") {
  const Tensor x = input({2, 8}), r = graph::input(DType::kF32, {2, 4}, "r");
  const Tensor w = graph::constant(Array::zeros(DType::kF32, {4, 8}));
  const graph::Pipeline pipeline = {passes::fuse_elementwise(), passes::fuse_epilogues()};
  const Graph fused = graph::run_passes(graph_of(ops::sub(r, ops::linear(x, w))), pipeline, true);
  CHECK(count(fused, "fused") == 0);
  REQUIRE(fused.outputs()[0]->op->name == "linear");
  CHECK(to_string(*fused.outputs()[0]->epilogue) == "sub(r1, r0)");
  const Tensor biased = ops::add(ops::matmul(x, input({8, 4})), input({4}));
  const Graph with_bias = graph::run_passes(graph_of(biased), pipeline, true);
  CHECK(count(with_bias, "fused") == 0);
  CHECK(to_string(*with_bias.outputs()[0]->epilogue) == "add(r0, r1)");
  // Gradients of a table that is an output layer's weight, too.
  const Tensor ids = graph::constant(Array::zeros(DType::kI32, {2}));
  const Tensor tied = ops::add(input({5, 8}), ops::embedding_grad(x, ids, 5));
  const Graph summed = graph::run_passes(graph_of(tied), pipeline, true);
  CHECK(count(summed, "fused") == 0);
  CHECK(to_string(*summed.outputs()[0]->epilogue) == "add(r1, r0)");
  // A product that somebody else reads keeps its own result.
  const Tensor shared = ops::linear(x, w);
  const Graph kept =
      graph::run_passes(graph_of(ops::add(ops::neg(shared), ops::softmax(shared))), pipeline, true);
  CHECK(count(kept, "fused") == 1);
}

namespace {

// The type of the result of the only `op` after store_bf16, "" if there is none, on emulated tiles.
std::string stored(const std::vector<Tensor>& results, std::string_view op) {
  const kernels::TileUnitScope scope(&kernels::kEmulatedTileUnit);
  std::vector<graph::NodePtr> outputs;
  for (const Tensor& result : results) outputs.push_back(result.node());
  const Graph graph = graph::run_passes(
      Graph(outputs), {passes::fuse_elementwise(), passes::fuse_epilogues(), passes::store_bf16()},
      true);
  std::string type;
  for (const auto& node : graph.nodes()) {
    if (node->op->name == op) type = type.empty() ? std::string(name(node->dtype)) : "several";
  }
  return type;
}

}  // namespace

TEST_CASE("store_bf16 stores in bfloat16 what products round and nothing else reads") {
  const graph::AutocastScope precision(DType::kBF16);
  const Tensor x = input({40, 64}), w = input({48, 64}), h = ops::exp(x);
  const Tensor y = ops::softmax(ops::linear(h, w)), turned = graph::transpose(h, 0, 1);
  CHECK(stored({y}, "fused") == "bf16");
  CHECK(stored({y, ops::softmax(ops::matmul(turned, h))}, "fused") == "bf16");
  CHECK(stored({y, ops::sum(h, 0)}, "fused") == "bf16");
  CHECK(stored({ops::sum(h, 0)}, "fused") == "f32");
  CHECK(stored({y, ops::softmax(h)}, "fused") == "f32");
  CHECK(stored({y, h}, "fused") == "f32");  // an output
  CHECK(stored({y, ops::sum(h, 1)}, "fused") == "f32");
  CHECK(stored({ops::softmax(ops::linear(ops::rms_norm(x, input({64}), 1e-5), w))}, "rms_norm") ==
        "bf16");
  const Tensor parts[] = {x, x};
  CHECK(stored({ops::softmax(ops::matmul(ops::concat(parts, 0), input({64, 32})))}, "concat") ==
        "bf16");
  const Tensor joined[] = {h, x}, far = ops::concat(joined, 0);
  CHECK(stored({ops::softmax(ops::matmul(far, input({64, 32})))}, "fused") == "bf16");
  CHECK(stored({ops::softmax(far), y}, "fused") == "f32");
  {
    const graph::AutocastScope exact(DType::kF32);
    CHECK(stored({ops::softmax(ops::linear(h, w))}, "fused") == "f32");
  }
  const Graph fused = passes::fuse_elementwise().run(graph_of(y));
  const kernels::ExactProductsScope no_unit;
  CHECK(passes::store_bf16().run(fused).nodes() == fused.nodes());
}

TEST_CASE("store_bf16 keeps results of products narrow until they meet float32") {
  const graph::AutocastScope precision(DType::kBF16);
  const Tensor x = input({40, 64}), w = input({48, 64}), bias = input({48});
  const Tensor y = ops::linear(x, w), act = ops::relu(y);
  const Tensor twice = ops::add(act, ops::neg(y));
  CHECK(stored({ops::softmax(twice), ops::softmax(act)}, "linear") == "bf16");
  CHECK(stored({ops::softmax(y)}, "linear") == "f32");
  CHECK(stored({ops::add(y, input({40, 48})), ops::softmax(y)}, "linear") == "f32");
  const Tensor b = ops::add(ops::linear(x, w, bias), bias), loud = ops::exp(b);
  CHECK(stored({ops::softmax(ops::mul(loud, b)), ops::softmax(loud)}, "linear") == "bf16");
  const Tensor residual = ops::add(input({40, 48}), ops::linear(x, w));
  const Tensor next = ops::mul(ops::exp(residual), residual), other = ops::exp(residual);
  CHECK(stored({ops::softmax(next), ops::softmax(other)}, "linear") == "f32");
  const Tensor scale = ops::mul(bias, graph::scalar(2));
  CHECK(stored({ops::exp(graph::expand(scale, {40, 48}))}, "fused") != "bf16");
}

TEST_CASE("storing what products round in bfloat16 changes no bit of what they compute") {
  const kernels::TileUnitScope scope(&kernels::kEmulatedTileUnit);
  const graph::AutocastScope precision(DType::kBF16);
  auto values = [](const Shape& shape, double step) {
    std::vector<float> x(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(step * double(i + 1)));
    return graph::constant(x, shape);
  };
  const Tensor x = values({2, 40, 64}, 0.37), w = values({48, 64}, 0.11),
               dy = values({80, 48}, 0.7);
  const Tensor normed = ops::layer_norm(x, values({64}, 0.3), values({64}, 0.4), 1e-5);
  const Tensor h = ops::gelu(normed), rows = graph::reshape(h, {80, 64});
  const std::vector<Tensor> results = {
      ops::softmax(ops::linear(h, w)), ops::matmul(graph::transpose(dy, 0, 1), rows),
      ops::linear(normed, w), ops::matmul(graph::transpose(rows, 0, 1), ops::exp(dy))};
  graph::CompileOptions without;
  std::erase_if(without.pipeline, [](const graph::Pass& pass) {
    return pass.name == "store_bf16" || pass.name == "fold_constants";
  });
  graph::CompileOptions with{.verified = true};
  std::erase_if(with.pipeline,
                [](const graph::Pass& pass) { return pass.name == "fold_constants"; });
  graph::Plan plan = graph::compile(results, with), wide = graph::compile(results, without);
  CHECK(plan.arena_bytes() < wide.arena_bytes());
  plan.run(graph::current_pool());
  wide.run(graph::current_pool());
  for (size_t i = 0; i < results.size(); ++i) {
    const auto a = plan.output(i).as<float>(), b = wide.output(i).as<float>();
    CHECK(std::equal(a.begin(), a.end(), b.begin(), b.end()));
  }
}

TEST_CASE("a plan that stores in bfloat16 runs exactly only if it was compiled so") {
  const kernels::TileUnitScope scope(&kernels::kEmulatedTileUnit);
  const graph::AutocastScope precision(DType::kBF16);
  const Tensor x = input({40, 64}), w = input({48, 64}), y = ops::linear(x, w), act = ops::relu(y);
  const std::vector<Tensor> reads = {ops::softmax(ops::linear(ops::exp(x), w))},
                            gives = {ops::softmax(ops::add(act, ops::neg(y))), ops::softmax(act)};
  for (const std::vector<Tensor>& results : {reads, gives}) {
    graph::Plan plan = graph::compile(results);
    CHECK(plan.run(graph::current_pool()));
    const kernels::ExactProductsScope exact;
    CHECK(testing::contains(
        testing::refusal(ErrorKind::kUnsupported, [&] { plan.run(graph::current_pool()); }),
        "cannot run under an ExactProductsScope"));
    graph::Plan again = graph::compile(results);
    CHECK(again.run(graph::current_pool()));
  }
}

namespace {

// Whether both hold the same bits. A NaN is a NaN: where two are multiplied it depends on which
// operand the compiler puts first whose sign the result has.
bool same_bits(const Array& a, const Array& b) {
  const auto numbers = [](const Array& array) {
    std::vector<float> values(array.elements());
    kernels::to_float(array.dtype(), array.data(), values.data(), array.elements());
    return values;
  };
  const std::vector<float> left = numbers(a), right = numbers(b);
  return a.dtype() == b.dtype() &&
         std::equal(left.begin(), left.end(), right.begin(), right.end(), [](float x, float y) {
           return std::isnan(x) ? std::isnan(y) : std::memcmp(&x, &y, sizeof x) == 0;
         });
}

}  // namespace

TEST_CASE("fuse_casts leaves no pass that only converts, and every bit") {
  const Tensor wide = [] {
    std::vector<float> x(3 * 700);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(0.37 * double(i)) * 4);
    x[5] = NAN;
    x[6] = INFINITY;
    x[7] = 1e-39f;  // subnormal, in bfloat16 too
    x[8] = -0.0f;
    return graph::constant(x, {3, 700});
  }();
  graph::CompileOptions with{.verified = true}, without;
  std::erase_if(with.pipeline,
                [](const graph::Pass& pass) { return pass.name == "fold_constants"; });
  without.pipeline = with.pipeline;
  std::erase_if(without.pipeline,
                [](const graph::Pass& pass) { return pass.name == "fuse_casts"; });
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    CAPTURE(name(dtype));
    const auto given = [&](const char* name) { return graph::input(dtype, {3, 700}, name); };
    const Tensor x = given("x"), dy = given("dy");
    const Tensor dy32 = graph::contiguous(dy, DType::kF32);
    const auto relu = ops::relu(x);
    const Tensor kept =
        relu.node()->inputs[0]->inputs.empty() ? relu : Tensor(relu.node()->inputs[0]);
    const Tensor zero = graph::scalar(0);
    struct Case {
      std::vector<Tensor> results;
      size_t steps;
    };
    const Case cases[] = {
        // What several steps read is computed in each, a cast that is read is not made.
        {{relu, ops::where(ops::less_than(graph::expand(zero, kept.shape()), kept), dy32, zero)},
         2},
        // Rounding is an instruction.
        {{ops::mul(dy32, ops::silu(x))}, 1},
        {{ops::leaky_relu(x, 0.1)}, 1},
        {{ops::hard_swish(x)}, 1},
        // A result is stored, and read from there.
        {{ops::exp(x), ops::sin(ops::exp(x))}, 2},
        {{ops::mul(dy32, ops::clamp(ops::abs(x), 0.5, 2))}, 1},
        // Sums are of the numbers as they are stored.
        {{ops::sum(dy32, 0), ops::sum(dy32, 1)}, 2},
        // Columns are better copied before they are read.
        {{ops::exp(graph::contiguous(graph::transpose(x, 0, 1), DType::kF32))}, 2},
    };
    for (const Case& c : cases) {
      graph::Plan plan = graph::compile(c.results, with),
                  plain = graph::compile(c.results, without);
      CAPTURE(plan.text());
      CHECK(plan.steps() == c.steps);
      // What is one of the operands, or that with another sign, is not rounded.
      const bool chooses = testing::contains(plan.text(), "clamp");
      CHECK_FALSE((chooses && testing::contains(plan.text(), "to_bf16")));
      CHECK(plan.steps() <= plain.steps());
      for (graph::Plan* p : {&plan, &plain}) {
        for (const Tensor& in : {x, dy}) {
          if (!p->has_input(in)) continue;
          const Array narrow = graph::contiguous(wide, dtype).eval();
          std::memcpy(p->input(in).mutable_data(), narrow.data(), narrow.bytes());
        }
        p->run(graph::current_pool());
      }
      for (size_t i = 0; i < c.results.size(); ++i) {
        CHECK(same_bits(plan.output(i), plain.output(i)));
      }
    }
  }
}

TEST_CASE("materialize_layouts copies only where a kernel cannot read the view") {
  const Tensor x = input({4, 6});
  auto copies = [](const Tensor& y) {
    return count(passes::materialize_layouts().run(graph_of(y)), "contiguous");
  };
  const Tensor w = graph::constant(Array::zeros(DType::kF32, {3, 4}));
  CHECK(copies(ops::softmax(graph::slice(x, 1, 1, 5))) == 0);
  CHECK(copies(ops::softmax(graph::transpose(x, 0, 1))) == 1);
  CHECK(copies(ops::linear(graph::slice(x, 1, 2, 6), w)) == 0);
  CHECK(copies(graph::reshape(graph::transpose(x, 0, 1), {24})) == 1);
  CHECK(copies(x) == 1);                                   // an output is no input
  CHECK(copies(graph::slice(ops::exp(x), 0, 1, 3)) == 0);  // but may be a part of a result
  CHECK(copies(graph::slice(ops::exp(x), 1, 1, 3)) == 1);
}

TEST_CASE("verify refuses a graph that breaks its rules") {
  const Tensor x = input({3});
  const Tensor y = ops::exp(x);
  auto broken = std::make_shared<graph::Node>();
  broken->op = y.node()->op;
  broken->inputs = {x.node()};
  broken->shape = {4};
  CHECK_THROWS_AS(passes::verify().run(Graph({broken})), Error);

  const Tensor cache = graph::state(Array::zeros(DType::kF32, {1, 1, 4, 2}), "cache");
  const Tensor at = graph::constant(Array::zeros(DType::kI32, {1}));
  const Tensor rows = graph::constant(Array::zeros(DType::kF32, {1, 1, 1, 2}));
  const Tensor appended = ops::kv_append(cache, rows, at);
  CHECK_NOTHROW(passes::verify().run(graph_of(appended)));
  const Tensor races = ops::add(graph::contiguous(appended), graph::contiguous(cache));
  CHECK_THROWS_AS(passes::verify().run(graph_of(races)), Error);
}

TEST_CASE("display names operations, shapes and parameters") {
  const Tensor w = graph::constant(Array::zeros(DType::kF16, {3, 4}), "w\"1");
  const Graph graph = graph_of(ops::linear(input({2, 4}), w));
  CHECK(graph::to_text(graph).find("%2 = linear weights=1 bias=0(%0, %1) f32 [2, 3]") !=
        std::string::npos);
  const std::string dot = graph::to_dot(graph);
  CHECK(dot.find("constant 'w\\\"1'\\nf16 [3, 4]") != std::string::npos);
  CHECK(dot.find("n0 -> n2") != std::string::npos);
}
