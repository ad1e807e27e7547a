// One test for every operation: walks the table.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/graph/reference_backend.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/simd.h"
#include "lib/ops/ops.h"
#include "lib/ops/random_input.h"

using namespace lumen;
using graph::OpCase;
using graph::OpDef;
using graph::Tensor;
using testing::contains;
using testing::refusal;

namespace {

Tensor random_input(const graph::TypedShape& type, const OpCase& test, Philox& random) {
  return graph::constant(ops::random_input(type, test, random));
}

// Products on AMX tiles promise an error of the whole result (matmul.h; the kernels' tests hold
// them to it), not of every element, so operations are compared without.
std::vector<float> run(const Tensor& tensor, const graph::CompileOptions& options, int threads) {
  const kernels::ExactProductsScope exact(kernels::uses_amx());
  ThreadPool pool(threads);
  graph::CompileOptions with_threads = options;
  with_threads.threads = threads;
  graph::Plan plan = graph::compile(std::span(&tensor, 1), with_threads);
  plan.run(pool);
  const Array& array = plan.output(0);
  std::vector<float> values(array.elements());
  if (!values.empty()) {
    kernels::to_float(array.dtype(), array.data(), values.data(), array.elements());
  }
  return values;
}

void check_close(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::abs(got[i] - want[i]) > tolerance * (1 + std::abs(want[i])) ||
        std::isnan(got[i]) != std::isnan(want[i])) {
      INFO("element " << i << ": got " << got[i] << ", want " << want[i]);
      REQUIRE(false);
    }
  }
}

}  // namespace

TEST_CASE("every operation equals its meaning in primitives") {
  for (const OpDef* op : ops::op_list()) {
    if (op->kind == graph::OpKind::kView || op == &graph::kPad || op->copies) continue;
    INFO("operation " << op->name);
    REQUIRE(op->cases != nullptr);
    REQUIRE((op->is_primitive() || op->random || op->meaning != nullptr));
    for (const OpCase& test : op->cases()) {
      INFO("case " << test.label);
      Philox random(17);
      std::vector<Tensor> inputs;
      for (const auto& type : test.inputs) inputs.push_back(random_input(type, test, random));
      const std::vector<double> want = graph::evaluate_reference(test.build(inputs));
      const graph::CompileOptions optimised{.verified = true};
      const std::vector<float> got = run(test.build(inputs), optimised, 1);
      check_close(got, want, test.tolerance);
      REQUIRE(run(test.build(inputs), optimised, 3) == got);
      check_close(run(test.build(inputs), {.pipeline = {}}, 1), want, test.tolerance);
    }
  }
}

TEST_CASE("every operation agrees with its meaning on every SIMD target") {
  const std::string chosen = kernels::chosen_simd_target();
  for (const OpDef* op : ops::op_list()) {
    if (!op->cases) continue;
    for (const OpCase& test : op->cases()) {
      Philox random(18);
      std::vector<Tensor> inputs;
      for (const auto& type : test.inputs) inputs.push_back(random_input(type, test, random));
      const std::vector<double> want = graph::evaluate_reference(test.build(inputs));
      for (const std::string& target : kernels::supported_simd_targets()) {
        INFO(target << " " << op->name << " " << test.label);
        kernels::force_simd_target(target);
        check_close(run(test.build(inputs), {}, 2), want, test.tolerance);
      }
      kernels::force_simd_target(chosen);
    }
  }
}

TEST_CASE("an undefined tensor is refused by every operation, which says so") {
  // Those with biases, weights and scales that may be left out.
  const std::set<std::string_view> optional = {
      "linear", "conv2d", "conv_transpose2d", "rms_norm", "layer_norm", "attention", "experts"};
  for (const OpDef* op : ops::op_list()) {
    if (!op->cases) continue;
    for (const OpCase& test : op->cases()) {
      Philox random(19);
      std::vector<Tensor> inputs;
      for (const auto& type : test.inputs) inputs.push_back(random_input(type, test, random));
      for (size_t i = 0; i < inputs.size(); ++i) {
        INFO(op->name << " " << test.label << ", input " << i);
        std::vector<Tensor> with_hole = inputs;
        with_hole[i] = Tensor();
        const std::string message = refusal(ErrorKind::kMalformed, [&] { test.build(with_hole); });
        const bool left_out = message == "accepted" && i > 0 && optional.contains(op->name);
        CHECK((left_out || contains(message, " is an undefined tensor")));
      }
    }
  }
  const Tensor none, one = graph::scalar(1), both[] = {one, none};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::add(one, none); }),
                 "add: b is an undefined tensor"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { ops::concat(both, 0); }),
                 "concat: input 1 is an undefined tensor"));
  for (const auto& [says, body] : std::vector<std::pair<std::string, std::function<void()>>>{
           {"flatten: ", [&] { ops::flatten(none); }},
           {"softmax: x ", [&] { ops::softmax(none); }},
           {"conv2d: weight ", [&] { ops::conv2d(one, none); }},
           {"avg_pool2d: x ", [&] { ops::avg_pool2d(none, {}); }},
           {"cumsum: x ", [&] { ops::cumsum(none, 0); }},
           {"masked_fill: the condition ", [&] { ops::masked_fill(one, none, 0); }},
           {"where: the condition ", [&] { ops::where(none, one, 0); }},
           {"sort: ", [&] { ops::argsort(none); }},
           {"sum: x ", [&] { ops::sum(none, ops::kAllAxes, false); }}}) {
    CHECK(contains(refusal(ErrorKind::kMalformed, body), says));
  }
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { none.shape(); }), "is an undefined tensor"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { none.eval(); }),
                 "evaluate: input 0 is an undefined tensor"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { graph::compile(both); }),
                 "compile: input 1 is an undefined"));
  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] { graph::make_node(*ops::op_list()[0], {graph::NodePtr()}); }),
                 "undefined"));
}

