// What the tests of lumen-convert share: models to convert, and what comes out.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/layer_windows.h"
#include "lib/io/model_files.h"
#include "lib/io/write_safetensors.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/text/train/train_tokenizer.h"
#include "models/model.h"

namespace lumen::runtime {

inline constexpr std::string_view kTrainingText =
    "The cat and the dog and the bird. What does the cat say to the other 12 birds?\n"
    "The story of the beginning, the end and the other end: the birds say what the cats say.\n";
inline constexpr const char* kTurnTemplate =
    "{{ bos_token }}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// Whether GGUF has no architecture for models of this type.
inline bool is_unknown_to_gguf(std::string_view type) {
  constexpr std::string_view kTypes[] = {
      "gptj",       "opt",         "helium",      "cwm",   "lfm3",   "nanochat",
      "vaultgemma", "olmo_hybrid", "hyperclovax", "bamba", "zamba2", "recurrent_gemma"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

// The first small config of the models of this type.
inline io::Json tiny_config(std::string_view type) {
  const auto all = models::find_model_def({{"model_type", type}}).tiny_configs();
  return *std::find_if(all.begin(), all.end(),
                       [&](const io::Json& one) { return one["model_type"] == type; });
}

// Gives the layers the windows and rotations that all GGUF files of the architecture have.
inline void make_sayable(io::Json& config) {
  const std::string type = io::get_string(config, "model_type");
  if (is_unknown_to_gguf(type)) return;
  const int64_t layers = io::get_int(config, "num_hidden_layers", 1, 100);
  if (config.contains("linear_num_key_heads")) {
    for (const char* key : {"attention_bias", "linear_heads_tiled", "linear_inputs_apart"}) {
      config.erase(key);
    }
    config["linear_value_head_dim"] = config["linear_key_head_dim"];
  } else if (type.starts_with("lfm2")) {
    config.erase("conv_bias");
    if (type == "lfm2_moe") {
      config.update(
          {{"norm_topk_prob", true}, {"use_expert_bias", true}, {"routed_scaling_factor", 1.0}});
    }
  } else if (type == "gemma4_text") {
    // says all of them
  } else if (type == "gemma3n_text") {
    config.update({{"layer_types", io::periodic_layer_types(layers, 5)},
                   {"num_kv_shared_layers", std::max<int64_t>(0, layers - 20)},
                   {"activation_sparsity_pattern", std::vector<double>(layers, 0.95)},
                   {"final_logit_softcapping", 30},
                   {"altup_active_idx", 0},
                   {"altup_correct_scale", true}});
    for (const char* key : {"attention_bias", "intermediate_sizes"}) config.erase(key);
  } else if (type == "kimi_linear") {
    config.update({{"linear_num_heads", config["num_attention_heads"]}, {"norm_topk_prob", true}});
    config.erase("attention_bias");
  } else if (type == "mamba" || type == "falcon_mamba" || type == "jamba") {
    if (type != "jamba") {
      config["intermediate_size"] = 2 * io::get_int(config, "hidden_size", 1, 100);
    }
    for (const char* key :
         {"use_bias", "use_conv_bias", "mamba_proj_bias", "mamba_conv_bias", "mixer_rms_eps"}) {
      config.erase(key);
    }
  } else if (type == "mamba2") {
    for (const char* key : {"use_bias", "time_step_limit"}) config.erase(key);
  } else if (type == "nemotron_h") {
    for (const char* key : {"use_bias", "time_step_limit"}) config.erase(key);
    if (config.contains("num_experts")) {
      config.erase("mlp_bias");
      config["intermediate_size"] =
          config["moe_intermediate_size"];  // of layers that are not there
      for (io::Json& kind : config["layers_block_type"]) {
        if (kind == "mlp") kind = "moe";
      }
    }
  } else if (type == "falcon_h1") {
    for (const char* key :
         {"mamba_proj_bias", "projectors_bias", "time_step_limit", "embedding_multiplier",
          "lm_head_multiplier", "key_multiplier", "attention_in_multiplier",
          "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "ssm_multipliers",
          "mlp_multipliers"}) {  // the last are in the weights
      config.erase(key);
    }
    if (config.contains("mamba_rms_norm")) config["mamba_norm_before_gate"] = false;
  } else if (type == "granitemoehybrid") {
    config["layer_types"][0] = "mamba";  // or it is a "granite"
    if (config["num_local_experts"] == 0) config["num_experts_per_tok"] = 0;
    for (const char* key : {"mamba_proj_bias", "time_step_limit", "linear_inputs_apart"}) {
      config.erase(key);
    }
  } else if (type == "laguna") {
    for (int64_t i = 0; i < layers; ++i) {
      config["layer_types"][static_cast<size_t>(i)] =
          i % 4 == 0 ? "full_attention" : "sliding_attention";
    }
    for (const char* key : {"attention_bias", "moe_router_logit_softcapping"}) config.erase(key);
  } else if (config.contains("layer_types") && type != "ministral" && !type.starts_with("qwen")) {
    const int64_t period = type == "gemma3_text"                   ? 6
                           : type == "gemma2" || type == "gpt_oss" ? 2
                                                                   : 4;
    for (int64_t i = 0; i < layers; ++i) {
      config["layer_types"][static_cast<size_t>(i)] =
          (i + 1) % period == 0 ? "full_attention" : "sliding_attention";
    }
  } else if (type != "ministral") {
    config.erase("layer_types");
    if (type.starts_with("qwen")) config.erase("sliding_window");
  }
  if (type == "qwen2_moe" || type == "qwen3_moe" || type == "qwen3_next") {
    for (const char* key : {"decoder_sparse_step", "mlp_only_layers"}) config.erase(key);
    config["norm_topk_prob"] = type != "qwen2_moe";
  }
  if (type == "olmoe") {
    config["norm_topk_prob"] = false;
    config["num_key_value_heads"] = config["num_attention_heads"];
    for (const char* key : {"attention_bias", "clip_qkv"}) config.erase(key);
  }
  if (type == "exaone4") {
    config.erase("layer_types");
    config["sliding_window"] = nullptr;
  }
  if (type == "gpt2") {
    config["max_position_embeddings"] = 64;  // as many as the tests' texts are long
    for (const char* key : {"activation_function", "scale_attn_weights",
                            "scale_attn_by_inverse_layer_idx", "conv1d_out_in"}) {
      config.erase(key);
    }
  }
  if (type == "nemotron" || type == "stablelm" || type == "apertus") {
    config["tie_word_embeddings"] = false;
  }
  if (type == "phimoe") {
    config.update({{"tie_word_embeddings", false},
                   {"attention_bias", true},
                   {"lm_head_bias", true},
                   {"router_jitter_noise", 0.01}});
    config.erase("sliding_window");
  }
  if (type == "gpt_neox") {
    config.update(
        {{"tie_word_embeddings", false}, {"attention_bias", true}, {"hidden_act", "gelu"}});
    config.erase("linear_heads_tiled");
  }
  if (type == "starcoder2") config.erase("use_bias");
  if (type == "olmo" || type == "falcon") config.erase("attention_bias");
  for (const char* key : {"parallel_attn", "scale_attn_weights"}) config.erase(key);
  if (type == "falcon" || type == "bloom") config.erase("linear_heads_tiled");
  if (type == "bitnet") {
    config.update({{"hidden_act", "silu"}, {"tie_word_embeddings", true}});
    config.erase("attention_bias");
  }
  if (type == "afmoe") {
    config["mup_enabled"] = true;
    config.erase("attention_bias");
  }
  if (type == "llama4_text") {
    for (const char* key : {"attention_chunk_size", "floor_scale", "attn_scale", "use_qk_norm"}) {
      config.erase(key);
    }
  }
  if (type == "gpt_bigcode") {
    config.update({{"multi_query", true}, {"num_key_value_heads", 1}});
  }
  if (type == "arcee" || type == "apertus") {
    for (const char* key : {"attention_bias", "mlp_bias"}) config.erase(key);
  }
  if (type.starts_with("cohere")) {
    config["tie_word_embeddings"] = true;
    for (const char* key : {"attention_bias", "use_qk_norm"}) config.erase(key);
  }
  if (type == "bailing_moe_v2") {
    config["tie_word_embeddings"] = false;
    for (const char* key : {"use_bias", "use_qkv_bias", "use_qk_norm"}) config.erase(key);
  }
  if (type.starts_with("hunyuan") || type == "dots1") config.erase("attention_bias");
  if (type == "dots1") config["num_key_value_heads"] = config["num_attention_heads"];
  if (type == "dots1") config["sliding_window"] = nullptr;
  if (type == "seed_oss" || type.starts_with("ernie4_5")) {
    for (const char* key : {"attention_out_bias", "mlp_bias", "use_bias", "moe_norm_min"}) {
      config.erase(key);
    }
  }
  if (type == "gpt_oss") config["swiglu_limit"] = 7;
  if (type.ends_with("_swa")) {
    config["layer_rope_theta"] = {0, 1e4, 1e4};
    config.erase("shared_intermediate_size");
  }
  if (type == "mellum") {
    config.update({{"norm_topk_prob", true},
                   {"mlp_only_layers", io::Json::array()},
                   {"rope_local_base_freq", config["rope_theta"]}});
    config.erase("mlp_layer_types");
  }
  if (type == "hy_v3") {
    for (const char* key : {"attention_bias", "mlp_bias"}) config.erase(key);
  }
  if (type == "cohere2_moe") {
    config.update({{"shared_expert_combination_strategy", "average"},
                   {"prefix_dense_sliding_window_pattern", 1}});
  }
  if (config.contains("kv_lora_rank")) {
    for (const char* key : {"attention_bias", "rope_interleave"}) config.erase(key);
    if (io::find_value(config, "q_lora_rank") == nullptr) config["q_lora_rank"] = 10;
  }
  constexpr std::string_view kUnbiased[] = {"falcon_h1", "gemma", "olmo2", "olmo3", "smollm3"};
  const auto is_one_of = [&](const auto& types) {
    return std::find(std::begin(types), std::end(types), type) != std::end(types);
  };
  if (is_one_of(kUnbiased) || type.starts_with("qwen3") || type.starts_with("gemma")) {
    config.erase("attention_bias");
  }
  constexpr std::string_view kWholeQueries[] = {
      "glm",      "exaone4", "nemotron",  "cohere",     "cohere2",       "lfm2",
      "lfm2_moe", "olmo",    "olmo2",     "olmo3",      "phi",           "phi3",
      "phimoe",   "qwen2",   "qwen2_moe", "starcoder2", "bailing_moe_v2"};
  if (is_one_of(kWholeQueries) && config.contains("head_dim")) {
    config["hidden_size"] =
        config["head_dim"].get<int64_t>() * config["num_attention_heads"].get<int64_t>();
  }
  config.erase("no_rope_layers");
  if (config.contains("query_pre_attn_scalar")) {
    config["query_pre_attn_scalar"] = config["head_dim"];
  }
}

// A tokenizer trained on kTrainingText, once for all models.
inline const std::vector<text::TokenizerFile>& trained_tokenizer(text::TokenizerKind kind) {
  static std::map<text::TokenizerKind, std::vector<text::TokenizerFile>> made;
  const auto [at, is_new] = made.try_emplace(kind);
  if (is_new) {
    text::TokenizerTraining options;
    options.kind = kind;
    options.vocab_size = 300;
    options.special_tokens = {"<|im_start|>", "<|im_end|>"};
    options.bos = "<|im_start|>";
    options.eos = "<|im_end|>";
    options.chat_template = kTurnTemplate;
    at->second = text::make_tokenizer({kTrainingText}, options);
  }
  return at->second;
}

// A Hugging Face directory with random weights and such a tokenizer.
inline std::string model_directory(const models::ModelDef& def, io::Json config,
                                   text::TokenizerKind kind) {
  const std::string directory = lumen::testing::temporary_directory();
  for (const text::TokenizerFile& file : trained_tokenizer(kind)) {
    io::write_file_atomically(directory + "/" + file.name, file.content);
  }
  config["vocab_size"] = 320;
  if (config.contains("vocab_size_per_layer_input")) config["vocab_size_per_layer_input"] = 320;
  config["rope_interleaved"] = io::rotates_pairs(io::get_string(config, "model_type"));
  const auto parameters = nn::Parameters::random(3);
  const auto model = def.make(config, parameters);
  for (auto& [name, array] : parameters.state_dict()) {
    if (!name.ends_with("altup.correct_output_scale")) continue;  // starts as zeros
    std::ranges::fill(Array(array).as_mutable<float>(), 0.75f);
  }
  io::write_safetensors(directory + "/model.safetensors", parameters.state_dict());
  io::write_file_atomically(directory + "/config.json", config.dump());
  return directory;
}

// A model directory as a GGUF file of float32.
inline std::string converted(const std::string& directory) {
  ConvertOptions options;
  options.model = directory;
  options.output = lumen::testing::temporary_directory() + "/model.gguf";
  options.type = "f32";
  REQUIRE(convert(options) == 0);
  return *options.output;
}

// The same tensors to the bit.
inline void check_same_data(const io::GgufFile& got, const io::GgufFile& want) {
  REQUIRE(got.tensors.size() == want.tensors.size());
  for (const io::GgufTensor& tensor : want.tensors) {
    INFO(tensor.name);
    const io::GgufTensor* const same = got.find_tensor(tensor.name);
    REQUIRE(same != nullptr);
    REQUIRE((same->dtype == tensor.dtype && same->shape == tensor.shape));
    const Array a = want.array(tensor), b = got.array(*same);
    REQUIRE(std::equal(a.data(), a.data() + a.bytes(), b.data(), b.data() + b.bytes()));
  }
}

// Of the last of 40 tokens, with an adapter or without.
inline std::vector<float> logits(const std::string& path, const std::string& adapter = "") {
  LoadOptions options;
  if (!adapter.empty()) options.lora = {adapter};
  options.kv_type = DType::kF32;
  options.threads = 1;
  const auto model = LanguageModel::load(io::open_model(path), options);
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * i % 300);
  const Array array = model->logits(ids);
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

// `model` converted with `options` into a new directory.
inline std::string converted_directory(
    const std::string& model, const std::string& type,
    const std::optional<std::string>& shard_size = std::nullopt) {
  ConvertOptions options;
  options.model = model;
  options.output = lumen::testing::temporary_directory() + "/hf";
  options.type = type;
  options.shard_size = shard_size;
  REQUIRE(convert(options) == 0);
  return *options.output;
}

// Both render and encode alike, and end with the same tokens.
inline void check_same_text(const PromptFormat& a, const PromptFormat& b) {
  const std::string prompt = a.render({{"user", "What does the cat say? 12"}});
  CHECK(b.render({{"user", "What does the cat say? 12"}}) == prompt);
  CHECK(b.encode(prompt) == a.encode(prompt));
  CHECK(b.end_token_ids() == a.end_token_ids());
}

}  // namespace lumen::runtime
