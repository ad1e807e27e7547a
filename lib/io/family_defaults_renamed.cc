// Families whose config.json calls what all have otherwise than Llama's, and the way back.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/family_completions.h"
#include "lib/io/model_files.h"

namespace lumen::io {
namespace {

struct KeyNames {
  const char *own, *usual;
};
constexpr KeyNames kGpt2Keys[] = {
    {"n_embd", "hidden_size"},         {"n_layer", "num_hidden_layers"},
    {"n_head", "num_attention_heads"}, {"n_positions", "max_position_embeddings"},
    {"n_inner", "intermediate_size"},  {"activation_function", "hidden_act"}};
// GPT-2's activation keeps its name.
constexpr std::span kSizes = std::span(kGpt2Keys).first(5);
constexpr KeyNames kGptNeoxKeys[] = {{"rotary_pct", "partial_rotary_factor"},
                                     {"rotary_emb_base", "rope_theta"}};
constexpr KeyNames kExaoneKeys[] = {{"num_layers", "num_hidden_layers"},
                                    {"activation_function", "hidden_act"}};
constexpr KeyNames kFalconKeys[] = {{"n_embed", "hidden_size"},
                                    {"n_layer", "num_hidden_layers"},
                                    {"n_head", "num_attention_heads"},
                                    {"n_head_kv", "num_kv_heads"},
                                    {"ffn_hidden_size", "intermediate_size"},
                                    {"activation", "hidden_act"},
                                    {"bias", "attention_bias"}};
// The first four are those of the first files.
constexpr std::span kNewerFalconKeys = std::span(kFalconKeys).last(3);
constexpr KeyNames kBloomKeys[] = {{"n_embed", "hidden_size"},
                                   {"n_layer", "num_hidden_layers"},
                                   {"n_head", "num_attention_heads"},
                                   {"seq_length", "max_position_embeddings"}};
// Without the name of the width of the first files.
constexpr std::span kNewerBloomKeys = std::span(kBloomKeys).last(3);
constexpr KeyNames kMptKeys[] = {{"d_model", "hidden_size"},
                                 {"n_layers", "num_hidden_layers"},
                                 {"n_heads", "num_attention_heads"},
                                 {"max_seq_len", "max_position_embeddings"}};
constexpr KeyNames kInternlm3Keys[] = {{"qkv_bias", "attention_bias"}, {"bias", "mlp_bias"}};
constexpr KeyNames kOptKeys[] = {{"ffn_dim", "intermediate_size"},
                                 {"activation_function", "hidden_act"},
                                 {"init_std", "initializer_range"}};

// What a directory of a family calls keys, and which of the usual ones it does not know.
struct OwnKeys {
  std::string_view model_type;
  std::span<const KeyNames> keys;
  std::initializer_list<const char*> unknown = {};
};

// What a family reads by a name of its own goes before what the usual name says, which it does not
// read.
void read_own(std::span<const KeyNames> keys, Json& config) {
  for (const auto& [own, usual] : keys) {
    if (const Json* value = find_value(config, own)) config[usual] = Json(*value);
  }
}

void set_width(Json& config) {
  set_default(config, kWidth, 4 * get_int(config, "hidden_size", 1, limits::kDim));
}

void keys_of_all_heads(Json& config) {
  config.erase("head_dim");
  config["num_key_value_heads"] = Json(config["num_attention_heads"]);
}

}  // namespace

// As GPT2Config has it.
void complete_gpt2(Json& config) {
  read_own(kSizes, config);
  set_defaults(config, {{"hidden_size", 768},
                        {"num_hidden_layers", 12},
                        {"num_attention_heads", 12},
                        {"max_position_embeddings", 1024},
                        {"vocab_size", 50257},
                        {"tie_word_embeddings", true}});
  set_width(config);
}

// As GPTBigCodeConfig has it.
void complete_gpt_bigcode(Json& config) {
  read_own(kGpt2Keys, config);
  set_defaults(config, {{"hidden_act", "gelu_pytorch_tanh"}, {"multi_query", true}});
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) set_default(config, key, 0.1);
  complete_gpt2(config);
  keys_of_all_heads(config);
  if (get_bool(config, "multi_query")) config["num_key_value_heads"] = 1;
}

