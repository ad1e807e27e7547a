#include "lib/runtime/adapters/stored_layout.h"

#include <algorithm>
#include <cmath>

#include "lib/io/backbone_names.h"
#include "lib/io/fused_experts.h"
#include "lib/io/head_norms.h"
#include "lib/io/model_files.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/latent_attention.h"
#include "lib/nn/rope.h"
#include "lib/runtime/adapters/fused_inputs.h"
#include "lib/runtime/adapters/lora.h"

namespace lumen::runtime {
namespace {

constexpr const char* kOffset = "rms_norm_offset";
constexpr std::string_view kLogRate = ".A_log", kRate = ".A";  // of a Gated DeltaNet or Mamba-2

// The experts as files have them, where those have one tensor for all of a layer.
void fuse_experts(NamedArrays& tensors, const io::Json& config) {
  if (io::experts_form(config) == io::ExpertsForm::kEachItsOwn) return;
  for (auto& [name, array] : tensors) {
    if (array.dtype() == DType::kF32 || io::fused_name(config, name).empty()) continue;
    array = nn::float32_copy(array);
  }
  io::join_experts(config, tensors);
}

// GGUF's A under the name and in the form of Hugging Face.
void name_log_rates(NamedArrays& tensors) {
  NamedArrays named;
  for (auto& [name, array] : tensors) {
    if (const RateForm form = rate_form(name, false); form != RateForm::kAsItIs) {
      named.emplace(other_rate_name(name), with_rate_form(array, form));
    }
  }
  std::erase_if(tensors, [](const auto& tensor) {
    return rate_form(tensor.first, false) != RateForm::kAsItIs;
  });
  tensors.merge(named);
}

}  // namespace

RateForm rate_form(std::string_view name, bool to_gguf) {
  if (name.ends_with(to_gguf ? kLogRate : kRate)) return to_gguf ? RateForm::kRate : RateForm::kLog;
  return RateForm::kAsItIs;
}

std::string other_rate_name(std::string_view name) {
  const bool is_log = name.ends_with(kLogRate);
  name.remove_suffix((is_log ? kLogRate : kRate).size());
  return str(name, is_log ? kRate : kLogRate);
}

Array with_rate_form(const Array& array, RateForm form) {
  if (form == RateForm::kAsItIs) return array;
  Array result = nn::float32_copy(array);
  for (float& number : result.as_mutable<float>()) {
    number = form == RateForm::kRate ? -std::exp(number) : std::log(-number);
  }
  return result;
}

double norm_shift(const io::Json& config, std::string_view name, double offset) {
  if (io::find_value(config, kOffset) == nullptr || !name.ends_with("norm.weight") ||
      name.ends_with("linear_attn.norm.weight")) {
    return 0;
  }
  return io::get_number(config, kOffset, 0, 1) - offset;
}

Array shifted(const Array& array, double shift) {
  Array result = nn::float32_copy(array);
  for (float& number : result.as_mutable<float>()) number += static_cast<float>(shift);
  return result;
}

bool to_hugging_face(NamedArrays& tensors, io::Json& config) {
  reorder_heads_and_rows(tensors, config, false);
  for (auto& [name, array] : tensors) {
    if (const double shift = norm_shift(config, name, 1); shift != 0) array = shifted(array, shift);
  }
  name_log_rates(tensors);
  if (nn::conv1d_order(config) == nn::WeightOrder::kOutIn) {
    nn::turn_conv1d_weights(config, tensors);
  }
  if (nn::has_inputs_apart(config)) join_inputs(config, tensors, nullptr);
  nn::join_latent_rows(tensors);
  fuse_experts(tensors, config);
  io::split_head_norms(tensors);
  if (io::has_own_names(config)) {
    NamedArrays named;
    for (auto& [name, array] : tensors) {
      named.emplace(io::stored_name(config, name), std::move(array));
    }
    tensors = std::move(named);
  }
  const bool is_said = nn::set_rope_scaling(tensors, config);
  if (is_said) {
    std::erase_if(tensors, [](const auto& tensor) { return nn::is_rope_tensor(tensor.first); });
  }
  erase_added_keys(config);
  return is_said;
}

namespace {

// The rotary settings of Gemma 4, LFM3, Mellum and Laguna as transformers reads them: of each kind
// of layers. Those of an Apertus without scaling, which it takes for Llama 3's if nothing is said.
// What Phi-3.5-MoE multiplies cos and sin by under its own names.
void nest_rope_parameters(io::Json& config) {
  const std::string type = io::get_string(config, "model_type", "");
  if (type == "phimoe" && io::find_value(config, "rope_scaling") != nullptr) {
    io::Json& scaling = config["rope_scaling"];
    const double factor = io::get_number(scaling, "attention_factor", 1e-6, 1e6, 1);
    for (const char* key : {"short_mscale", "long_mscale"}) scaling[key] = factor;
  }
  if (type == "apertus" && io::find_value(config, "rope_scaling") == nullptr) {
    config["rope_parameters"] = {{"rope_type", "default"},
                                 {"rope_theta", io::Json(config["rope_theta"])}};
  }
  const bool is_laguna = type == "laguna";
  if (!type.starts_with("gemma4") && type != "lfm3" && type != "mellum" && !is_laguna) return;
  io::Json global = config["rope_scaling"];
  if (!global.is_object()) global = {{"rope_type", "default"}};
  global["rope_theta"] = io::Json(config["rope_theta"]);
  io::Json local = {{"rope_type", "default"},
                    {"rope_theta", io::Json(config["rope_local_base_freq"])}};
  if (is_laguna) {
    global["partial_rotary_factor"] = io::get_number(config, "partial_rotary_factor", 0, 1, 1);
    local["partial_rotary_factor"] = io::get_number(config, "local_rotary_factor", 0, 1, 1);
  }
  config["rope_parameters"] = {{"full_attention", global}, {"sliding_attention", local}};
  for (const char* key : {"rope_scaling", "rope_theta", "rope_local_base_freq"}) config.erase(key);
  if (!is_laguna) return;
  for (const char* key : {"partial_rotary_factor", "local_rotary_factor"}) config.erase(key);
}

// The language model of Qwen-VL alone is what transformers has by another name.
void name_as_text_model(io::Json& config) {
  constexpr std::pair<std::string_view, const char*> kTypes[] = {
      {"qwen2_vl_text", "qwen2"},
      {"qwen2_5_vl_text", "qwen2"},
      {"qwen3_vl_text", "qwen3"},
      {"qwen3_vl_moe_text", "qwen3_moe"}};
  const std::string type = io::get_string(config, "model_type", "");
  for (const auto& [seeing, text] : kTypes) {
    if (type != seeing) continue;
    config["model_type"] = text;
    config.erase("rope_parameters");  // as rope_theta and rope_scaling say
  }
}

}  // namespace

void erase_added_keys(io::Json& config) {
  nest_rope_parameters(config);
  name_as_text_model(config);
  io::erase_lumen_keys(config);
  config.erase("mtp_num_hidden_layers");
  constexpr const char* kRmsEpsilon = "rms_norm_eps";
  if (io::norm_epsilon_key(io::get_string(config, "model_type", "")) != kRmsEpsilon) {
    config.erase(kRmsEpsilon);
  }
  io::restore_own_keys(config);
}

}  // namespace lumen::runtime
