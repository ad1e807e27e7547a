#include "lib/runtime/tool/profile.h"

#include <algorithm>
#include <tuple>

#include "lib/graph/cost.h"
#include "lib/graph/display.h"

namespace lumen::runtime {
namespace {

// Sums over the steps of plans that a row stands for.
struct RowSum {
  double calls = 0, seconds = 0;
  graph::Cost cost;
  bool is_known = true;
};

// Largest first; rows that took equally long in the order of their names.
bool comes_first(const ProfileRow& a, const ProfileRow& b) {
  return std::tie(b.seconds, a.operation, a.shapes) < std::tie(a.seconds, b.operation, b.shapes);
}

}  // namespace

void Profiler::step(FunctionRef<void()> body) {
  records_.clear();
  const auto start = Clock::now();
  {
    const graph::ObserverScope scope(*this);
    body();
  }
  add_step(start, Clock::now(), records_);
}

void Profiler::add_step(Clock::time_point start, Clock::time_point end,
                        std::span<const Record> records) {
  if (steps_ == 0) first_start_ = start;
  for (const Record& record : records) {
    Sum& sum = record.node ? nodes_[record.node] : parts_[record.part];
    ++sum.calls;
    sum.seconds += seconds_between(record.start, record.end);
  }
  if (steps_ < kTracedSteps && trace_.size() < kMostTraceEvents) {
    add_trace(start, end,
              records.first(std::min(records.size(), kMostTraceEvents - trace_.size())));
  }
  ++steps_;
  seconds_ += seconds_between(start, end);
}

void Profiler::add_trace(Clock::time_point start, Clock::time_point end,
                         std::span<const Record> records) {
  const auto add = [&](std::string name, std::string shapes, Clock::time_point from,
                       Clock::time_point to) {
    trace_.push_back({std::move(name), std::move(shapes), seconds_between(first_start_, from),
                      seconds_between(from, to)});
  };
  add("step", "", start, end);
  for (const Record& record : records) {
    add(record.node ? graph::step_name(*record.node) : std::string(record.part),
        record.node ? graph::step_shapes(*record.node) : "", record.start, record.end);
  }
}

Profile Profiler::profile() const {
  Profile profile;
  profile.steps = steps_;
  if (steps_ == 0) return profile;
  const auto steps = static_cast<double>(steps_);
  profile.wall_seconds = seconds_ / steps;
  std::map<std::pair<std::string, std::string>, RowSum> sums;
  for (const auto& [node, sum] : nodes_) {
    RowSum& row = sums[{graph::step_name(*node), graph::step_shapes(*node)}];
    const auto calls = static_cast<double>(sum.calls);
    const graph::Cost cost = graph::cost_of(*node);
    row.calls += calls;
    row.seconds += sum.seconds;
    row.cost.flops += calls * cost.flops;
    row.cost.bytes += calls * cost.bytes;
    row.is_known = row.is_known && !graph::is_cost_a_bound(*node);
  }
  const auto add = [&](std::string operation, std::string shapes, double calls, double seconds) {
    profile.rows.push_back({std::move(operation),
                            std::move(shapes),
                            calls / steps,
                            seconds / steps,
                            seconds / seconds_,
                            {},
                            {}});
  };
  for (const auto& [name, sum] : sums) {
    add(name.first, name.second, sum.calls, sum.seconds);
    if (!sum.is_known || sum.seconds <= 0) continue;
    profile.rows.back().flops = sum.cost.flops / sum.seconds;
    profile.rows.back().bytes = sum.cost.bytes / sum.seconds;
  }
  for (const auto& [name, sum] : parts_) {
    add(std::string(name), "", static_cast<double>(sum.calls), sum.seconds);
  }
  std::ranges::sort(profile.rows, comes_first);
  return profile;
}

void Profiler::on_step(const graph::NodePtr& node, Clock::time_point start, Clock::time_point end) {
  records_.push_back({node, {}, start, end});
}

void Profiler::on_part(std::string_view name, Clock::time_point start, Clock::time_point end) {
  records_.push_back({nullptr, name, start, end});
}

void run_step(Profiler* profiler, FunctionRef<void()> body) {
  if (profiler != nullptr) {
    profiler->step(body);
  } else {
    body();
  }
}

}  // namespace lumen::runtime
