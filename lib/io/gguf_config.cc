// The config of a model in the keys of GGUF, and back.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_architecture.h"
#include "lib/io/gguf_families.h"
#include "lib/io/model_formats.h"

namespace lumen::io {
namespace {

constexpr double kMaxNumber = 1e6;

constexpr Renaming kYarnOriginal = {"rope.scaling.original_context_length",
                                    "original_max_position_embeddings"};
constexpr Renaming kYarnNumbers[] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                     {"rope.scaling.yarn_beta_slow", "beta_slow"}};
// Multiplies the default of Hugging Face's attention_factor, which is given in its place.
constexpr std::string_view kYarnAttention = "rope.scaling.attn_factor";

double yarn_attention(double factor) {
  return factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}

// {rope_type, factor, …}, or null. Scaling of Llama 3 is not in keys but in rope_freqs.weight.
Json rope_scaling(const ArchitectureKeys& keys) {
  const std::string type(
      keys.text("rope.scaling.type", keys.has("rope.scale_linear") ? "linear" : "none"));
  if (type == "none" || type.empty()) return nullptr;
  const double linear = keys.number("rope.scale_linear", 1.0);
  Json scaling = {{"rope_type", type}, {"factor", keys.number("rope.scaling.factor", linear)}};
  if (keys.has(kYarnOriginal.gguf)) {
    scaling[std::string(kYarnOriginal.hugging_face)] =
        keys.integer(kYarnOriginal.gguf, limits::kContext);
  }
  for (const Renaming& number : kYarnNumbers) {
    if (keys.has(number.gguf)) scaling[std::string(number.hugging_face)] = keys.number(number.gguf);
  }
  if (keys.has(kYarnAttention)) {
    scaling["attention_factor"] =
        keys.number(kYarnAttention) * yarn_attention(scaling["factor"].get<double>());
  }
  return scaling;
}

constexpr const char* kRmsEpsilon = "attention.layer_norm_rms_epsilon";

const char* epsilon_key(const Architecture& architecture, const Json& config = Json::object()) {
  const bool has_layer_norms =
      architecture.has_layer_norms || get_bool(config, "has_layer_norms", false);
  return has_layer_norms ? kNormEpsilon : kRmsEpsilon;
}

// Some files of Nemotron-H have the other key alone.
double epsilon(const ArchitectureKeys& keys, const Architecture& architecture) {
  const char* const own = epsilon_key(architecture);
  return keys.number(!keys.has(own) && keys.has(kNormEpsilon) ? kNormEpsilon : own);
}

int64_t vocabulary(const GgufFile& file, const ArchitectureKeys& keys) {
  const auto limit = static_cast<int64_t>(limits::kVocab);
  if (keys.has("vocab_size")) return keys.integer("vocab_size", limit);
  if (const GgufTensor* embedding = file.find_tensor("token_embd.weight")) {
    return embedding->shape[0];
  }
  const auto tokens = file.metadata.find("tokenizer.ggml.tokens");
  return tokens ? static_cast<int64_t>(tokens->size()) : 0;
}

// Sets the keys of `scaling` (config.json's rope_scaling). Throws Error(kUnsupported) for a type
// that they cannot say. `may_not_truncate`: the architecture says whether yarn truncates.
void write_rope_scaling(const Json& scaling, bool may_not_truncate, const KeyWriter& keys) {
  const std::string type = get_string(scaling, "rope_type", "default");
  // Llama 3's and Gemma 4's are tensors, and "dynamic" changes nothing within the trained context
  // but the base.
  const bool in_tensor = type == "llama3" || type == "proportional";
  if (type == "default" || in_tensor || type == "dynamic") return;
  const bool long_factors = type == "longrope";  // which are tensors
  if (type != "linear" && type != "yarn" && !long_factors) {
    fail(
        ErrorKind::kUnsupported, "rope_scaling type ", quoted(type),
        " cannot be written as GGUF; possible are linear, yarn, llama3, longrope, proportional and "
        "dynamic");
  }
  double attention = 1;  // what attention_factor is divided by in the file
  if (!long_factors) {
    const double factor = get_number(scaling, "factor", 1e-6, kMaxNumber);
    keys.set("rope.scaling.type", type);
    keys.number("rope.scaling.factor", factor);
    if (type == "linear") return;
    if (!may_not_truncate && !get_bool(scaling, "truncate", true)) {
      fail(ErrorKind::kUnsupported,
           "rope_scaling yarn with truncate false cannot be written as GGUF: there is no key for "
           "it");
    }
    attention = yarn_attention(factor);
  }
  if (find_value(scaling, kYarnOriginal.hugging_face) != nullptr) {
    keys.integer(kYarnOriginal.gguf,
                 get_int(scaling, kYarnOriginal.hugging_face, 1, limits::kContext));
  }
  for (const Renaming& number : kYarnNumbers) {
    if (find_value(scaling, number.hugging_face) == nullptr) continue;
    keys.number(number.gguf, get_number(scaling, number.hugging_face, 1e-6, kMaxNumber));
  }
  if (find_value(scaling, "attention_factor") != nullptr) {
    keys.number(kYarnAttention,
                get_number(scaling, "attention_factor", 1e-6, kMaxNumber) / attention);
  }
}

// A count that some layers have and the others, with 0, do not; at least 1.
int64_t largest(const ArchitectureKeys& keys, std::string_view key, int64_t layers, int64_t hi) {
  const std::vector<int64_t> counts = keys.per_layer(key, layers, hi);
  return std::max<int64_t>(1, *std::max_element(counts.begin(), counts.end()));
}

}  // namespace

