// Watching plans as they run, for profilers.
#pragma once

#include <string_view>

#include "lib/base/clock.h"
#include "lib/graph/node.h"

namespace lumen::graph {

// Told what the thread of its ObserverScope did, in order and as soon as it is done; what it does
// itself lies between the times that it is told.
class PlanObserver {
 public:
  virtual ~PlanObserver() = default;

  // A step of a plan computed `node`.
  virtual void on_step(const NodePtr& node, Clock::time_point start, Clock::time_point end) = 0;

  // An ObservedPart ended. `name` has static lifetime.
  virtual void on_part(std::string_view name, Clock::time_point start, Clock::time_point end) = 0;
};

// While it lives, `observer` is told of what this thread does. Scopes nest: the innermost counts.
class ObserverScope {
 public:
  explicit ObserverScope(PlanObserver& observer);
  ~ObserverScope();
  ObserverScope(const ObserverScope&) = delete;

 private:
  PlanObserver* previous_;
};
// Of this thread's innermost scope; null without one, which is all that not being observed costs.
PlanObserver* current_observer();

// What is done while it lives is one part of the work, whatever plans run in it. Costs nothing
// where nobody observes.
class ObservedPart {
 public:
  // `name` must have static lifetime: "optimizer".
  explicit ObservedPart(std::string_view name);
  ~ObservedPart();
  ObservedPart(const ObservedPart&) = delete;

 private:
  PlanObserver* observer_;
  std::string_view name_;
  Clock::time_point start_;
};

}  // namespace lumen::graph
