// Gradients of every operation against finite differences, and in float32 against double.
#include <cmath>
#include <set>

#include "lib/autograd/autograd.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/graph/reference_backend.h"
#include "lib/ops/ops.h"

using namespace lumen;
using graph::OpCase;
using graph::OpDef;
using graph::Tensor;

namespace {

using Values = std::vector<double>;

// Step functions.
const std::set<std::string_view> kNotDifferentiable = {
    "less_than", "equal", "floor", "ceil", "round", "trunc", "sign", "floor_divide"};

// With a gradient for some inputs only, which gradient_test.cc and layer_gradients_test.cc check:
// class and token weights, bounds, angles and memory that is written over have none. Indices have
// none.
const std::set<std::string_view> kPartly = {"add_state",
                                            "batch_norm_narrow",
                                            "clamp",
                                            "huber",
                                            "kv_append",
                                            "leaky_relu",
                                            "lerp_state",
                                            "recurrent",
                                            "recurrent_backward",
                                            "cross_entropy",
                                            "cross_entropy_backward",
                                            "nll",
                                            "nll_backward",
                                            "linear_cross_entropy",
                                            "linear_cross_entropy_gradients",
                                            "binary_cross_entropy",
                                            "argmax",
                                            "rope",
                                            "argsort"};

// One case of an operation with random inputs; float ones are variables with values in double.
struct Setup {
  std::vector<Tensor> inputs, variables;
  graph::LeafValues values, direction;
  Tensor output, seed;
  std::vector<Tensor> gradients;
};

// Rows of a cache that several texts share (slots) and states that a text goes on from are for
// inference alone.
bool is_usable(const OpCase& test) {
  if (test.label.starts_with("slots") || test.label.starts_with("states")) return false;
  bool any = false;
  int64_t elements = 0;
  for (const auto& type : test.inputs) {
    if (is_quantized(type.dtype) || type.dtype == DType::kF16 || type.dtype == DType::kBF16) {
      return false;
    }
    any |= is_float(type.dtype);
    elements += type.shape.elements();
  }
  return any && elements > 0 && elements < 20000;  // the reference is slow
}

Setup set_up(const OpCase& test) {
  Philox random(23);
  Setup s;
  for (const auto& type : test.inputs) {
    Array array = Array::zeros(type.dtype, type.shape);
    if (!is_float(type.dtype)) {
      LUMEN_CHECK(type.dtype == DType::kI32);
      for (int32_t& x : array.as_mutable<int32_t>()) x = static_cast<int32_t>(random.below(4));
      s.inputs.push_back(graph::constant(array));
      continue;
    }
    Values values, direction;
    for (int64_t i = 0; i < type.shape.elements(); ++i) {
      const float x = static_cast<float>(test.low + (test.high - test.low) * random.uniform());
      values.push_back(x);
      direction.push_back(2 * random.uniform() - 1);
      if (type.dtype == DType::kF32) {
        array.as_mutable<float>()[static_cast<size_t>(i)] = x;
      } else {
        array.as_mutable<double>()[static_cast<size_t>(i)] = x;
      }
    }
    const Tensor x = autograd::variable(array);
    s.inputs.push_back(x);
    s.variables.push_back(x);
    s.values[x.node().get()] = values;
    s.direction[x.node().get()] = direction;
  }
  s.output = test.build(s.inputs);
  std::vector<float> seed(static_cast<size_t>(s.output.shape().elements()));
  for (float& x : seed) x = static_cast<float>(2 * random.uniform() - 1);
  s.seed = graph::constant(seed, s.output.shape());
  s.gradients = autograd::gradients({&s.output, 1}, {&s.seed, 1}, s.variables);
  return s;
}

double weighted(const Setup& s, double step) {
  graph::LeafValues moved = s.values;
  for (auto& [node, values] : moved) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += step * s.direction.at(node)[i];
  }
  const Values y = graph::evaluate_reference(s.output, moved);
  const auto seed = s.seed.node()->value.as<float>();
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * seed[i];
  return sum;
}

// The slope along the random direction, both ways, of gradients with these values.
void check_slope(const Setup& s, const std::vector<Values>& gradients) {
  double slope = 0, squares = 0;
  for (size_t v = 0; v < s.variables.size(); ++v) {
    const Values& g = gradients[v];
    const Values& direction = s.direction.at(s.variables[v].node().get());
    REQUIRE(g.size() == direction.size());
    for (size_t i = 0; i < g.size(); ++i) {
      slope += g[i] * direction[i];
      squares += std::pow(g[i] * direction[i], 2);
    }
  }
  constexpr double kStep = 1e-5;
  const double measured = (weighted(s, kStep) - weighted(s, -kStep)) / (2 * kStep);
  // Summands of random signs may cancel: what they are expected to add up to counts too.
  const double scale = std::max({std::abs(slope), std::abs(measured), std::sqrt(squares), 1e-3});
  INFO("gradient " << slope << ", difference " << measured);
  CHECK(std::abs(slope - measured) <= 1e-6 * scale);
}

void check_float(const Setup& s, const std::vector<Values>& gradients, double tolerance) {
  graph::Plan plan = graph::compile(s.gradients, {.verified = true});
  plan.run(graph::current_pool());
  for (size_t v = 0; v < s.variables.size(); ++v) {
    const Values& want = gradients[v];
    double largest = 0;
    for (double x : want) largest = std::max(largest, std::abs(x));
    const Array& array = plan.output(v);
    const Array got = graph::contiguous(graph::constant(array), DType::kF64).eval();
    const auto values = got.as<double>();
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::abs(values[i] - want[i]) <= 10 * tolerance * (1 + largest)) continue;
      FAIL("input " << v << " element " << i << ": got " << values[i] << ", want " << want[i]);
    }
  }
}

}  // namespace

TEST_CASE("the gradient of every operation is the slope of its meaning") {
  for (const OpDef* op : ops::op_list()) {
    if (!op->cases || op->random || kNotDifferentiable.count(op->name) || kPartly.count(op->name))
      continue;
    int checked = 0;
    for (const OpCase& test : op->cases()) {
      if (!is_usable(test)) continue;
      INFO(op->name << " " << test.label);
      const Setup s = set_up(test);
      std::vector<Values> gradients;
      for (const Tensor& gradient : s.gradients) {
        gradients.push_back(graph::evaluate_reference(gradient, s.values));
      }
      check_slope(s, gradients);
      check_float(s, gradients, std::max(test.tolerance, 2e-6));
      ++checked;
    }
    INFO(op->name);
    CHECK(checked > 0);
  }
}

TEST_CASE("step functions have no gradient") {
  for (const OpDef* op : ops::op_list()) {
    if (!kNotDifferentiable.count(op->name)) continue;
    INFO(op->name);
    CHECK(op->grad == graph::no_gradient);
  }
}
