// The gradients of convolution, pooling, normalisation, attention and recurrent layers against
// finite differences in double.
#include <algorithm>
#include <set>

#include "lib/autograd/autograd.h"
#include "lib/base/random.h"
#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/graph/reference_backend.h"
#include "lib/ops/ops.h"

using namespace lumen;
using autograd::Tensor;

namespace {

const std::set<std::string_view> kOperations = {
    "conv2d",          "conv_transpose2d",    "conv2d_weight_grad", "max_pool2d",
    "max_pool2d_grad", "avg_pool2d",          "avg_pool2d_grad",    "rope",
    "batch_norm",      "batch_norm_backward", "attention_training", "attention_backward",
    "recurrent",       "recurrent_backward"};

// Differences of 2^-10 around multiples of 2^-7 are exact in float32. Values are distinct, so that
// no maximum changes sides on the way.
constexpr double kStep = 0x1p-10;

Tensor random_input(const graph::TypedShape& type, Philox& random) {
  Array array = Array::zeros(type.dtype, type.shape);
  if (type.dtype == DType::kI32) {
    for (int32_t& x : array.as_mutable<int32_t>()) x = static_cast<int32_t>(random.below(3));
    return graph::constant(array);
  }
  auto values = array.as_mutable<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = (static_cast<float>(i % 256) - 128) * 0x1p-7f;
  }
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
  return autograd::variable(array);
}

std::vector<float> signs(int64_t n, Philox& random) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = random.below(2) ? 1.0f : -1.0f;
  return values;
}

// x + factor · direction.
Tensor moved(const Tensor& x, std::span<const float> direction, double factor) {
  Array array = Array::zeros(DType::kF32, x.shape());
  const auto from = x.node()->value.as<float>();
  auto to = array.as_mutable<float>();
  for (size_t i = 0; i < to.size(); ++i) {
    to[i] = from[i] + static_cast<float>(factor) * direction[i];
  }
  return graph::constant(array);
}

double dot(std::span<const double> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The results that have gradients: a recurrent layer's outputs and last states come before what it
// keeps for its gradient.
int64_t results(std::string_view op, const graph::OpCase& test, int64_t all) {
  if (op != "recurrent") return all;
  const Shape state = test.inputs[3].shape;
  const auto states = std::count_if(test.inputs.begin(), test.inputs.end(),
                                    [&](const auto& input) { return input.shape == state; });
  return state.elements() * (test.inputs[0].shape[1] + states);
}

// Whether small steps stay on one side of every kink: cases of relu with many numbers do not, and
// rounding is a function of steps. Inputs must be float32: ops/float_types_test.cc and
// slope_test.cc have those of other floats.
bool is_smooth(const graph::OpCase& test) {
  for (const auto& type : test.inputs) {
    if (is_float(type.dtype) && type.dtype != DType::kF32) return false;
  }
  const bool has_relu = test.label.find(" relu") != std::string::npos;
  if (has_relu && test.inputs[0].shape.elements() > 100) return false;
  return test.label != "relu with lengths" && test.label.find("bfloat16") == std::string::npos;
}

// The first `differentiable` inputs are variables, the others constants.
void check_case(std::string_view op, const graph::OpCase& test, size_t differentiable) {
  Philox random(3);
  std::vector<Tensor> inputs;
  for (const auto& type : test.inputs) {
    inputs.push_back(random_input(type, random));
    inputs.back().node()->requires_grad &= inputs.size() <= differentiable;
  }
  const Tensor y = test.build(inputs);
  std::vector<float> seed = signs(y.shape().elements(), random);
  std::fill(seed.begin() + results(op, test, y.shape().elements()), seed.end(), 0.0f);
  const Tensor seed_tensor = graph::constant(seed, y.shape());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    INFO("input " << i);
    const std::vector<float> direction = signs(inputs[i].shape().elements(), random);
    auto value = [&](double factor) {
      std::vector<Tensor> changed = inputs;
      changed[i] = moved(inputs[i], direction, factor);
      return dot(graph::evaluate_reference(test.build(changed)), seed);
    };
    const double slope =
        (8 * (value(kStep) - value(-kStep)) - (value(2 * kStep) - value(-2 * kStep))) /
        (12 * kStep);
    const Tensor gradient = autograd::gradients({&y, 1}, {&seed_tensor, 1}, {&inputs[i], 1})[0];
    CHECK(dot(graph::evaluate_reference(gradient), direction) ==
          Approx(slope).epsilon(1e-6).margin(1e-6));
  }
}

