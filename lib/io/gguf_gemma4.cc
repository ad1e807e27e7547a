// What files of Gemma 3n and 4 say: layers with a window and without, of Gemma 4 of different
// sizes, embeddings per layer, and last layers that attend to keys and values of earlier ones.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/limits.h"
#include "lib/base/normal_distribution.h"
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

// How many of the last layers attend to keys and values of earlier ones.
int64_t read_shared_layers(const ArchitectureKeys& keys, int64_t unsaid, Json& config) {
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  const int64_t shared =
      keys.has(kSharedLayers) ? keys.integer(kSharedLayers, layers - 1, 0) : unsaid;
  config["num_kv_shared_layers"] = shared;
  return shared;
}

void read_per_layer_rows(const ArchitectureKeys& keys, Json& config) {
  config["vocab_size_per_layer_input"] =
      keys.rows_of("per_layer_token_embd.weight", config["vocab_size"].get<int64_t>());
}

void write_per_layer(const Json& config, std::string_view architecture, const KeyWriter& keys) {
  const int64_t dim = get_int(config, "hidden_size_per_layer_input", 0, limits::kDim, 0);
  keys.integer(kPerLayer, dim);
  const int64_t tokens = get_int(config, "vocab_size", 1, limits::kVocab);
  const int64_t rows = get_int(config, "vocab_size_per_layer_input", 1, limits::kVocab, tokens);
  if (dim == 0 || rows <= tokens) return;
  cannot_write(architecture, str("vocab_size_per_layer_input ", rows),
               str("expect as many embeddings per layer as tokens, ", tokens));
}

// --- What readers of Gemma 3n take for granted ---------------------------------------------------

constexpr const char *kStreams = "altup.num_inputs", *kActive = "altup.active_idx";
// Of each layer the quantile of the normal distribution that the part of its sparsity lies below.
constexpr const char* kCutoffs = "activation_sparsity_scale";
constexpr int64_t kPeriod3n = 5, kOwnLayers3n = 20, kSparseLayers3n = 10;
constexpr double kSparsity3n = 0.95;
constexpr int64_t kUsualStreams = 4, kUsualPerLayer = 256, kUsualRank = 64;

int64_t shared_layers_3n(int64_t layers) {
  return std::max<int64_t>(0, layers - kOwnLayers3n);
}

std::vector<double> sparsities_3n(int64_t layers) {
  std::vector<double> sparsities(static_cast<size_t>(layers));
  std::fill_n(sparsities.begin(), std::min(layers, kSparseLayers3n), kSparsity3n);
  return sparsities;
}

}  // namespace

void read_gemma3n(const ArchitectureKeys& keys, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  config["layer_types"] = read_layer_types(keys, layers, kPeriod3n);
  config["sliding_window"] = keys.integer(kWindow, limits::kContext);
  config[kLocalBase] = keys.number(kLocalTheta, kUsualLocalTheta);
  read_shared_layers(keys, shared_layers_3n(layers), config);
  config["hidden_size_per_layer_input"] = keys.integer_or(kUsualPerLayer, kPerLayer, limits::kDim);
  read_per_layer_rows(keys, config);
  config["laurel_rank"] = keys.rows_of("blk.0.laurel_l.weight", kUsualRank);
  const int64_t streams = keys.integer_or(kUsualStreams, kStreams, limits::kDim);
  config["altup_num_inputs"] = streams;
  config["altup_active_idx"] = keys.has(kActive) ? keys.integer(kActive, streams - 1, 0) : 0;
  config["altup_correct_scale"] = true;
  std::vector<double> sparsities = sparsities_3n(layers);
  if (keys.has(kCutoffs)) {
    sparsities = keys.numbers(kCutoffs, layers);
    // The quantile of float32 is that of 0.95 to more than six digits.
    for (double& number : sparsities) number = std::round(normal_cdf(number) * 1e6) / 1e6;
  }
  config["activation_sparsity_pattern"] = sparsities;
  config[kCap] = keys.number(kCap, kUsualCap);
}

