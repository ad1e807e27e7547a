// What files of Gemma 4 say: two kinds of layers, with and without a window, of different sizes.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <vector>

#include "lib/base/limits.h"
#include "lib/io/family_defaults.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char *kLocalKeys = "attention.key_length_swa",
                     *kLocalValues = "attention.value_length_swa",
                     *kLocalRotated = "rope.dimension_count_swa";
constexpr const char* kSharedLayers = "attention.shared_kv_layers";
constexpr const char* kPerLayer = "embedding_length_per_layer_input";
constexpr const char* kCap = "final_logit_softcapping";
constexpr double kUsualCap = 30;  // of files that do not say it
constexpr double kUsualLocalTheta = 10000;

// The count of the layers of this kind, which must be alike.
int64_t count_of(const std::vector<int64_t>& counts, const std::vector<bool>& windowed, bool kind,
                 const char* key) {
  int64_t common = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (windowed[i] != kind) continue;
    if (common == 0) common = counts[i];
    if (counts[i] == common && common > 0) continue;
    fail(ErrorKind::kUnsupported, "key 'gemma4.", key, "': found ", counts[i], " in layer ", i,
         ", expected ", common, " as in the others with", kind ? "" : "out", " a window");
  }
  return common;
}

// Layers without keys of their own may have twice the length.
void read_lengths(const std::vector<int64_t>& lengths, int64_t shared, Json& config) {
  const auto own = std::ssize(lengths) - shared;
  const bool wide = lengths.back() != lengths.front();
  for (int64_t i = 0; i < std::ssize(lengths); ++i) {
    const int64_t expected = lengths.front() * (wide && i >= own ? 2 : 1);
    if (lengths[static_cast<size_t>(i)] == expected) continue;
    fail(ErrorKind::kUnsupported, "key 'gemma4.", kLength, "': found ",
         lengths[static_cast<size_t>(i)], " in layer ", i, ", expected ", expected);
  }
  config["use_double_wide_mlp"] = wide;
}

}  // namespace

void read_gemma4(const ArchitectureKeys& keys, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  const std::vector<bool> windowed = keys.flags(kWindowPattern, layers);
  if (windowed.back()) {
    fail(ErrorKind::kUnsupported, "key 'gemma4.", kWindowPattern,
         "': the last layer has a window, expected one that sees all tokens");
  }
  config["layer_types"] = layer_types_of(windowed);
  config["sliding_window"] = keys.integer(kWindow, limits::kContext);
  const int64_t global_dim = config["head_dim"].get<int64_t>();
  const int64_t local_dim = keys.integer_or(global_dim, kLocalKeys, limits::kDim);
  for (const char* key : {kLocalValues, kLocalRotated}) {
    const int64_t found = keys.integer_or(local_dim, key, limits::kDim);
    if (found == local_dim) continue;
    fail(ErrorKind::kUnsupported, "key 'gemma4.", key, "': found ", found, ", expected ", local_dim,
         " as in ", kLocalKeys);
  }
  config["global_head_dim"] = global_dim;
  config["head_dim"] = local_dim;
  const int64_t heads = config["num_attention_heads"].get<int64_t>();
  std::vector<int64_t> kv_heads(static_cast<size_t>(layers), heads);
  if (keys.has(kKvHeads)) kv_heads = keys.per_layer(kKvHeads, layers, limits::kHeads);
  const int64_t global_heads = count_of(kv_heads, windowed, false, kKvHeads);
  const int64_t local_heads = count_of(kv_heads, windowed, true, kKvHeads);
  config["num_global_key_value_heads"] = global_heads;
  config["num_key_value_heads"] = local_heads > 0 ? local_heads : global_heads;
  config["rope_local_base_freq"] = keys.number(kLocalTheta, kUsualLocalTheta);
  const int64_t shared = keys.has(kSharedLayers) ? keys.integer(kSharedLayers, layers - 1, 0) : 0;
  config["num_kv_shared_layers"] = shared;
  read_lengths(keys.per_layer(kLength, layers, limits::kDim), shared, config);
  config["hidden_size_per_layer_input"] =
      keys.has(kPerLayer) ? keys.integer(kPerLayer, limits::kDim, 0) : 0;
  config["vocab_size_per_layer_input"] = Json(config["vocab_size"]);
  if (expert_count(keys) > 0) {
    read_experts(keys, "num_experts", config);
    config["enable_moe_block"] = true;
    config["top_k_experts"] = Json(config["num_experts_per_tok"]);
    config.erase("num_experts_per_tok");
    config["moe_intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  }
  config[kCap] = keys.number(kCap, kUsualCap);
  // Layers that see all may take what their keys are made of as values.
  const int64_t global = std::find(windowed.begin(), windowed.end(), false) - windowed.begin();
  config["attention_k_eq_v"] = !keys.has_tensor(global, "attn_v.weight");
}

void write_gemma4(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "attention_bias");
  if (find_value(config, kCap) == nullptr) {
    cannot_write("gemma4", "final_logit_softcapping null", "take 30 where there is no key");
  }
  if (!get_bool(config, "tie_word_embeddings", true)) {
    cannot_write("gemma4", "tie_word_embeddings false", "take the embedding as output");
  }
  const int64_t dim = get_int(config, "head_dim", 1, limits::kDim);
  const int64_t length = get_int(config, "intermediate_size", 1, limits::kDim);
  const int64_t kv_heads = get_int(config, "num_key_value_heads", 1, limits::kHeads);
  const int64_t global_heads =
      get_int(config, "num_global_key_value_heads", 1, limits::kHeads, kv_heads);
  const int64_t shared = get_int(config, "num_kv_shared_layers", 0, limits::kLayers, 0);
  const bool wide = get_bool(config, "use_double_wide_mlp", false);
  std::vector<bool> windowed;
  for (const int64_t window : layer_windows(config)) windowed.push_back(window > 0);
  std::vector<int32_t> heads, lengths;
  const int64_t own = std::ssize(windowed) - shared;
  for (int64_t i = 0; i < std::ssize(windowed); ++i) {
    const bool has_window = windowed[static_cast<size_t>(i)];
    heads.push_back(static_cast<int32_t>(has_window ? kv_heads : global_heads));
    lengths.push_back(static_cast<int32_t>(wide && i >= own ? 2 * length : length));
  }
  keys.set(kWindowPattern, windowed);
  keys.integer(kWindow, get_int(config, "sliding_window", 1, limits::kContext));
  if (kv_heads == global_heads) {
    keys.integer(kKvHeads, kv_heads);
  } else {
    keys.set(kKvHeads, heads);
  }
  if (wide) {
    keys.set(kLength, lengths);
  } else {
    keys.integer(kLength, length);
  }
  for (const char* key : {kLocalKeys, kLocalValues, kLocalRotated}) keys.integer(key, dim);
  keys.number(kLocalTheta,
              get_number(config, "rope_local_base_freq", 1e-3, 1e12, kUsualLocalTheta));
  keys.integer(kSharedLayers, shared);
  keys.integer(kPerLayer, get_int(config, "hidden_size_per_layer_input", 0, limits::kDim, 0));
  keys.number(kCap, get_number(config, kCap, 1e-3, 1e6));
  if (!get_bool(config, "enable_moe_block", false)) return;
  Json experts = config;
  rename_key(experts, "top_k_experts", "num_experts_per_tok");
  write_experts(experts, "num_experts", "moe_intermediate_size", keys);
}

}  // namespace lumen::io
