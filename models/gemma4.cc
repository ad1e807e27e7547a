// Gemma 4 (Gemma Team 2026), the part that reads and writes text.
//
// Loads E2B, E4B, 12B, 26B-A4B and 31B. Differs from Gemma 3 by norms whose weights are stored
// whole, norms of values, which have no weight, and no scale of attention; layers that see all have
// larger heads of their own, of which a quarter rotates, and may have no v_proj; the last layers
// attend to keys and values of earlier ones; each layer gives what a number of its own multiplies,
// and in E2B and E4B adds an embedding of the token that is its own. 26B-A4B has experts beside
// each feed-forward layer.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gemma4 {

int64_t kv_heads_of(const io::Json& json, const nn::DecoderConfig& config) {
  const int64_t heads = io::get_int(json, "num_global_key_value_heads", 1, limits::kHeads,
                                    config.num_key_value_heads);
  if (config.num_attention_heads % heads != 0) {
    fail(ErrorKind::kMalformed, "num_attention_heads ", config.num_attention_heads,
         " is not a multiple of num_global_key_value_heads ", heads);
  }
  return heads;
}

// With experts beside the dense layer.
void set_experts(const io::Json& json, nn::LayerShape& layer) {
  const int64_t experts = io::get_int(json, "num_experts", 1, limits::kExperts);
  layer.norms.before_mlp = "";
  layer.dual_mlp = {
      .dense = layer.mlp,
      .experts = {.name = "",
                  .hidden = layer.mlp.hidden,
                  .intermediate = io::get_int(json, "moe_intermediate_size", 1, limits::kDim),
                  .experts = experts,
                  .used = io::get_int(json, "top_k_experts", 1, experts),
                  .normalize = true,
                  .gelu = true,
                  .scales = true,
                  .router = "router.proj",
                  .named_alone = false},
      .norm = layer.norm};
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  if (io::get_string(json, "use_bidirectional_attention", "") == "all") {
    fail(ErrorKind::kUnsupported,
         "use_bidirectional_attention 'all' is for embeddings; models that "
         "continue text are supported");
  }
  const nn::DecoderConfig config(json);
  const std::string activation = io::get_string(json, "hidden_act");
  const bool has_experts = io::get_bool(json, "enable_moe_block", false);
  if (has_experts && activation != "gelu_pytorch_tanh" && activation != "gelu_new") {
    fail(ErrorKind::kUnsupported, "hidden_act ", quoted(activation),
         " is not supported in experts; known: gelu_pytorch_tanh, gelu_new");
  }
  const int64_t dim = io::get_int(json, "hidden_size_per_layer_input", 0, limits::kDim, 0);
  const int64_t global_dim = io::get_int(json, "global_head_dim", 2, limits::kDim);
  if (global_dim % 2 != 0) {
    fail(ErrorKind::kMalformed, "global_head_dim ", global_dim,
         ": expected an even number, as they rotate in pairs");
  }
  nn::LayerShape local = plain_layer(config);
  local.attention.scale = 1;
  local.attention.qk_norm = nn::QkNorm::kHeads;
  local.attention.value_norm = true;
  local.norms = {.after_attention = "post_attention_layernorm",
                 .before_mlp = "pre_feedforward_layernorm",
                 .after_mlp = "post_feedforward_layernorm"};
  local.scaled_output = true;
  if (dim > 0) {
    local.per_layer_input = {config.hidden_size, dim, config.hidden_act, local.norm};
  }
  nn::LayerShape global = local;
  global.attention.kv_heads = kv_heads_of(json, config);
  global.attention.head_dim = global_dim;
  global.attention.values_of_keys = io::get_bool(json, "attention_k_eq_v", false);
  const std::vector<int64_t> windows = io::layer_windows(json);
  const std::vector<int64_t> keys_of = shared_keys_of(json, windows);
  const bool wide = io::get_bool(json, "use_double_wide_mlp", false);
  const auto layer = [=](int64_t i) {
    const auto at = static_cast<size_t>(i);
    nn::LayerShape own = windows[at] > 0 ? local : global;
    own.attention.window = windows[at];
    own.attention.borrows = keys_of[at] != i;
    if (wide && own.attention.borrows) own.mlp.intermediate *= 2;
    if (has_experts) set_experts(json, own);
    return own;
  };
  DecoderShape shape = {.layer = layer,
                        .rotation = local_if_windowed(windows),
                        .local_rope = {{"rope_theta", io::get_number(json, "rope_local_base_freq",
                                                                     1e-3, 1e12, 10000)}},
                        .rotary_dim = global_dim,
                        .keys_of = keys_of,
                        .embedding_scale = embedding_root(config, parameters),
                        .logit_cap = soft_cap(json, "final_logit_softcapping")};
  if (dim > 0) {
    shape.layer_embedding = per_layer_embedding_of(json, config);
    if (shape.layer_embedding->vocab < config.vocab_size) {
      fail(ErrorKind::kUnsupported, "vocab_size_per_layer_input ", shape.layer_embedding->vocab,
           " below vocab_size ", config.vocab_size,
           ": tokens without an embedding per layer are not supported");
    }
  }
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json small = small_config(
      "gemma4_text",
      {{"hidden_size", 24},
       {"intermediate_size", 40},
       {"num_hidden_layers", 4},
       {"head_dim", 8},
       {"global_head_dim", 16},
       {"hidden_size_per_layer_input", 6},
       {"num_kv_shared_layers", 2},
       {"use_double_wide_mlp", true},
       {"vocab_size", 43},
       {"sliding_window", 3},
       {"layer_types",
        {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
       {"rms_norm_eps", 1e-6},
       {"rope_theta", 1e6},
       {"rope_local_base_freq", 1e4},
       {"rope_scaling", {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}}},
       {"hidden_act", "gelu_pytorch_tanh"},
       {"final_logit_softcapping", 0.25},
       {"tie_word_embeddings", true}});
  io::Json large = small;
  large.update({{"hidden_size_per_layer_input", 0},
                {"num_kv_shared_layers", 0},
                {"use_double_wide_mlp", false},
                {"attention_k_eq_v", true},
                {"num_global_key_value_heads", 1}});
  io::Json mixture = large;
  mixture.update({{"enable_moe_block", true},
                  {"num_experts", 4},
                  {"top_k_experts", 3},
                  {"moe_intermediate_size", 12}});
  return {small, large, mixture};
}

constexpr std::string_view kModelTypes[] = {"gemma4_text", "gemma4_unified_text"};

}  // namespace gemma4

extern const ModelDef kGemma4;
const ModelDef kGemma4 = {"gemma4", gemma4::kModelTypes, gemma4::make, gemma4::tiny_configs};

}  // namespace lumen::models
