#include "lib/autograd/autograd.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/graph/graph.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/reference_backend.h"
#include "lib/graph/views.h"
#include "lib/ops/ops.h"

using namespace lumen;
using autograd::Tensor;
using autograd::variable;
using testing::contains;
using testing::refusal;

namespace {

Tensor leaf(std::vector<float> values, const Shape& shape) {
  return variable(Array::from<float>(values, shape));
}

std::vector<float> values(const Tensor& x) {
  const Array array = x.eval();
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

Tensor sum_all(const Tensor& x) {
  return ops::sum(x, {0, 1}, false);
}

// The columns [begin, end) of x [2, 3], each added up with a weight of its own.
Tensor weigh_columns(const Tensor& x, std::span<const std::pair<int, int>> columns) {
  Tensor sum;
  float weight = 1;
  for (const auto& [begin, end] : columns) {
    const Tensor part = ops::mul(sum_all(graph::slice(x, 1, begin, end)), graph::scalar(weight));
    sum = sum.defined() ? ops::add(sum, part) : part;
    weight *= 10;
  }
  return sum;
}

}  // namespace

TEST_CASE("backward of a scalar expression gives the closed form") {
  const Tensor a = leaf({3}, {}), b = leaf({-2}, {}), c = leaf({0.5}, {});
  autograd::backward(ops::add(ops::mul(a, b), ops::tanh(c)));
  CHECK(autograd::grad(a).item() == Approx(-2));
  CHECK(autograd::grad(b).item() == Approx(3));
  CHECK(autograd::grad(c).item() == Approx(1 - std::pow(std::tanh(0.5), 2)).epsilon(1e-6));
}

TEST_CASE("leaves accumulate, zero_grad forgets, a seed weighs") {
  const Tensor x = leaf({1, 2, 3}, {3});
  const Tensor weights = graph::constant(std::vector<float>{1, 10, 100}, {3});
  autograd::backward(ops::mul(x, x), weights);
  CHECK(values(autograd::grad(x)) == std::vector<float>{2, 40, 600});
  autograd::backward(ops::mul(x, x), weights);
  CHECK(values(autograd::grad(x)) == std::vector<float>{4, 80, 1200});
  autograd::zero_grad(x);
  CHECK_FALSE(autograd::grad(x).defined());
}

TEST_CASE("what broadcasting repeated is added up") {
  const Tensor x = leaf({1, 2}, {2, 1}), y = leaf({1, 2, 3}, {3});
  autograd::backward(ops::mul(x, y), graph::expand(graph::scalar(1), Shape{2, 3}));
  CHECK(values(autograd::grad(x)) == std::vector<float>{6, 6});
  CHECK(values(autograd::grad(y)) == std::vector<float>{3, 3, 3});
}

TEST_CASE("gradients of slices: pieces of the whole are joined, others added up") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto gradient = [&](std::vector<std::pair<int, int>> columns) {
    const Tensor y = weigh_columns(x, columns);
    return autograd::gradients({&y, 1}, {}, {&x, 1}).front();
  };
  const auto operations = [](const Tensor& of, const char* name) {
    const graph::Graph graph({of.node()});
    return std::ranges::count_if(graph.nodes(), [&](const auto& n) { return n->op->name == name; });
  };
  const Tensor pieces = gradient({{1, 3}, {0, 1}});
  CHECK(values(pieces) == std::vector<float>{10, 1, 1, 10, 1, 1});
  CHECK(operations(pieces, "concat") == 1);
  CHECK(operations(pieces, "pad") == 0);
  const Tensor overlapping = gradient({{0, 2}, {1, 3}});
  CHECK(values(overlapping) == std::vector<float>{1, 11, 10, 1, 11, 10});
  CHECK(operations(overlapping, "pad") == 2);
  CHECK(values(gradient({{0, 1}, {2, 3}})) == std::vector<float>{1, 0, 10, 1, 0, 10});
  CHECK(values(gradient({{0, 1}, {1, 3}, {0, 3}})) ==
        std::vector<float>{101, 110, 110, 101, 110, 110});
  const Tensor crossed = ops::add(weigh_columns(x, std::vector<std::pair<int, int>>{{0, 1}}),
                                  sum_all(graph::slice(x, 0, 1, 2)));
  CHECK(values(autograd::gradients({&crossed, 1}, {}, {&x, 1}).front()) ==
        std::vector<float>{1, 0, 0, 2, 1, 1});
}

TEST_CASE("detach and no_grad stop gradients") {
  const Tensor x = leaf({2}, {});
  autograd::backward(ops::mul(x, autograd::detach(x)));
  CHECK(autograd::grad(x).item() == 2);
  const autograd::NoGradScope no_grad;
  CHECK_FALSE(ops::mul(x, x).requires_grad());
}

