#include "lib/nn/training_scope.h"

#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

thread_local TrainingScope* innermost = nullptr;

}  // namespace

TrainingScope::TrainingScope(const Tensor& key) : key_(key), outer_(innermost) {
  innermost = this;
}

TrainingScope::~TrainingScope() {
  innermost = outer_;
}

TrainingScope* TrainingScope::current() {
  return innermost;
}

Tensor dropout(const Tensor& x, double p) {
  TrainingScope* const scope = TrainingScope::current();
  if (scope == nullptr || p == 0) return x;
  return ops::dropout(x, p, scope->key(), scope->next_stream());
}

}  // namespace lumen::nn