// As GPTJConfig has it. A rotary_dim of null is all of a head.
void complete_gptj(Json& config) {
  read_own(kGpt2Keys, config);
  set_defaults(config, {{"hidden_size", 4096},
                        {"num_hidden_layers", 28},
                        {"num_attention_heads", 16},
                        {"max_position_embeddings", 2048},
                        {"vocab_size", 50400},
                        {"hidden_act", "gelu_new"},
                        {"tie_word_embeddings", false}});
  set_width(config);
  keys_of_all_heads(config);
  const int64_t head_dim =
      std::max<int64_t>(1, get_int(config, "hidden_size", 1, limits::kDim) /
                               get_int(config, "num_attention_heads", 1, limits::kHeads));
  const bool has_part = find_value(config, "partial_rotary_factor") != nullptr;
  const double part = get_number(config, "partial_rotary_factor", 0, 1, 1);
  set_absent(config, "rotary_dim",
             has_part ? std::llround(part * static_cast<double>(head_dim)) : 64);
  const int64_t rotary_dim = get_int(config, "rotary_dim", 1, head_dim, head_dim);
  config["partial_rotary_factor"] = static_cast<double>(rotary_dim) / static_cast<double>(head_dim);
}

// As BloomConfig has it.
void complete_bloom(Json& config) {
  read_own(kBloomKeys, config);
  set_defaults(config, {{"vocab_size", 250880},
                        {"hidden_size", 64},
                        {"num_hidden_layers", 2},
                        {"num_attention_heads", 8},
                        {"max_position_embeddings", 2048},
                        {"tie_word_embeddings", true}});
  config["hidden_act"] = "gelu_pytorch_tanh";  // whatever it says
  config.erase(kWidth);
  set_width(config);
  keys_of_all_heads(config);
}

// As MptConfig has it.
void complete_mpt(Json& config) {
  read_own(kMptKeys, config);
  set_defaults(config, {{"vocab_size", 50368},
                        {"hidden_size", 2048},
                        {"num_hidden_layers", 24},
                        {"num_attention_heads", 16},
                        {"max_position_embeddings", 2048},
                        {"tie_word_embeddings", true}});
  config["hidden_act"] = "gelu";  // whatever it says
  config.erase(kWidth);
  set_width(config);
  keys_of_all_heads(config);
  if (const int64_t ratio = get_int(config, "expansion_ratio", 1, limits::kDim, 4); ratio != 4) {
    fail(ErrorKind::kUnsupported, "expansion_ratio ", ratio,
         " is not supported for model_type 'mpt': transformers takes it for 4");
  }
  const Json* attention = find_value(config, "attn_config");
  if (attention == nullptr) return;
  if (!attention->is_object()) {
    fail(ErrorKind::kMalformed, "key 'attn_config': found ", describe(attention),
         ", expected an object");
  }
  config["attn_pdrop"] = get_number(*attention, "attn_pdrop", 0, 1, 0);
}

// As GPTNeoXConfig has it.
void complete_gpt_neox(Json& config) {
  constexpr double kMostTheta = 1e12;
  for (const auto& [own, usual] : kGptNeoxKeys) {
    if (find_value(config, own) != nullptr) get_number(config, own, 0, kMostTheta);
  }
  read_own(kGptNeoxKeys, config);
  set_defaults(config, {{"vocab_size", 50432},
                        {"hidden_size", 6144},
                        {"intermediate_size", 24576},
                        {"num_hidden_layers", 44},
                        {"num_attention_heads", 64},
                        {"hidden_act", "gelu"},
                        {"max_position_embeddings", 2048},
                        {"partial_rotary_factor", 0.25},
                        {"attention_bias", true},
                        {"tie_word_embeddings", false}});
  keys_of_all_heads(config);
}

// As ExaoneConfig has it.
void complete_exaone(Json& config) {
  read_own(kExaoneKeys, config);
  set_defaults(config, {{"vocab_size", 102400},
                        {"hidden_size", 4096},
                        {"intermediate_size", 14336},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"max_position_embeddings", 4096},
                        {"rope_theta", 500000},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 8);  // null is as many as heads
}

// As FalconConfig has it.
void complete_falcon(Json& config) {
  read_own(kFalconKeys, config);
  set_defaults(config, {{"vocab_size", 65024},
                        {"hidden_size", 4544},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 71},
                        {"hidden_act", "gelu"},
                        {"attention_bias", false},
                        {"new_decoder_architecture", false},
                        {"multi_query", true},
                        {"tie_word_embeddings", true}});
  set_width(config);
  keys_of_all_heads(config);
  const int64_t kv_heads = get_int(config, "num_kv_heads", 1, limits::kHeads,
                                   get_int(config, "num_attention_heads", 1, limits::kHeads));
  const bool grouped = get_bool(config, "new_decoder_architecture");
  config["num_key_value_heads"] = !grouped && get_bool(config, "multi_query") ? 1 : kv_heads;
}