TEST_CASE("a graph is used once unless it is retained") {
  const Tensor x = leaf({2}, {});
  const Tensor y = ops::mul(x, x);
  autograd::backward(y, {}, {.retain_graph = true});
  autograd::backward(y);
  CHECK(autograd::grad(x).item() == 8);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { autograd::backward(y); }), "retain_graph"));
}

TEST_CASE("mistakes are named") {
  const Tensor x = leaf({1, 2}, {2});
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { autograd::backward(ops::mul(x, x)); }),
                 "shape [2]"));
  CHECK(contains(
      refusal(ErrorKind::kMalformed, [&] { autograd::backward(ops::mul(x, x), graph::scalar(1)); }),
      "has shape []"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { autograd::backward(graph::scalar(1)); }),
                 "no variable"));
  const Tensor both[] = {x, x}, one = ops::mul(x, x);
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] {
                           autograd::gradients(both, {&one, 1}, {&x, 1});
                         }),
                 "1 gradients are given for 2 values"));
}

TEST_CASE("hooks see and change gradients") {
  const Tensor x = leaf({3}, {});
  const Tensor y = ops::mul(x, x);
  double seen = 0;
  autograd::register_hook(y, [&](const Tensor& dy) {
    seen = dy.item();
    return ops::mul(dy, graph::scalar(10));
  });
  autograd::backward(y);
  CHECK(seen == 1);
  CHECK(autograd::grad(x).item() == 60);
}

TEST_CASE("functions and hooks that are empty are refused by name") {
  const Tensor x = leaf({3}, {}), inputs[] = {x};
  const auto message = [](FunctionRef<void()> act) {
    return testing::refusal(ErrorKind::kMalformed, act);
  };
  CHECK(testing::contains(message([&] {
                            autograd::apply({"f", {}, {}}, inputs);
                          }),
                          "'f' has no forward"));
  const Tensor y = autograd::apply(
      {"g", [](std::span<const Tensor> in) { return ops::exp(in[0]); }, {}}, inputs);
  CHECK(y.item() == 20.085537F);
  CHECK(testing::contains(message([&] { autograd::backward(y); }), "'g' has no backward"));
  CHECK(testing::contains(message([&] { autograd::register_hook(x, {}); }), "the hook is empty"));
}

TEST_CASE("a hook that registers hooks does so for the next time") {
  const Tensor x = leaf({3}, {});
  int calls = 0;
  autograd::register_hook(x, [&](const Tensor&) {
    for (int i = 0; i < 50; ++i) {  // enough for the list to move
      autograd::register_hook(x, [&](const Tensor&) {
        ++calls;
        return Tensor();
      });
    }
    return Tensor();
  });
  autograd::backward(ops::mul(x, 2));
  CHECK(calls == 0);
  autograd::backward(ops::mul(x, 2));
  CHECK(calls == 50);
}

TEST_CASE("what a hook returns becomes of the gradient's type") {
  const Tensor x = leaf({3}, {});
  autograd::register_hook(x, [](const Tensor& dy) { return graph::contiguous(dy, DType::kI32); });
  autograd::backward(ops::mul(x, 2.5));
  CHECK(autograd::grad(x).dtype() == DType::kF32);
  CHECK(autograd::grad(x).item() == 2);
}

TEST_CASE("a custom function has its own gradient") {
  const autograd::Function straight_through = {
      "sign",
      [](std::span<const Tensor> in) {
        return ops::sub(ops::less_than(graph::scalar(0), in[0]), graph::scalar(0.5));
      },
      [](std::span<const Tensor>, const Tensor&, const Tensor& dy) {
        return std::vector<Tensor>{dy};
      }};
  const Tensor x = leaf({-1, 4}, {2});
  const Tensor y = autograd::apply(straight_through, {&x, 1});
  CHECK(values(y) == std::vector<float>{-0.5, 0.5});
  autograd::backward(y, graph::constant(std::vector<float>{3, 7}, {2}));
  CHECK(values(autograd::grad(x)) == std::vector<float>{3, 7});
}

TEST_CASE("a custom function's gradient of another shape than its input is refused") {
  const autograd::Function summed = {
      "summed", [](std::span<const Tensor> in) { return ops::mul(in[0], 2); },
      [](std::span<const Tensor>, const Tensor&, const Tensor& dy) {
        return std::vector<Tensor>{ops::sum(dy, ops::kAllAxes, false)};
      }};
  const Tensor x = leaf({-1, 4}, {2});
  const Tensor y = ops::sum(autograd::apply(summed, {&x, 1}), ops::kAllAxes, false);
  const std::string message = refusal(ErrorKind::kMalformed, [&] { autograd::backward(y); });
  CHECK(contains(message, "'summed'"));
  CHECK(contains(message, "shape [] for an input of shape [2]"));

  const Tensor frozen = graph::constant(std::vector<float>{1, 2}, {2});
  const Tensor inputs[] = {leaf({5}, {}), frozen};
  autograd::Function first = summed;  // the same gradient for both, which only fits the first
  first.backward = [](std::span<const Tensor>, const Tensor&, const Tensor& dy) {
    return std::vector<Tensor>{dy, dy};
  };
  autograd::backward(autograd::apply(first, inputs));
  CHECK(autograd::grad(inputs[0]).item() == 1);
}

