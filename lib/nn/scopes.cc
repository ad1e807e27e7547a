#include "lib/nn/scopes.h"

#include <memory>

#include "lib/autograd/autocast.h"
#include "lib/autograd/autograd.h"
#include "lib/base/error.h"

namespace lumen::nn {
namespace {

thread_local RandomScope* random_scope = nullptr;
thread_local UpdateScope* update_scope = nullptr;

}  // namespace

RandomScope::RandomScope(const Tensor& key, int64_t first_stream)
    : previous_(random_scope), key_(key), stream_(first_stream) {
  random_scope = this;
}
RandomScope::~RandomScope() {
  random_scope = previous_;
}

RandomScope& RandomScope::current(const char* user) {
  if (!random_scope) {
    fail(ErrorKind::kMalformed, user, " draws random numbers while training: record the step ",
         "inside an nn::RandomScope, or call eval()");
  }
  return *random_scope;
}

UpdateScope::UpdateScope() : previous_(update_scope) {
  update_scope = this;
}
UpdateScope::~UpdateScope() {
  update_scope = previous_;
}

void UpdateScope::add(const char* user, const Tensor& update) {
  if (!update_scope) {
    fail(ErrorKind::kMalformed, user, " changes its statistics while training: record the step ",
         "inside an nn::UpdateScope, or call eval()");
  }
  update_scope->updates_.push_back(update);
}

Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& body,
                  std::span<const Tensor> inputs) {
  struct Settings {
    bool random;
    Tensor key;
    int64_t stream;
    DType precision;
    bool again = false;
  };
  RandomScope* random = random_scope;
  auto settings = std::make_shared<Settings>(
      Settings{random != nullptr, random ? random->key_ : Tensor(), random ? random->stream_ : 0,
               autograd::autocast_dtype()});
  auto repeatable = [body, settings](std::span<const Tensor> in) {
    if (!settings->again) {
      settings->again = true;
      return body(in);
    }
    const autograd::AutocastScope precision(settings->precision);
    const UpdateScope ignored;
    if (!settings->random) return body(in);
    const RandomScope same(settings->key, settings->stream);
    return body(in);
  };
  return autograd::checkpoint(repeatable, inputs);
}

}  // namespace lumen::nn