// As InternLM3Config has it, which has two names for biases that must agree.
void complete_internlm3(Json& config) {
  const bool bias = get_bool(config, "bias", get_bool(config, "mlp_bias", false));
  const bool of_qkv = get_bool(config, "qkv_bias", get_bool(config, "attention_bias", bias));
  if (of_qkv != bias) {
    fail(ErrorKind::kUnsupported, "qkv_bias ", of_qkv, " with bias ", bias,
         " is not supported: queries, keys, values and what attention gives have a bias, or none");
  }
  read_own(kInternlm3Keys, config);
  set_defaults(config, {{"vocab_size", 128512},
                        {"hidden_size", 4096},
                        {"intermediate_size", 10240},
                        {"num_hidden_layers", 48},
                        {"num_attention_heads", 32},
                        {"head_dim", 128},
                        {"max_position_embeddings", 32768},
                        {"rms_norm_eps", 1e-5},
                        {"attention_bias", bias},
                        {"mlp_bias", bias},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 2);  // null is as many as heads
}

// As OPTConfig has it.
void complete_opt(Json& config) {
  read_own(kOptKeys, config);
  set_defaults(config, {{"vocab_size", 50272},
                        {"hidden_size", 768},
                        {"intermediate_size", 3072},
                        {"num_hidden_layers", 12},
                        {"num_attention_heads", 12},
                        {"max_position_embeddings", 2048},
                        {"hidden_act", "relu"},
                        {"dropout", 0.1},
                        {"tie_word_embeddings", true}});
  config["rms_norm_eps"] = 1e-5;
  keys_of_all_heads(config);
}

void restore_own_keys(Json& config) {
  const std::initializer_list<const char*> of_llama = {
      "num_key_value_heads", "head_dim",       "rope_theta", "rope_scaling",
      "rope_interleaved",    "attention_bias", "mlp_bias"};
  const OwnKeys families[] = {
      {"bloom",
       kNewerBloomKeys,
       {"intermediate_size", "num_key_value_heads", "head_dim", "rope_theta", "rope_scaling",
        "attention_bias", "mlp_bias"}},
      {"mpt",
       kMptKeys,
       {"attn_pdrop", "intermediate_size", "num_key_value_heads", "head_dim", "rope_theta",
        "rope_scaling", "attention_bias", "mlp_bias"}},
      {"exaone", kExaoneKeys, {"attention_bias", "mlp_bias"}},
      {"falcon", kNewerFalconKeys, {"num_key_value_heads", "head_dim", "mlp_bias"}},
      {"gpt2", kSizes, of_llama},
      {"gpt_bigcode", kGpt2Keys, of_llama},
      {"gpt_neox",
       kGptNeoxKeys,
       {"rope_theta", "partial_rotary_factor", "num_key_value_heads", "head_dim", "mlp_bias"}},
      {"gptj",
       kGpt2Keys,
       {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "partial_rotary_factor",
        "attention_bias", "mlp_bias"}},
      {"internlm3", kInternlm3Keys},
      {"olmo", {}, {"rms_norm_eps", "mlp_bias"}},
      {"recurrent_gemma", {}, {"layer_types"}},
      {"opt",
       kOptKeys,
       {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling", "rms_norm_eps",
        "attention_bias", "mlp_bias"}}};
  if (const Json* has_layer_norms = find(config, "has_layer_norms")) {  // of Command A+
    if (*has_layer_norms == true) config["rms_norm_eps"] = nullptr;
    config.erase("has_layer_norms");
  }
  if (const Json* widths = find(config, kWidths)) {
    config[kWidth] = Json(*widths);
    config.erase(kWidths);
  }
  const std::string type = get_string(config, "model_type", "");
  for (const OwnKeys& family : families) {
    if (family.model_type != type) continue;
    for (const auto& [own, usual] : family.keys) {
      if (const Json* value = find(config, usual)) config[own] = Json(*value);
      config.erase(usual);
    }
    for (const char* key : family.unknown) config.erase(key);
  }
}

}  // namespace lumen::io
