// What an observer is told of plans, and that they compute the same with it.
#include "lib/graph/plan_observer.h"

#include <algorithm>
#include <atomic>
#include <sstream>
#include <string>
#include <vector>

#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/ops/ops.h"

namespace lumen::graph {
namespace {

struct Told : PlanObserver {
  std::vector<std::string> names;
  std::vector<Clock::time_point> times;  // start and end of each

  void on_step(const NodePtr& node, Clock::time_point start, Clock::time_point end) override {
    note(node->op->name, start, end);
  }
  void on_part(std::string_view name, Clock::time_point start, Clock::time_point end) override {
    note(name, start, end);
  }
  void note(std::string_view name, Clock::time_point start, Clock::time_point end) {
    names.emplace_back(name);
    times.insert(times.end(), {start, end});
  }
};

// softmax, then a sum.
struct Example {
  Tensor x = input(DType::kF32, {2, 64}, "x");
  Tensor y = ops::sum(ops::softmax(x), 0);
  Plan plan = compile(std::span(&y, 1));

  Example() {
    auto values = plan.input(x).as_mutable<float>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  }
  std::vector<float> run() {
    plan.run(current_pool());
    const auto result = plan.output(0).as<float>();
    return {result.begin(), result.end()};
  }
};

// The operations of its steps.
std::vector<std::string> names_of(const Plan& plan) {
  std::istringstream text(plan.text());
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) names.push_back(line.substr(0, line.find(' ')));
  return names;
}

TEST_CASE("what is evaluated is one plan, whether of constants or not") {
  const Tensor x = constant(Array::zeros(DType::kF32, {3, 5}));
  Told told;
  const ObserverScope scope(told);
  ops::leaky_relu(ops::add(x, x)).eval();
  CHECK(told.names == std::vector<std::string>{"fused"});
  ops::add(x, x).eval();
  CHECK(told.names == std::vector<std::string>{"fused", "fused"});
}

TEST_CASE("an observer is told of every step of a plan once, in order") {
  Example example;
  const auto before = Clock::now();
  const std::vector<float> unobserved = example.run();
  Told told;
  {
    const ObserverScope scope(told);
    CHECK(current_observer() == &told);
    CHECK(example.run() == unobserved);
  }
  CHECK(current_observer() == nullptr);
  CHECK(told.names == names_of(example.plan));
  CHECK(told.times.front() >= before);
  CHECK(std::is_sorted(told.times.begin(), told.times.end()));
}

TEST_CASE("without a scope, and after its end, nobody is told") {
  Example example;
  Told told;
  { const ObserverScope scope(told); }
  example.run();
  { const ObservedPart part("unseen"); }
  CHECK(told.names.empty());
}

TEST_CASE("a part is one whatever plans run in it, and the innermost observer is told") {
  Example example;
  Told outer, inner;
  const ObserverScope outer_scope(outer);
  {
    const ObservedPart part("part");
    example.run();
  }
  CHECK(outer.names == std::vector<std::string>{"part"});
  {
    const ObserverScope inner_scope(inner);
    example.run();
  }
  CHECK(inner.names.size() == example.plan.steps());
  example.run();
  CHECK(outer.names.size() == 1 + example.plan.steps());
}

TEST_CASE("a plan that is stopped tells only of the steps it did") {
  Example example;
  Told told;
  const ObserverScope scope(told);
  const std::atomic<bool> stop = true;
  CHECK_FALSE(example.plan.run(current_pool(), &stop));
  CHECK(told.names.empty());
}

}  // namespace
}  // namespace lumen::graph