Json config_of_gguf(const GgufFile& file) {
  const Architecture& architecture =
      find_architecture(file.metadata.get_string("general.architecture"));
  const ArchitectureKeys keys(file, architecture.name);
  if (expert_count(keys) > 0) require_experts_known(architecture);
  const int64_t dim = keys.integer("embedding_length", limits::kDim);
  const LayerKeys form = architecture.keys;
  const bool attends = form != LayerKeys::kNone;  // or files have 0 heads
  const int64_t layers = keys.integer("block_count", limits::kLayers);
  const int64_t heads = form == LayerKeys::kQueries
                            ? largest(keys, kQueryHeads, layers, limits::kHeads)
                        : attends ? keys.uniform(kQueryHeads, limits::kHeads)
                                  : 1;
  int64_t kv_heads = heads;
  const bool unlike = form == LayerKeys::kUnlike, single = form == LayerKeys::kSingle;
  const bool some = form == LayerKeys::kSome || form == LayerKeys::kSomeLatent;
  if (some || single || unlike) {  // of the layers with attention, or some
    kv_heads = largest(keys, kKvHeads, layers, limits::kHeads);
  } else if (attends && keys.has(kKvHeads)) {
    kv_heads = keys.uniform(kKvHeads, limits::kHeads);
  }
  const int64_t head_dim = keys.integer_or(dim / heads, "attention.key_length", limits::kDim);
  const int64_t value_dim = keys.integer_or(head_dim, "attention.value_length", limits::kDim);
  const int64_t rotary_dim = keys.integer_or(head_dim, "rope.dimension_count", limits::kDim);
  const bool rotates_all = rotary_dim == head_dim;
  const bool reordered = architecture.rotary == RotaryRows::kPairsInGguf;
  // Heads of latent attention have a part that rotates, and sizes of their own.
  const bool latent = form == LayerKeys::kLatent || form == LayerKeys::kSomeLatent;
  const bool alike = value_dim == head_dim && rotary_dim <= head_dim;
  if (!latent && (!alike || (reordered && !rotates_all))) {
    fail(ErrorKind::kUnsupported, "keys of size ", head_dim, " with values of size ", value_dim,
         " and rotation of ", rotary_dim, " elements: only equal sizes are supported");
  }
  // Where all layers have experts some files tell of those alone.
  const bool has_length = keys.has(kLength) || !keys.has(kExpertLength);
  const char* const length = has_length ? kLength : kExpertLength;
  Json config = {
      {"model_type", architecture.model_type},
      {"hidden_size", dim},
      {"intermediate_size", unlike               ? keys.per_layer(length, layers, limits::kDim)[0]
                            : single || !attends ? largest(keys, length, layers, limits::kDim)
                                                 : keys.uniform(length, limits::kDim)},
      {"num_hidden_layers", layers},
      {"num_attention_heads", heads},
      {"num_key_value_heads", kv_heads},
      {"head_dim", latent ? rotary_dim : head_dim},
      {"rms_norm_eps", epsilon(keys, architecture)},
      {"rope_theta", keys.number("rope.freq_base", 10000.0)},
      {"rope_scaling", rope_scaling(keys)},
      {"rope_interleaved", architecture.rotary == RotaryRows::kPairsInGguf ||
                               architecture.rotary == RotaryRows::kPairs},
      {"vocab_size", vocabulary(file, keys)},
      {"max_position_embeddings", keys.integer("context_length", limits::kContext)},
      {"tie_word_embeddings", file.find_tensor("output.weight") == nullptr},
      {"attention_bias", keys.has_in_layers("attn_q.bias") || keys.has_in_layers("attn_qkv.bias")},
      {"mlp_bias", keys.has_in_layers("ffn_up.bias")},
  };
  config[norm_epsilon_key(architecture.model_type)] = Json(config["rms_norm_eps"]);
  if (!rotates_all && !latent) {
    config["partial_rotary_factor"] =
        static_cast<double>(rotary_dim) / static_cast<double>(head_dim);
  }
  if (file.find_tensor("rope_factors_short.weight") != nullptr) {
    const int64_t context = config["max_position_embeddings"].get<int64_t>();
    config["rope_scaling"] = {{"rope_type", "longrope"},
                              {kYarnOriginal.hugging_face,
                               keys.integer_or(context, kYarnOriginal.gguf, limits::kContext)},
                              {"attention_factor", keys.number(kYarnAttention, 1.0)}};
  }
  read_family_keys(architecture.name, keys, config);
  return config;
}