Tensor parameter(const std::vector<float>& values, const Shape& shape) {
  return autograd::variable(Array::from<float>(values, shape));
}

std::vector<float> values_of(const Tensor& x) {
  const Array array = x.eval();
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

}  // namespace

TEST_CASE("gradients of layers equal finite differences in double") {
  std::set<std::string_view> seen;
  for (const graph::OpDef* op : ops::op_list()) {
    if (kOperations.count(op->name) == 0) continue;
    seen.insert(op->name);
    for (const graph::OpCase& test : op->cases()) {
      INFO(op->name << ", " << test.label);
      if (!is_smooth(test)) continue;
      check_case(op->name, test, op->name == "rope" ? 1 : test.inputs.size());
    }
  }
  CHECK(seen == kOperations);
}

TEST_CASE("overlapping windows add up the gradients of their maximum") {
  const Tensor x = parameter({1, 5, 2, 3, 5}, {1, 1, 1, 5});
  autograd::backward(ops::max_pool2d(x, {.kernel = {1, 3}, .stride = {1, 1}}),
                     graph::constant(std::vector<float>{1, 10, 100}, {1, 1, 1, 3}));
  // The first and the second window have their maximum at 1, the third at 4; ties go to the first.
  CHECK(values_of(autograd::grad(x)) == std::vector<float>{0, 11, 0, 0, 100});
  const Tensor ties = parameter({2, 2, 2, 2}, {1, 1, 2, 2});
  autograd::backward(ops::max_pool2d(ties, {.kernel = {2, 2}}));
  CHECK(values_of(autograd::grad(ties)) == std::vector<float>{1, 0, 0, 0});
}

TEST_CASE("no gradient crosses a segment boundary") {
  Philox random(1);
  const Shape shape = {1, 40, 2, 8};
  auto make = [&] {
    Array array = Array::zeros(DType::kF32, shape);
    for (float& x : array.as_mutable<float>()) x = static_cast<float>(random.uniform());
    return autograd::variable(array);
  };
  const Tensor q = make(), k = make(), v = make();
  Array ids = Array::zeros(DType::kI32, {1, 40}), mask = Array::zeros(DType::kF32, shape);
  for (size_t t = 0; t < 40; ++t) ids.as_mutable<int32_t>()[t] = t < 17 ? 5 : t < 30 ? 6 : 7;
  // Only the second document counts.
  for (size_t i = 17 * 16; i < 30 * 16; ++i) mask.as_mutable<float>()[i] = 1;
  const Tensor position = graph::constant(Array::zeros(DType::kI32, {1}));
  const Tensor out =
      ops::attention(q, graph::permute(k, {0, 2, 1, 3}), graph::permute(v, {0, 2, 1, 3}), position,
                     {.scale = 0.35, .segments = graph::constant(ids)});
  autograd::backward(out, graph::constant(mask));
  for (const Tensor& x : {q, k, v}) {
    const std::vector<float> gradient = values_of(autograd::grad(x));
    for (size_t i = 0; i < gradient.size(); ++i) {
      const bool own = i >= 17 * 16 && i < 30 * 16;
      if (!own) REQUIRE(gradient[i] == 0);
    }
    CHECK(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0; }));
  }
}

