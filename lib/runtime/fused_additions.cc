#include "lib/runtime/fused_additions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/fused_experts.h"
#include "lib/io/layer_windows.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/adapter_names.h"
#include "lib/runtime/lora.h"

namespace lumen::runtime {

bool FusedAdditions::take(std::string_view name, const Array& array) {
  constexpr std::string_view kExperts = ".experts.", kInner = "base_layer.";
  const size_t at = name.find(kExperts);
  if (at == name.npos || !is_float(array.dtype())) return false;
  std::string_view rest = name.substr(at + kExperts.size());
  const bool inner = rest.starts_with(kInner);
  if (inner) rest.remove_prefix(kInner.size());
  if (rest != kLoraA && rest != kLoraB) return false;
  Pair& pair = layers_[name_alone(name.substr(0, at))][inner ? 0 : 1];
  (rest == kLoraA ? pair.a : pair.b) = nn::float32_copy(array);
  return true;
}

void FusedAdditions::split(NamedArrays& tensors, std::map<std::string, std::string>& paths) const {
  for (const auto& [layer, pairs] : layers_) {
    std::vector<const char*> targets;
    for (const char* target : {"gate_up_proj", "down_proj"}) {
      if (is_target(str(layer, ".experts.", target))) targets.push_back(target);
    }
    const bool has_inner = !pairs[0].a.empty() || !pairs[0].b.empty();
    if (targets.size() != (has_inner ? 2u : 1u)) {
      fail(ErrorKind::kMalformed, "the adapter has additions to ", has_inner ? "two" : "one",
           " of the parameters of ", quoted(layer + ".experts"), ", but target_parameters of ",
           "adapter_config.json names ", targets.size(), " of gate_up_proj and down_proj");
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      split(layer, targets[i], pairs[has_inner ? i : 1], tensors, paths);
    }
  }
}

bool FusedAdditions::is_target(const std::string& path) const {
  const io::Json* targets = io::find_value(adapter_config_, "target_parameters");
  if (targets == nullptr || !targets->is_array()) return false;
  return std::ranges::any_of(*targets, [&](const io::Json& target) {
    if (!target.is_string()) return false;
    const auto& name = target.get_ref<const std::string&>();
    return path == name || path.ends_with("." + name);
  });
}

void FusedAdditions::split(const std::string& layer, const std::string& target, const Pair& pair,
                           NamedArrays& tensors, std::map<std::string, std::string>& paths) const {
  const bool mixtral = is_mixtral(model_config_), down = target == "down_proj";
  // Those that are not in turn are one after the other.
  const bool in_turn = io::experts_form(model_config_) == io::ExpertsForm::kInTurn;
  const int64_t experts = io::expert_count(model_config_);
  const std::string path = str(layer, ".experts.", target);
  const std::vector<const char*> parts =
      down ? std::vector{mixtral ? "w2" : "down_proj"}
           : std::vector{mixtral ? "w1" : "gate_proj", mixtral ? "w3" : "up_proj"};
  const auto count = static_cast<int64_t>(parts.size());
  const bool fits = !pair.a.empty() && !pair.b.empty() && pair.a.shape().rank() == 2 &&
                    pair.b.shape().rank() == 2 && pair.a.shape()[0] == pair.b.shape()[1] &&
                    pair.a.shape()[0] % experts == 0 && pair.b.shape()[0] % count == 0;
  if (!fits) {
    fail(ErrorKind::kMismatch, "the addition to ", quoted(path), " has shapes ",
         to_string(pair.a.shape()), " and ", to_string(pair.b.shape()),
         ", expected [experts · rank, in] and [out, rank · experts] of ", experts, " experts");
  }
  const int64_t rank = pair.a.shape()[0] / experts, in = pair.a.shape()[1];
  const int64_t out = pair.b.shape()[0] / count;
  const auto from_a = pair.a.as<float>(), from_b = pair.b.as<float>();
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t part = 0; part < count; ++part) {
      Array a = Array::zeros(DType::kF32, {rank, in}), b = Array::zeros(DType::kF32, {out, rank});
      std::copy_n(from_a.data() + e * rank * in, rank * in, a.as_mutable<float>().data());
      float* to = b.as_mutable<float>().data();
      for (int64_t row = 0; row < out; ++row) {
        const int64_t at = in_turn ? row * count + part : part * out + row;
        for (int64_t k = 0; k < rank; ++k) *to++ = from_b[(at * rank + k) * experts + e];
      }
      const std::string place =
          str(mixtral ? layer.substr(0, layer.rfind(".mlp")) + ".block_sparse_moe" : layer,
              ".experts.", e, ".", parts[static_cast<size_t>(part)], ".");
      tensors[place + std::string(kLoraA)] = std::move(a);
      tensors[place + std::string(kLoraB)] = std::move(b);
      paths[place] = path;
    }
  }
}

}  // namespace lumen::runtime