TEST_CASE("gradients can be differentiated again") {
  const Tensor x = leaf({0.7f}, {});
  const Tensor y = ops::mul(ops::mul(x, x), ops::sin(x));
  const Tensor first = autograd::gradients({&y, 1}, {}, {&x, 1}, true)[0];
  const Tensor second = autograd::gradients({&first, 1}, {}, {&x, 1})[0];
  const double v = 0.7f;
  CHECK(first.item() == Approx(2 * v * std::sin(v) + v * v * std::cos(v)).epsilon(1e-6));
  CHECK(second.item() ==
        Approx(2 * std::sin(v) + 4 * v * std::cos(v) - v * v * std::sin(v)).epsilon(1e-6));
}

TEST_CASE("100,000 chained operations do not overflow the stack") {
  const Tensor x = leaf({1}, {1});
  Tensor y = x;
  for (int i = 0; i < 100'000; ++i) y = ops::add(y, x);
  autograd::backward(y);
  CHECK(autograd::grad(x).item() == 100'001);
}

TEST_CASE("checkpoint recomputes and gives the same gradients") {
  auto body = [](std::span<const Tensor> in) { return ops::sin(ops::exp(ops::mul(in[0], in[1]))); };
  const Tensor a[] = {leaf({0.3f, 0.4f}, {2}), leaf({1.5f, -1}, {2})};
  const Tensor b[] = {leaf({0.3f, 0.4f}, {2}), leaf({1.5f, -1}, {2})};
  const Tensor ones = graph::constant(std::vector<float>{1, 1}, {2});
  autograd::backward(body(a), ones);
  autograd::backward(autograd::checkpoint(body, b), ones);
  for (int i : {0, 1}) CHECK(values(autograd::grad(a[i])) == values(autograd::grad(b[i])));
}

TEST_CASE("checkpointed layers that share a variable count each use once") {
  const Tensor x = leaf({0.5f, -0.25f}, {2}), w = leaf({1.5f, 0.75f}, {2});
  const Tensor ones = graph::constant(std::vector<float>{1, 1}, {2});
  auto layer = [&](std::span<const Tensor> in) { return ops::tanh(ops::mul(in[0], w)); };
  auto twice = [&](auto&& run) { return run(run(x)); };
  autograd::backward(twice([&](const Tensor& in) { return layer({&in, 1}); }), ones);
  const auto gx = values(autograd::grad(x)), gw = values(autograd::grad(w));
  autograd::zero_grad(x), autograd::zero_grad(w);
  autograd::backward(twice([&](const Tensor& in) {
                       return autograd::checkpoint(layer, {&in, 1});
                     }),
                     ones);
  CHECK(values(autograd::grad(x)) == gx);
  CHECK(values(autograd::grad(w)) == gw);
}

TEST_CASE("a checkpointed body may read a variable that it is given too") {
  const Tensor w = leaf({3}, {1});
  autograd::backward(autograd::checkpoint(
      [&](std::span<const Tensor> in) { return ops::mul(in[0], w); }, {&w, 1}));
  CHECK(values(autograd::grad(w)) == std::vector<float>{6});
}

TEST_CASE("the gradient of a checkpoint is differentiated as that of its body") {
  const Tensor x = leaf({1, 0.5f}, {2}), w = leaf({2, 1.5f}, {2});
  auto body = [&](std::span<const Tensor> in) {
    return ops::mul(ops::tanh(in[0]), ops::sigmoid(ops::mul(in[0], w)));
  };
  // w is behind the input too: what goes through it must count once.
  auto second = [&](auto&& run) {
    const Tensor in = ops::mul(x, w), y = ops::sum(run({&in, 1}), 0), wrt[] = {x, w};
    const Tensor slope = autograd::gradients({&y, 1}, {}, wrt, true)[0];
    const Tensor total = ops::sum(ops::mul(slope, slope), 0);
    std::vector<float> all;
    for (const Tensor& g : autograd::gradients({&total, 1}, {}, wrt)) {
      for (float value : values(g)) all.push_back(value);
    }
    return all;
  };
  const auto plain = second(body);
  const auto again =
      second([&](std::span<const Tensor> in) { return autograd::checkpoint(body, in); });
  for (size_t i = 0; i < plain.size(); ++i) CHECK(again[i] == Approx(plain[i]).epsilon(1e-5));
  CHECK(std::abs(plain[0]) > 0.01f);
}

TEST_CASE("products of rows looked up in a small table, and their gradients") {
  constexpr int64_t kRows = 3, kDepth = 16, kColumns = 20, kIds = 12;
  const auto numbers = [](const Shape& shape, float step) {
    std::vector<float> x(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(step * static_cast<float>(i));
    return Array::from<float>(x, shape);
  };
  const Tensor table = variable(numbers({kRows, kDepth}, 0.7f));
  const Tensor w = variable(numbers({kColumns, kDepth}, 1.3f)), b = leaf({0}, {1});
  const Tensor bias = graph::reshape(graph::expand(b, Shape{kColumns}), Shape{kColumns});
  const Tensor ids = graph::constant(Array::from<int32_t>(
      std::vector<int32_t>{0, 2, 2, 0, 2, 0, 0, 0, 2, 2, 2, 0}, {2, kIds / 2}));
  const Tensor rows = ops::embedding(table, ids);
  const Tensor y = ops::linear(rows, w, bias);
  const Tensor seed = graph::constant(numbers(y.shape(), 2.1f));
  const Tensor outputs[] = {y}, seeds[] = {seed}, wrt[] = {table, w, b};
  std::vector<Tensor> results = autograd::gradients(outputs, seeds, wrt);
  results.push_back(y);
  // One product of the table forward; the gradients of w and of the table share what each row's
  // ids add up to.
  std::vector<graph::NodePtr> nodes;
  for (const Tensor& x : results) nodes.push_back(x.node());
  const graph::Graph graph = graph::run_passes(
      graph::Graph(nodes), {graph::passes::reassociate(), graph::passes::eliminate_common()}, true);
  std::map<std::string_view, int> count;
  for (const auto& node : graph.nodes()) {
    ++count[node->op->name];
    if (node->op->kind != graph::OpKind::kContraction) continue;
    CHECK(std::ranges::any_of(node->inputs, [&](const auto& input) {
      return input->shape.rank() == 2 && (input->shape[0] == kRows || input->shape[1] == kRows);
    }));
  }
  CHECK(count["linear"] == 1);
  CHECK(count["matmul"] == 2);
  CHECK(count["embedding_grad"] == 1);
  graph::evaluate(results);
  for (const Tensor& x : results) {
    const std::vector<float> got = values(x);
    const std::vector<double> expected = graph::evaluate_reference(x);
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-5));
  }
}

TEST_CASE("zeros that are cut out of a padded value depend on it") {
  const Tensor x = leaf({1, 2}, {2});
  autograd::backward(ops::sum(graph::slice(graph::pad(x, 0, 2, 2), 0, 0, 2), 0));
  CHECK(values(autograd::grad(x)) == std::vector<float>{0, 0});
}

TEST_CASE("a tensor that is unpacked gives its parts their own gradients") {
  const Tensor flat = leaf({1, 2, 3, 4, 5}, {5});
  const auto parts = graph::unpack(flat, {Shape{2}, Shape{3, 1}});
  autograd::backward(ops::sum(ops::mul(parts[1], parts[1]), 0),
                     graph::constant(std::vector<float>{1}, {1, 1}));
  CHECK(values(autograd::grad(flat)) == std::vector<float>{0, 0, 6, 8, 10});
}

TEST_CASE("what autograd is given must be defined") {
  const Tensor none, x = leaf({1, 2}, {2}), y = ops::sum(x, 0);
  const auto wrong = [](auto&& body, const std::string& where) {
    CHECK(contains(refusal(ErrorKind::kMalformed, body), where + " is an undefined tensor"));
  };
  wrong([&] { autograd::backward(none); }, "backward: output");
  wrong([&] { autograd::gradients({&none, 1}, {}, {&x, 1}); }, "gradients: outputs[0]");
  wrong([&] { autograd::gradients({&y, 1}, {}, {&none, 1}); }, "gradients: wrt[0]");
  wrong([&] { autograd::detach(none); }, "detach: x");
  wrong([&] { autograd::grad(none); }, "grad: variable");
  wrong([&] { autograd::zero_grad(none); }, "zero_grad: variable");
  wrong([&] { autograd::register_hook(none, {}); }, "register_hook: x");
  const Tensor inputs[] = {x, none};
  const auto nothing = [](std::span<const Tensor>) { return Tensor(); };
  wrong([&] { autograd::checkpoint(nothing, inputs); }, "checkpoint: input 1");
  wrong([&] { autograd::checkpoint(nothing, {&x, 1}); }, "checkpoint: what the body returned");
  wrong([&] { autograd::apply({"mine", nothing, {}}, inputs); }, "'mine': input 1");
  wrong([&] { autograd::apply({"mine", nothing, {}}, {&x, 1}); }, "'mine': what forward returned");
}
