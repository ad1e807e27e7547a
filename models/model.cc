#include "models/model.h"

#include "lib/base/error.h"
#include "lib/nn/training_scope.h"

namespace lumen::models {

Tensor run_layer(bool recompute, const Tensor& x, std::function<Tensor(const Tensor&)> layer) {
  if (!recompute) return layer(x);
  auto body = [layer = std::move(layer)](std::span<const Tensor> in) { return layer(in[0]); };
  return nn::checkpoint(body, {&x, 1});
}

void check_tensors(const nn::Parameters& parameters) {
  std::vector<std::string> unused = parameters.check();
  std::erase_if(unused, [](const std::string& name) {
    // Constants that older checkpoints hold: frequencies, and GPT-2's causal masks; and layers that
    // guess further tokens (Qwen3.5).
    return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
           name.ends_with(".attn.masked_bias") || name == "lm_head.weight" ||
           name.starts_with("mtp.");
  });
  if (unused.empty()) return;
  const std::string adapter = parameters.adapter_of(unused.front());
  fail(adapter.empty() ? ErrorKind::kUnsupported : ErrorKind::kMismatch,
       adapter.empty() ? "" : str("adapter ", adapter, ": "), "tensor ", quoted(unused.front()),
       unused.size() > 1 ? str(" and ", unused.size() - 1, " more are") : " is",
       " not part of this architecture: results would be wrong");
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
