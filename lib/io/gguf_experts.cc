// What files of mixtures of experts say of those: Qwen's, OLMoE's, and what others have likewise.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <vector>

#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char* kExpertCount = "expert_count";
constexpr const char* kExpertUsed = "expert_used_count";

// Of these architectures all layers have experts and see all tokens, and the probabilities of the
// chosen experts add up to 1, or never do.
void require_usual_experts(const Json& config, std::string_view architecture, bool normalized) {
  const std::vector<bool> sparse = sparse_layers(config);
  if (std::find(sparse.begin(), sparse.end(), false) != sparse.end()) {
    cannot_write(architecture, "layers without experts", "look for experts in every layer");
  }
  const bool found = get_bool(config, "norm_topk_prob", false);
  if (found && !normalized) {
    cannot_write(architecture, "norm_topk_prob true",
                 "take the chosen experts' weights as they are whatever a file says");
  }
  if (normalized && !found) {
    cannot_write(architecture, "norm_topk_prob false",
                 "make the chosen experts' weights add up to 1 whatever a file says");
  }
  if (find_value(config, "sliding_window") != nullptr) {
    cannot_write(architecture, "a sliding window", "attend to all tokens");
  }
}

// Qwen's mixtures.
void read_qwen_experts(const ArchitectureKeys& keys, bool normalized, Json& config) {
  read_experts(keys, "num_experts", config);
  const int64_t used = config["num_experts_per_tok"].get<int64_t>();
  const int64_t length = std::max<int64_t>(1, config["intermediate_size"].get<int64_t>() / used);
  config["moe_intermediate_size"] = keys.integer_or(length, kExpertLength, limits::kDim);
  config["norm_topk_prob"] = normalized;
}

}  // namespace

int64_t expert_count(const ArchitectureKeys& keys) {
  return keys.has(kExpertCount) ? keys.integer(kExpertCount, limits::kExperts, 0) : 0;
}

void read_experts(const ArchitectureKeys& keys, const char* count, Json& config) {
  config[count] = keys.integer(kExpertCount, limits::kExperts);
  config["num_experts_per_tok"] = keys.integer(kExpertUsed, config[count].get<int64_t>());
}

void write_experts(const Json& config, const char* count, const char* length,
                   const KeyWriter& keys) {
  const int64_t experts = get_int(config, count, 1, limits::kExperts);
  keys.integer(kExpertCount, experts);
  keys.integer(kExpertUsed, get_int(config, "num_experts_per_tok", 1, experts));
  keys.integer(kExpertLength, get_int(config, length, 1, limits::kDim));
}

void read_qwen3moe(const ArchitectureKeys& keys, Json& config) {
  read_qwen_experts(keys, true, config);
}

void write_qwen3moe(const Json& config, const KeyWriter& keys) {
  require_usual_experts(config, "qwen3moe", true);
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
}

void read_shared_experts(const ArchitectureKeys& keys, bool normalized, Json& config) {
  read_qwen_experts(keys, normalized, config);
  config["shared_expert_intermediate_size"] =
      keys.integer_or(config["intermediate_size"].get<int64_t>(), kSharedLength, limits::kDim);
}

void write_shared_experts(const Json& config, bool normalized, const KeyWriter& keys) {
  require_usual_experts(config, gguf_architecture(config), normalized);
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  keys.integer(kSharedLength, get_int(config, "shared_expert_intermediate_size", 1, limits::kDim));
}

void read_qwen2moe(const ArchitectureKeys& keys, Json& config) {
  read_shared_experts(keys, false, config);
  config["qkv_bias"] = Json(config["attention_bias"]);
}

void write_qwen2moe(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  write_shared_experts(config, false, keys);
}

void read_olmoe(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_experts", config);
  config["norm_topk_prob"] = false;
}

void write_olmoe(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  require_usual_experts(config, "olmoe", false);
  require_no_bias(config, "attention_bias");
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  if (get_int(config, "num_key_value_heads", 1, limits::kHeads) != heads) {
    cannot_write("olmoe", "another num_key_value_heads than num_attention_heads",
                 "look for norms of keys as wide as those of queries");
  }
  write_experts(config, "num_experts", "intermediate_size", keys);
}

}  // namespace lumen::io
