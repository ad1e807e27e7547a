#include "lib/graph/plan_observer.h"

namespace lumen::graph {
namespace {

thread_local PlanObserver* observer_of_thread = nullptr;

}  // namespace

ObserverScope::ObserverScope(PlanObserver& observer) : previous_(observer_of_thread) {
  observer_of_thread = &observer;
}
ObserverScope::~ObserverScope() {
  observer_of_thread = previous_;
}

PlanObserver* current_observer() {
  return observer_of_thread;
}

ObservedPart::ObservedPart(std::string_view name) : observer_(observer_of_thread), name_(name) {
  if (observer_ == nullptr) return;
  observer_of_thread = nullptr;
  start_ = Clock::now();
}
ObservedPart::~ObservedPart() {
  if (observer_ == nullptr) return;
  observer_->on_part(name_, start_, Clock::now());
  observer_of_thread = observer_;
}

}  // namespace lumen::graph
