#include "models/model.h"

#include <algorithm>

#include "lib/autograd/autograd.h"
#include "lib/base/error.h"
#include "lib/nn/training_scope.h"

namespace lumen::models {

Tensor run_layer(bool recompute, const Tensor& x, std::function<Tensor(const Tensor&)> layer) {
  if (!recompute) return layer(x);
  nn::TrainingScope* const training = nn::TrainingScope::current();
  const int64_t stream = training ? training->stream() : 0;
  auto body = [layer = std::move(layer), stream](std::span<const Tensor> in) {
    nn::TrainingScope* const scope = nn::TrainingScope::current();
    if (scope == nullptr) return layer(in[0]);
    const int64_t after = scope->stream();
    scope->set_stream(stream);  // dropout must be the same each time
    const Tensor y = layer(in[0]);
    scope->set_stream(std::max(after, scope->stream()));
    return y;
  };
  return autograd::checkpoint(body, {&x, 1});
}

const ModelDef& find_model_def(const io::Json& config) {
  const std::string type = io::get_string(config, "model_type");
  std::vector<std::string> known;
  std::string list;
  for (const ModelDef* def : model_list()) {
    for (std::string_view name : def->model_types) {
      if (name == type) return *def;
      known.emplace_back(name);
      list += str(list.empty() ? "" : ", ", name);
    }
  }
  const std::string near = nearest(type, known);
  fail(ErrorKind::kUnsupported, "model_type ", quoted(type), " is not supported",
       near.empty() ? "" : str(" (nearest: ", near, ")"), "; supported: ", list);
}

}  // namespace lumen::models