void set_gguf_config(const Json& config, GgufWriter& writer) {
  const std::string name = gguf_architecture(config);
  const Architecture& architecture = find_architecture(name);
  writer.set("general.architecture", name);
  const KeyWriter keys(name, writer);
  const int64_t head_dim = get_int(config, "head_dim", 1, limits::kDim);
  const double rotated = get_number(config, "partial_rotary_factor", 0, 1, 1);
  int64_t key_dim = head_dim, value_dim = head_dim;
  const LayerKeys form = architecture.keys;
  const bool latent = form == LayerKeys::kLatent, unlike = form == LayerKeys::kUnlike;
  if (unlike) key_dim = value_dim = get_int(config, "global_head_dim", 1, limits::kDim);
  if (latent) {
    key_dim += get_int(config, "qk_nope_head_dim", 1, limits::kDim);
    value_dim = get_int(config, "v_head_dim", 1, limits::kDim);
  } else if (form == LayerKeys::kSomeLatent) {  // of what caches hold
    value_dim = get_int(config, "kv_lora_rank", 1, limits::kDim);
    key_dim += value_dim;
  }
  const bool attends = form != LayerKeys::kNone;
  const std::pair<const char*, int64_t> integers[] = {
      {"context_length", get_int(config, "max_position_embeddings", 1, limits::kContext)},
      {"embedding_length", get_int(config, "hidden_size", 1, limits::kDim)},
      {"block_count", get_int(config, "num_hidden_layers", 1, limits::kLayers)}};
  for (const auto& [key, value] : integers) keys.integer(key, value);
  if (form != LayerKeys::kQueries) {
    keys.integer(kQueryHeads,
                 attends ? get_int(config, "num_attention_heads", 1, limits::kHeads) : 0);
  }
  if (attends) {
    keys.integer("attention.key_length", key_dim);
    keys.integer("attention.value_length", value_dim);
  }
  const bool single = form == LayerKeys::kSingle;
  if (!single && !unlike) {
    // Of Llama 4 and Command A+ the usual key is of experts.
    const char* length = "intermediate_size";
    for (const char* own : {"intermediate_size_mlp", "prefix_dense_intermediate_size"}) {
      if (find_value(config, own) != nullptr) length = own;
    }
    keys.integer(kLength, attends ? get_int(config, length, 1, limits::kDim) : 0);
  }
  if (form == LayerKeys::kAlike || form == LayerKeys::kQueries || latent) {
    // Of latent attention each head has keys of its own, whatever is said.
    const char* const count = latent ? "num_attention_heads" : "num_key_value_heads";
    keys.integer(kKvHeads, get_int(config, count, 1, limits::kHeads));
  }
  keys.number(epsilon_key(architecture, config), get_number(config, "rms_norm_eps", 0, 1));
  const auto rotary_dim =
      static_cast<int64_t>(static_cast<double>(unlike ? key_dim : head_dim) * rotated + 1e-6);
  if (attends && architecture.rotary != RotaryRows::kNone) {
    keys.integer("rope.dimension_count", rotary_dim);
    keys.number("rope.freq_base", rope_base(config, rotary_dim));
  }
  keys.integer("vocab_size",
               get_int(config, "vocab_size", 1, static_cast<int64_t>(limits::kVocab)));
  if (const Json* found = find_value(config, "rope_scaling")) {
    Json scaling = *found;
    // Of which readers have another idea.
    if (name == "deepseek2" || name == "mistral4") scaling.erase("attention_factor");
    write_rope_scaling(scaling, name == "gpt-oss", keys);
  }
  write_family_keys(name, config, keys);
}

}  // namespace lumen::io
