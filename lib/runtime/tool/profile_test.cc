// Profiles of steps whose times are made up, and of a step that is run.
#include "lib/runtime/tool/profile.h"

#include <chrono>
#include <stdexcept>

#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/ops/ops.h"

namespace lumen::runtime {
namespace {

using Record = Profiler::Record;

Clock::time_point at(int64_t milliseconds) {
  return Clock::time_point(std::chrono::milliseconds(1000 + milliseconds));
}

graph::Tensor floats(const Shape& shape) {
  return graph::input(DType::kF32, shape, "x");
}

// A step of 100 ms: two products alike, an exponential, a look-up and a part.
struct Example {
  graph::NodePtr first = ops::linear(floats({100, 50}), floats({20, 50})).node();
  graph::NodePtr second = ops::linear(floats({100, 50}), floats({20, 50})).node();
  graph::NodePtr exp = ops::exp(floats({1000})).node();
  graph::NodePtr rows =
      ops::embedding(floats({10, 4}), graph::constant(Array::zeros(DType::kI32, {2}))).node();

  std::vector<Record> step(int64_t start) const {
    return {{first, {}, at(start), at(start + 10)},
            {second, {}, at(start + 10), at(start + 30)},
            {exp, {}, at(start + 40), at(start + 41)},
            {rows, {}, at(start + 41), at(start + 50)},
            {nullptr, "optimizer", at(start + 50), at(start + 95)}};
  }
};

TEST_CASE("rows are sums of like operations, of one step, the longest first") {
  const Example example;
  Profiler profiler;
  profiler.add_step(at(0), at(100), example.step(0));
  profiler.add_step(at(200), at(300), example.step(200));
  CHECK(profiler.steps() == 2);
  const Profile profile = profiler.profile();
  CHECK(profile.steps == 2);
  CHECK(profile.wall_seconds == Approx(0.1));
  REQUIRE(profile.rows.size() == 4);
  const ProfileRow &optimizer = profile.rows[0], &linear = profile.rows[1];
  CHECK(optimizer.operation == "optimizer");
  CHECK(optimizer.shapes.empty());
  CHECK(optimizer.seconds == Approx(0.045));
  CHECK(optimizer.share == Approx(0.45));
  CHECK(!optimizer.flops);
  CHECK(linear.operation == "linear");
  CHECK(linear.shapes == "100×20×50");
  CHECK(linear.calls == 2);
  CHECK(linear.seconds == Approx(0.03));
  CHECK(linear.share == Approx(0.3));
  CHECK(*linear.flops == Approx(2 * 2.0 * 100 * 20 * 50 / 0.03));
  CHECK(*linear.bytes == Approx(2 * 4.0 * (100 * 50 + 20 * 50 + 100 * 20) / 0.03));
  CHECK(profile.rows[2].operation == "embedding");
  CHECK(*profile.rows[2].bytes == Approx((2 * 2 * 4 * 4 + 2 * 4) / 0.009));
  CHECK(profile.rows[3].operation == "exp");
  CHECK(*profile.rows[3].bytes == Approx(8000 / 0.001));
}

TEST_CASE("a profile of no steps, and of one without operations") {
  Profiler profiler;
  CHECK(profiler.profile().rows.empty());
  profiler.add_step(at(0), at(5), {});
  CHECK(profiler.profile().wall_seconds == Approx(0.005));
  CHECK(profiler.profile().rows.empty());
}

TEST_CASE("a trace has the first steps, from the start of the first, and is bounded") {
  const Example example;
  Profiler profiler;
  for (int64_t i = 0; i < 2 * Profiler::kTracedSteps; ++i) {
    profiler.add_step(at(100 * i), at(100 * i + 100), example.step(100 * i));
  }
  const auto& trace = profiler.trace();
  REQUIRE(trace.size() == static_cast<size_t>(Profiler::kTracedSteps) * 6);
  CHECK(trace[0].name == "step");
  CHECK(trace[0].start == 0);
  CHECK(trace[0].length == Approx(0.1));
  CHECK(trace[2].name == "linear");
  CHECK(trace[2].shapes == "100×20×50");
  CHECK(trace[2].start == Approx(0.01));
  CHECK(trace[6].start == Approx(0.1));

  Profiler large;
  const std::vector<Record> records(2 * Profiler::kMostTraceEvents,
                                    Record{nullptr, "part", at(0), at(0)});
  for (int i = 0; i < 2; ++i) large.add_step(at(0), at(1), records);
  CHECK(large.trace().size() == Profiler::kMostTraceEvents + 1);
}

TEST_CASE("a step that runs a plan has its operations; one that throws does not count") {
  const graph::Tensor y = ops::softmax(floats({64, 64}));
  graph::Plan plan = graph::compile(std::span(&y, 1));
  Profiler profiler;
  const auto run = [&] { plan.run(graph::current_pool()); };
  for (int i = 0; i < 3; ++i) profiler.step(run);
  CHECK_THROWS_AS(profiler.step([&] {
    run();
    throw std::runtime_error("no");
  }),
                  std::runtime_error);
  CHECK(graph::current_observer() == nullptr);
  const Profile profile = profiler.profile();
  CHECK(profile.steps == 3);
  REQUIRE(profile.rows.size() == 1);
  CHECK(profile.rows[0].operation == "softmax");
  CHECK(profile.rows[0].calls == 1);
  CHECK(profile.rows[0].seconds <= profile.wall_seconds);
  int runs = 0;
  run_step(nullptr, [&] { ++runs; });
  run_step(&profiler, [&] { ++runs; });
  CHECK(runs == 2);
  CHECK(profiler.steps() == 4);
}

}  // namespace
}  // namespace lumen::runtime