void write_gemma3n(const Json& config, const KeyWriter& keys) {
  constexpr const char* kName = "gemma3n";
  require_no_bias(config, "attention_bias");
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  require_windows(config, kName, periodic_layer_types(layers, kPeriod3n));
  const auto refuse = [&](const char* key, const auto& found, const auto&... expected) {
    cannot_write(kName, str(key, " ", found), str("take it for ", expected...));
  };
  const double cap = find_value(config, kCap) == nullptr ? 0 : get_number(config, kCap, 1e-3, 1e6);
  if (cap == 0) refuse(kCap, "null", kUsualCap);
  if (cap != kUsualCap) refuse(kCap, cap, kUsualCap);
  const int64_t active = get_int(config, "altup_active_idx", 0, limits::kDim, 0);
  if (active != 0) refuse("altup_active_idx", active, 0);
  if (!get_bool(config, "altup_correct_scale", true)) {
    refuse("altup_correct_scale", "false", "true");
  }
  const int64_t shared = get_int(config, "num_kv_shared_layers", 0, limits::kLayers, 0);
  if (shared != shared_layers_3n(layers)) {
    refuse("num_kv_shared_layers", shared, shared_layers_3n(layers), " of ", layers, " layers");
  }
  const std::vector<double> sparsities = activation_sparsities(config);
  const std::vector<double> usual = sparsities_3n(layers);
  for (size_t i = 0; i < usual.size(); ++i) {
    if (sparsities[i] == usual[i]) continue;
    refuse("activation_sparsity_pattern", str(sparsities[i], " in layer ", i), usual[i]);
  }
  const std::vector<int64_t> widths = intermediate_sizes(config);
  const auto other = std::find_if(widths.begin(), widths.end(),
                                  [&](int64_t width) { return width != widths.front(); });
  if (other != widths.end()) {
    refuse("intermediate_size", str(*other, " in layer ", other - widths.begin()), widths.front());
  }
  keys.set(kWindowPattern, windowed_layers(config));
  keys.integer(kWindow, get_int(config, "sliding_window", 1, limits::kContext));
  keys.number(kLocalTheta, get_number(config, kLocalBase, 1e-3, 1e12, kUsualLocalTheta));
  keys.integer(kSharedLayers, shared);
  write_per_layer(config, kName, keys);
  keys.integer(kStreams, get_int(config, "altup_num_inputs", 1, limits::kDim));
  keys.integer(kActive, active);
  std::vector<float> cutoffs;
  for (const double part : sparsities) cutoffs.push_back(static_cast<float>(normal_quantile(part)));
  keys.set(kCutoffs, cutoffs);
  keys.number(kCap, cap);
}

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
  config[kLocalBase] = keys.number(kLocalTheta, kUsualLocalTheta);
  const int64_t shared = read_shared_layers(keys, 0, config);
  read_lengths(keys.per_layer(kLength, layers, limits::kDim), shared, config);
  config["hidden_size_per_layer_input"] =
      keys.has(kPerLayer) ? keys.integer(kPerLayer, limits::kDim, 0) : 0;
  read_per_layer_rows(keys, config);
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
  const std::vector<bool> windowed = windowed_layers(config);
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
  keys.number(kLocalTheta, get_number(config, kLocalBase, 1e-3, 1e12, kUsualLocalTheta));
  keys.integer(kSharedLayers, shared);
  write_per_layer(config, "gemma4", keys);
  keys.number(kCap, get_number(config, kCap, 1e-3, 1e6));
  if (!get_bool(config, "enable_moe_block", false)) return;
  Json experts = config;
  rename_key(experts, "top_k_experts", "num_experts_per_tok");
  write_experts(experts, "num_experts", "moe_intermediate_size", keys);
}

}  // namespace lumen::io