TEST_CASE(
    "fuse_relu makes relu and its gradient part of a batch normalisation, with the same bits") {
  Philox random(5);
  const Tensor x = random_input({DType::kF32, {3, 5, 4, 6}}, random);
  const Tensor w = random_input({DType::kF32, {5}}, random);
  const Tensor b = random_input({DType::kF32, {5}}, random);
  const Tensor flat = random_input({DType::kF32, {7, 5}}, random);
  auto mentions = [](const graph::Plan& plan, std::string_view op) {
    return plan.text().find(str(op, "(")) != std::string::npos;
  };
  auto check = [&](const Tensor& input, const Tensor& weight, const Tensor& bias,
                   bool is_only_reader) {
    const auto normal = ops::batch_norm_training(input, weight, bias, 1e-3);
    Tensor y = ops::relu(normal.y);
    if (!is_only_reader) y = ops::add(y, ops::neg(normal.y));
    const Tensor loss = ops::mul(y, ops::exp(y));
    std::vector<Tensor> results = {loss, normal.mean, normal.var}, wrt = {input};
    if (weight.defined()) wrt.insert(wrt.end(), {weight, bias});
    const Tensor ones;
    for (const Tensor& d : autograd::gradients({&loss, 1}, {&ones, 1}, wrt)) results.push_back(d);
    graph::CompileOptions with{.verified = true}, without;
    std::erase_if(with.pipeline, [](const auto& pass) { return pass.name == "fold_constants"; });
    without.pipeline = with.pipeline;
    std::erase_if(without.pipeline, [](const auto& pass) { return pass.name == "fuse_relu"; });
    graph::Plan fused = graph::compile(results, with), apart = graph::compile(results, without);
    for (std::string_view op : {"relu", "less_than"}) {
      CHECK(mentions(fused, op) != is_only_reader);
      CHECK(mentions(apart, op));
    }
    fused.run(graph::current_pool());
    apart.run(graph::current_pool());
    for (size_t i = 0; i < results.size(); ++i) {
      const auto one = fused.output(i).as<float>(), other = apart.output(i).as<float>();
      CHECK(std::equal(one.begin(), one.end(), other.begin(), other.end()));
    }
  };
  for (const Tensor& input : {x, flat}) {
    check(input, w, b, true);
    check(input, {}, {}, true);
    check(input, w, b, false);
  }
}

TEST_CASE(
    "with running statistics relu is part of a batch normalisation, whose gradients are exact") {
  Philox random(6);
  const Tensor x = random_input({DType::kF32, {3, 5, 4, 6}}, random);
  const Tensor w = random_input({DType::kF32, {5}}, random);
  const Tensor b = random_input({DType::kF32, {5}}, random);
  const Tensor mean = random_input({DType::kF32, {5}}, random);
  const Tensor var = ops::square(random_input({DType::kF32, {5}}, random));
  auto column = [](const Tensor& t) { return graph::reshape(t, {5, 1, 1}); };
  const Tensor y = ops::relu(ops::batch_norm(x, mean, var, w, b, 0.1));
  const Tensor centered = ops::sub(x, column(mean));
  const Tensor scale = ops::mul(ops::rsqrt(ops::add(var, 0.1)), w);
  const Tensor want = ops::relu(ops::add(ops::mul(centered, column(scale)), column(b)));
  const Tensor wrt[] = {x, w, b, mean}, dy = random_input({DType::kF32, {3, 5, 4, 6}}, random);
  std::vector<Tensor> results = {y}, expected = {want};
  for (const Tensor& d : autograd::gradients({&y, 1}, {&dy, 1}, wrt)) results.push_back(d);
  for (const Tensor& d : autograd::gradients({&want, 1}, {&dy, 1}, wrt)) expected.push_back(d);
  graph::CompileOptions options{.verified = true};
  std::erase_if(options.pipeline, [](const auto& pass) { return pass.name == "fold_constants"; });
  CHECK(graph::compile({&y, 1}, options).text().find("relu(") == std::string::npos);
  graph::Plan plan = graph::compile(results, options), apart = graph::compile(expected, options);
  plan.run(graph::current_pool());
  apart.run(graph::current_pool());
  for (size_t i = 0; i < results.size(); ++i) {
    const auto got = plan.output(i).as<float>(), exact = apart.output(i).as<float>();
    for (size_t j = 0; j < got.size(); ++j) {
      INFO(i << ", " << j);
      REQUIRE(std::fabs(got[j] - exact[j]) <= 1e-5f * (1 + std::fabs(exact[j])));
    }
  }
}
