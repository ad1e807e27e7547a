// Where the time of steps goes: of training steps, prompts, tokens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/graph/plan_observer.h"

namespace lumen::runtime {

// Steps of plans that have name and shapes in common, or a part of the work outside of plans.
struct ProfileRow {
  std::string operation;               // graph::step_name, or the name of the part
  std::string shapes;                  // graph::step_shapes; "" of a part
  double calls = 0;                    // of one step
  double seconds = 0;                  // of one step
  double share = 0;                    // of the wall time
  std::optional<double> flops, bytes;  // per second; absent: not known
};

struct Profile {
  int64_t steps = 0;
  double wall_seconds = 0;       // of one step
  std::vector<ProfileRow> rows;  // the longest first; together at most the wall time
};

// Something that took time, of those that a trace shows.
struct TraceEvent {
  std::string name, shapes;      // as in ProfileRow; of a whole step "step"
  double start = 0, length = 0;  // in seconds, `start` since the profiler's first step
};

// Measures steps one by one and keeps sums: its memory does not grow with the number of steps. Not
// thread-safe.
class Profiler : private graph::PlanObserver {
 public:
  // What a step did.
  struct Record {
    graph::NodePtr node;    // null: a part outside of plans, called
    std::string_view part;  // with static lifetime
    Clock::time_point start, end;
  };

  // The trace has so many steps, and at most one more than so many events.
  static constexpr int64_t kTracedSteps = 3;
  static constexpr size_t kMostTraceEvents = 20'000;

  // Runs `body`, one step, observing the plans that this thread runs. What `body` throws passes
  // through; the step does not count then.
  void step(FunctionRef<void()> body);

  // Counts a step from `start` to `end` in which `records` happened one after the other.
  void add_step(Clock::time_point start, Clock::time_point end, std::span<const Record> records);

  int64_t steps() const { return steps_; }
  double seconds() const { return seconds_; }  // of all steps
  Profile profile() const;
  // The first steps, each followed by what it consists of, in order.
  const std::vector<TraceEvent>& trace() const { return trace_; }

 private:
  struct Sum {
    int64_t calls = 0;
    double seconds = 0;
  };

  void on_step(const graph::NodePtr& node, Clock::time_point start, Clock::time_point end) override;
  void on_part(std::string_view name, Clock::time_point start, Clock::time_point end) override;
  void add_trace(Clock::time_point start, Clock::time_point end, std::span<const Record> records);

  std::vector<Record> records_;  // of the present step
  std::unordered_map<graph::NodePtr, Sum> nodes_;
  std::map<std::string_view, Sum> parts_;
  int64_t steps_ = 0;
  double seconds_ = 0;
  Clock::time_point first_start_;
  std::vector<TraceEvent> trace_;
};

// Runs `body`, as a step of `profiler` if there is one.
void run_step(Profiler* profiler, FunctionRef<void()> body);

// Of an answer: reading its prompt is a step of one, each pass over the weights for its tokens a
// step of the other.
struct GenerationProfile {
  Profiler prompt, passes;
};

}  // namespace lumen::runtime