TEST_CASE("there are exactly the twelve primitives of the luminal profile") {
  std::vector<std::string> names;
  for (const OpDef* op : ops::op_list()) {
    if (op->is_primitive()) names.emplace_back(op->name);
  }
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"add", "contiguous", "exp2", "less_than", "log2",
                                          "max_reduce", "mod", "mul", "recip", "sin", "sqrt",
                                          "sum_reduce"});
}

TEST_CASE("operation names are unique") {
  std::set<std::string_view> names;
  for (const OpDef* op : ops::op_list()) CHECK(names.insert(op->name).second);
}

TEST_CASE("element-wise operations treat special values as IEEE 754 does") {
  const float inf = INFINITY, nan = NAN;
  auto at = [](const Tensor& x) { return static_cast<float>(x.item()); };
  using graph::scalar;
  CHECK(std::isnan(at(ops::maximum(scalar(nan), scalar(1)))));
  CHECK(std::isnan(at(ops::minimum(scalar(1), scalar(nan)))));
  CHECK(at(ops::maximum(scalar(-inf), scalar(2))) == 2);
  CHECK(at(ops::exp(scalar(-inf))) == 0);
  CHECK(at(ops::exp(scalar(200))) == inf);
  CHECK(std::isnan(at(ops::exp(scalar(nan)))));
  CHECK(at(ops::log(scalar(0))) == -inf);
  CHECK(std::isnan(at(ops::log(scalar(-1)))));
  CHECK(std::isnan(at(ops::sqrt(scalar(-1)))));
  CHECK(at(ops::recip(scalar(0))) == inf);
  CHECK(at(ops::tanh(scalar(100))) == 1);
  CHECK(at(ops::sigmoid(scalar(-200))) == 0);
  CHECK(at(ops::silu(scalar(-200))) == 0);
  CHECK(at(ops::mod(scalar(-7), scalar(3))) == -1);
  CHECK(at(ops::less_than(scalar(nan), scalar(1))) == 0);
  CHECK(at(ops::equal(scalar(nan), scalar(nan))) == 0);
  CHECK(at(ops::where(scalar(0), scalar(nan), scalar(3))) == 3);
  CHECK(std::isnan(at(ops::mul(scalar(nan), scalar(0)))));
}

TEST_CASE("activations made of several operations round narrow types once") {
  using Function = Tensor (*)(const Tensor&);
  const Function functions[] = {[](const Tensor& x) { return ops::elu(x, 0.7); },
                                [](const Tensor& x) { return ops::softplus(x, 20, 20); },
                                [](const Tensor& x) { return ops::softplus(x); },
                                ops::hard_sigmoid,
                                ops::hard_swish,
                                [](const Tensor& x) { return ops::soft_cap(x, 3); },
                                ops::mish};
  const Tensor wide = ops::sub(ops::mul(graph::iota(400), 0.1), 19.97);  // e²⁰ is ∞ in f16
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    const Tensor x = graph::contiguous(wide, dtype);
    for (const Function& function : functions) {
      const Tensor once = graph::contiguous(function(graph::contiguous(x, DType::kF32)), dtype);
      INFO(name(dtype) << ", function " << &function - functions);
      CHECK(ops::allclose(function(x), once, 0, 0));
      CHECK(ops::all(ops::isfinite(once)).item() == 1);
    }
  }
}

TEST_CASE("softmax survives large logits and propagates NaN") {
  const float large[] = {1e4f, -1e4f, 1e4f};
  const Array array = ops::softmax(graph::constant(large, {3})).eval();
  const auto y = array.as<float>();
  CHECK(y[0] == Approx(0.5));
  CHECK(y[1] == 0);
}

TEST_CASE("shapes that do not fit are errors naming the operation and the shapes") {
  auto message = [](auto&& body) -> std::string {
    try {
      body();
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kMalformed);
      return error.what();
    }
    return "no error";
  };
  const Tensor a = graph::constant(Array::zeros(DType::kF32, {2, 3}));
  const Tensor b = graph::constant(Array::zeros(DType::kF32, {4, 5}));
  CHECK(message([&] { ops::add(a, b); }) == "add: shapes [2, 3] and [4, 5] do not broadcast");
  CHECK(message([&] { ops::linear(a, b); }).find("linear(f32 [2, 3], f32 [4, 5])") == 0);
  CHECK(message([&] { ops::matmul(a, b); }).find("matmul(") == 0);
  CHECK(message([&] { ops::sum(a, 2); }) == "sum_reduce: axis 2 is not an axis of [2, 3]");
  CHECK(message([&] { graph::reshape(a, {5}); }).find("reshape of [2, 3]") == 0);
}
