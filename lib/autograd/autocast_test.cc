// Mixed precision (graph::AutocastScope), forward and backward.
#include <cmath>
#include <functional>
#include <set>

#include "lib/autograd/autograd.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/graph/mixed_precision.h"
#include "lib/graph/plan.h"
#include "lib/kernels/tiles/amx_emulation.h"
#include "lib/ops/loss.h"
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

namespace {

Tensor random_matrix(Philox& random, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& v : values) v = static_cast<float>(random.normal());
  return matrix(values, shape);
}

Tensor as_bf16(const Tensor& x) {
  return graph::contiguous(graph::contiguous(x, DType::kBF16), DType::kF32);
}

void check_close(const Tensor& actual, const Tensor& expected) {
  const Array a = actual.eval(), b = expected.eval();
  REQUIRE(a.shape() == b.shape());
  for (int64_t i = 0; i < a.shape().elements(); ++i) {
    CHECK(a.as<float>()[i] == Approx(b.as<float>()[i]).margin(1e-5).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("whatever becomes of a product, it multiplies what bfloat16 holds") {
  Philox random(1);
  const Tensor x = random_matrix(random, {40, 48}), v = random_matrix(random, {20, 48});
  const Tensor w = random_matrix(random, {24, 48}), table = random_matrix(random, {10, 48});
  const Tensor ids = graph::constant(Array::from<int32_t>(std::vector<int32_t>(64, 3), {64}));
  // Two products of one x become one, and those of looked-up rows one of the table.
  auto products = [&](auto&& round) {
    const Tensor parts[] = {ops::flatten(ops::linear(round(x), round(w))),
                            ops::flatten(ops::linear(round(x), round(v))),
                            ops::flatten(ops::linear(ops::embedding(round(table), ids), round(w)))};
    return ops::concat(parts, 0);
  };
  const Tensor expected = products(as_bf16);
  const AutocastScope scope(DType::kBF16);
  check_close(products([](const Tensor& t) { return t; }), expected);
  const auto labels = graph::constant(Array::from<int32_t>(std::vector<int32_t>(40, 5), {40}));
  const auto ones = graph::constant(std::vector<float>(40, 1.0f), {40});
  const Tensor loss = ops::linear_cross_entropy(x, w, labels, ones);
  {
    const AutocastScope exact(DType::kF32);
    check_close(loss, ops::linear_cross_entropy(as_bf16(x), as_bf16(w), labels, ones));
  }
}

TEST_CASE("products of integers are not rounded") {
  const Tensor a = graph::constant(Array::from<int32_t>(std::vector<int32_t>{257, 3}, {1, 2}));
  const AutocastScope scope(DType::kBF16);
  const Tensor y = ops::matmul(a, graph::transpose(a, 0, 1));
  CHECK_FALSE(y.node()->attrs.has("bf16"));
  CHECK(y.eval().as<int32_t>()[0] == 257 * 257 + 9);
}

TEST_CASE("gradients of products are made of rounded numbers too, also outside the scope") {
  Philox random(2);
  const Tensor x = random_matrix(random, {40, 36}), w = random_matrix(random, {24, 36});
  const Tensor dy = random_matrix(random, {40, 24});
  Tensor y;
  {
    const AutocastScope scope(DType::kBF16);
    y = ops::linear(x, w);
  }
  const std::vector<Tensor> wrt = {x, w};
  const auto gradients = autograd::gradients({&y, 1}, {&dy, 1}, wrt);
  check_close(gradients[0], ops::matmul(as_bf16(dy), as_bf16(w)));
  check_close(gradients[1], ops::matmul(graph::transpose(as_bf16(dy), 0, 1), as_bf16(x)));
}

namespace {

// The nodes that x is made of and whose operation's name begins with `op`.
std::vector<const graph::Node*> nodes_of(const Tensor& x, std::string_view op) {
  std::vector<const graph::Node*> found, open = {x.node().get()};
  std::set<const graph::Node*> seen;
  while (!open.empty()) {
    const graph::Node* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (node->op != nullptr && node->op->name.starts_with(op)) found.push_back(node);
    for (const graph::NodePtr& input : node->inputs) open.push_back(input.get());
  }
  return found;
}

double distance(const Tensor& a, const Tensor& b) {
  const Array x = a.eval(), y = b.eval();
  double difference = 0, whole = 0;
  for (int64_t i = 0; i < x.shape().elements(); ++i) {
    difference += std::pow(x.as<float>()[i] - y.as<float>()[i], 2);
    whole += std::pow(y.as<float>()[i], 2);
  }
  return std::sqrt(difference / whole);
}

// A node of `op` and of its gradients says that their products are in bfloat16, also if the
// gradients are recorded outside the scope, and all are near those in float32; `make` gives the
// result from `wrt`.
void check_products_inside(std::string_view op, const std::vector<Tensor>& wrt,
                           const std::function<Tensor()>& make) {
  INFO(op);
  auto results = [&](DType precision) {
    Tensor y;
    {
      const AutocastScope scope(precision);
      y = make();
    }
    const Tensor dy = graph::constant(std::vector<float>(y.shape().elements(), 1.0f), y.shape());
    std::vector<Tensor> all = autograd::gradients({&y, 1}, {&dy, 1}, wrt);
    all.push_back(y);
    return all;
  };
  const auto exact = results(DType::kF32), half = results(DType::kF16);
  const auto rounded = results(DType::kBF16);
  for (size_t i = 0; i < rounded.size(); ++i) {
    INFO("result " << i);
    for (const graph::Node* node : nodes_of(rounded[i], op)) CHECK(graph::in_bf16(*node));
    for (const graph::Node* node : nodes_of(exact[i], op)) CHECK_FALSE(graph::in_bf16(*node));
    for (const graph::Node* node : nodes_of(half[i], op)) CHECK_FALSE(graph::in_bf16(*node));
    CHECK(!nodes_of(rounded[i], op).empty());
    const double error = distance(rounded[i], exact[i]);
    CHECK(error > 1e-5);
    CHECK(error < 1e-2);
  }
}

}  // namespace

TEST_CASE("recurrent layers multiply what bfloat16 holds, forward and in their gradients") {
  Philox random(4);
  constexpr int64_t kHidden = 40;
  const Tensor x = random_matrix(random, {6, 7, 20});
  const Tensor h0 = random_matrix(random, {6, kHidden}), c0 = random_matrix(random, {6, kHidden});
  const Tensor lengths =
      graph::constant(Array::from<int32_t>(std::vector<int32_t>{7, 3, 5, 7, 1, 2}, {6}));
  for (const ops::RecurrentOptions& options :
       {ops::RecurrentOptions{}, ops::RecurrentOptions{.lengths = lengths, .reverse = true}}) {
    const Tensor input = ops::mul(random_matrix(random, {4 * kHidden, 20}), graph::scalar(0.2f));
    const Tensor hidden =
        ops::mul(random_matrix(random, {4 * kHidden, kHidden}), graph::scalar(0.2f));
    check_products_inside("recurrent", {x, hidden, h0, c0}, [&] {
      return ops::lstm(x, {input, hidden, {}, {}}, h0, c0, options).out;
    });
  }
}

TEST_CASE("convolutions may multiply what bfloat16 holds, forward and in their gradients") {
  const kernels::TileUnitScope scope(&kernels::kEmulatedTileUnit);
  Philox random(5);
  const Tensor x = random_matrix(random, {2, 32, 12, 12});
  const Tensor w = random_matrix(random, {40, 32, 3, 3}), bias = random_matrix(random, {40});
  check_products_inside("conv", {x, w}, [&] {
    return ops::conv2d(x, w, bias, {.padding = {1, 1}});
  });
  const Tensor y = random_matrix(random, {2, 40, 12, 12});
  check_products_inside("conv", {y, w}, [&] {
    return ops::conv_transpose2d(y, w, {}, {.padding = {1, 1}});
  });
}

TEST_CASE("attention may multiply what bfloat16 holds, forward and in its gradients") {
  const kernels::TileUnitScope scope(&kernels::kEmulatedTileUnit);
  Philox random(6);
  const Tensor q = random_matrix(random, {2, 40, 4, 24});
  const Tensor k = random_matrix(random, {2, 2, 40, 24}), v = random_matrix(random, {2, 2, 40, 24});
  const Tensor position = graph::constant(Array::zeros(DType::kI32, {1}));
  check_products_inside("attention", {q, k, v},
                        [&] { return ops::attention(q, k, v, position, {.scale = 0.2f}); });
}

namespace {

// Plans with and without store_bf16, run; folding constants would leave nothing to run.
std::pair<graph::Plan, graph::Plan> stored_and_wide(const std::vector<Tensor>& results) {
  graph::CompileOptions without, with{.verified = true};
  std::erase_if(without.pipeline, [](const graph::Pass& pass) {
    return pass.name == "store_bf16" || pass.name == "fold_constants";
  });
  std::erase_if(with.pipeline,
                [](const graph::Pass& pass) { return pass.name == "fold_constants"; });
  std::pair<graph::Plan, graph::Plan> plans{graph::compile(results, with),
                                            graph::compile(results, without)};
  plans.first.run(graph::current_pool());
  plans.second.run(graph::current_pool());
  return plans;
}

// How many results of `op` the default pipeline stores in bfloat16.
int stored_in_bf16(const std::vector<Tensor>& results, std::string_view op) {
  std::vector<graph::NodePtr> outputs;
  for (const Tensor& result : results) outputs.push_back(result.node());
  const graph::Graph graph =
      graph::run_passes(graph::Graph(outputs), graph::CompileOptions().pipeline, true);
  int found = 0;
  for (const graph::NodePtr& node : graph.nodes()) {
    found += node->op->name == op && node->dtype == DType::kBF16;
  }
  return found;
}

}  // namespace

TEST_CASE("gradients of attention that are stored in bfloat16 are what products make of them") {
  const kernels::TileUnitScope scope(&kernels::kEmulatedTileUnit);
  const AutocastScope precision(DType::kBF16);
  Philox random(7);
  const Tensor q = random_matrix(random, {2, 40, 4, 24});
  const Tensor k = random_matrix(random, {2, 2, 40, 24}), v = random_matrix(random, {2, 2, 40, 24});
  const Tensor position = graph::constant(Array::zeros(DType::kI32, {1}));
  const Tensor out = ops::attention(q, k, v, position, {.scale = 0.2f});
  const Tensor dout = ops::exp(random_matrix(random, {2, 40, 4, 24}));
  const Tensor wrt[] = {q, k, v};
  std::vector<Tensor> parts = autograd::gradients({&out, 1}, {&dout, 1}, wrt);
  for (size_t i : {1, 2}) parts[i] = graph::permute(parts[i], {0, 2, 1, 3});
  const Tensor joined = graph::reshape(ops::concat(parts, 2), {80, 192});
  const std::vector<Tensor> results = {
      ops::matmul(graph::transpose(joined, 0, 1), random_matrix(random, {80, 64}))};
  CHECK(stored_in_bf16(results, "attention_backward") == 1);
  auto [plan, wide] = stored_and_wide(results);
  const auto narrow = plan.output(0).as<float>(), expected = wide.output(0).as<float>();
  CHECK(std::equal(narrow.begin(), narrow.end(), expected.begin(), expected.end()));
}

TEST_CASE("recurrent layers store results and gradients in bfloat16 where products read them") {
  const kernels::TileUnitScope scope(&kernels::kEmulatedTileUnit);
  const AutocastScope precision(DType::kBF16);
  Philox random(8);
  constexpr int64_t kHidden = 32;
  const Tensor x = random_matrix(random, {16, 6, 20});
  const Tensor hidden =
      ops::mul(random_matrix(random, {4 * kHidden, kHidden}), graph::scalar(0.2f));
  const Tensor input = random_matrix(random, {4 * kHidden, 20});
  const Tensor out = ops::lstm(x, {input, hidden, {}, {}}, {}, {}, {}).out;
  const Tensor y = ops::linear(out, random_matrix(random, {48, kHidden}));
  const Tensor dy = random_matrix(random, {16, 6, 48}), wrt[] = {input, hidden};
  const std::vector<Tensor> results = autograd::gradients({&y, 1}, {&dy, 1}, wrt);
  CHECK(stored_in_bf16(results, "recurrent") == 1);
  CHECK(stored_in_bf16(results, "recurrent_backward") == 1);
  auto [plan, wide] = stored_and_wide(results);
  for (size_t i = 0; i < results.size(); ++i) {
    const auto narrow = plan.output(i).as<float>(), expected = wide.output(i).as<float>();
    double error = 0, total = 0;
    for (size_t j = 0; j < narrow.size(); ++j) {
      error += std::pow(narrow[j] - expected[j], 2);
      total += std::pow(expected[j], 2);
    }
    CHECK(std::sqrt(error / total) < 1e-2);
  }
  // What float32 reads stays so.
  CHECK(stored_in_bf16({ops::softmax(out)}, "recurrent") == 0);
}
