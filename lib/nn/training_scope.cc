#include "lib/nn/training_scope.h"

#include <memory>

#include "lib/autograd/autograd.h"

namespace lumen::nn {
namespace {

thread_local TrainingScope* innermost = nullptr;

}  // namespace

TrainingScope::TrainingScope(const Tensor& key, int64_t first_stream, bool again)
    : key_(key), streams_(first_stream), again_(again), outer_(innermost) {
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

ops::AttentionDropout attention_dropout(double p) {
  TrainingScope* const scope = TrainingScope::current();
  if (scope == nullptr || p == 0) return {};
  return {p, scope->key(), scope->next_stream()};
}

Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& body,
                  std::span<const Tensor> inputs) {
  struct Settings {
    Tensor key;  // undefined: inference
    int64_t stream;
    DType precision;
    bool again;
  };
  const TrainingScope* const scope = innermost;
  auto settings = std::make_shared<Settings>(Settings{scope ? scope->key() : Tensor(),
                                                      scope ? scope->stream() : 0,
                                                      graph::autocast_dtype(), false});
  auto repeatable = [body, settings](std::span<const Tensor> in) {
    if (!settings->again) {
      settings->again = true;
      return body(in);
    }
    const graph::AutocastScope precision(settings->precision);
    if (!settings->key.defined()) return body(in);
    const TrainingScope same(settings->key, settings->stream, true);
    return body(in);
  };
  return autograd::checkpoint(repeatable, inputs);
}

}  // namespace lumen::nn
