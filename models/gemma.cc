// Gemma (Gemma Team 2024), Gemma 2 (2024, "Improving Open Language Models at a Practical Size") and
// Gemma 3 (2025, "Gemma 3 Technical Report"), the part that reads and writes text.
//
// Loads Gemma of 2B and 7B, Gemma 2 of 2B to 27B, Gemma 3 from 270M to 27B, of those that also see
// images the language model, and VaultGemma 1B (Google 2025), a Gemma 2 without norms behind the
// branches. Differ from plain Llama by norms whose weights are stored less 1, a gate with GELU, and
// an embedding, tied to the head, that is multiplied by √hidden_size. From the second on there are
// norms before and after each branch, layers with a sliding window and a scale of attention that
// the config names. Gemma 2 caps scores and logits, every other layer has the window; Gemma 3 has
// norms of every query and key head in place of caps, and five layers with a window and a rotary
// base of their own for each that sees all.
#include <cmath>

#include "lib/base/error.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gemma {

// Attention and norms of the second and third.
nn::LayerShape newer_layer(const io::Json& json, const nn::DecoderConfig& config) {
  nn::LayerShape layer = plain_layer(config);
  const double scalar = io::get_number(json, "query_pre_attn_scalar", 1e-6, 1e9,
                                       static_cast<double>(config.head_dim));
  layer.attention.scale = 1 / std::sqrt(scalar);
  layer.attention.cap = soft_cap(json, "attn_logit_softcapping");
  layer.norms = {.after_attention = "post_attention_layernorm",
                 .before_mlp = "pre_feedforward_layernorm",
                 .after_mlp = "post_feedforward_layernorm"};
  if (io::get_string(json, "model_type") == "vaultgemma") {
    layer.norms.after_attention = layer.norms.after_mlp = "";
  }
  return layer;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  if (io::get_bool(json, "use_bidirectional_attention", false)) {
    fail(ErrorKind::kUnsupported,
         "use_bidirectional_attention is for embeddings; models that continue text are supported");
  }
  const nn::DecoderConfig config(json);
  const std::string type = io::get_string(json, "model_type");
  const bool first = type == "gemma", third = type == "gemma3_text";
  nn::LayerShape layer = first ? plain_layer(config) : newer_layer(json, config);
  layer.attention.norm.offset = layer.norm.offset =
      io::get_number(json, "rms_norm_offset", 0, 1, 1);
  if (third) layer.attention.qk_norm = nn::QkNorm::kHeads;
  DecoderShape shape = {.layer = [layer](int64_t) { return layer; },
                        .embedding_scale = embedding_root(config, parameters)};
  if (!first) {
    const std::vector<int64_t> windows = io::layer_windows(json);
    shape.layer = with_windows(layer, windows);
    shape.logit_cap = soft_cap(json, "final_logit_softcapping");
    if (third) {
      shape.rotation = local_if_windowed(windows);
      shape.local_rope = {
          {"rope_theta", io::get_number(json, "rope_local_base_freq", 1e-3, 1e12, 10000)}};
    }
  }
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json first = small_config("gemma", {{"hidden_size", 24},
                                                {"intermediate_size", 40},
                                                {"num_hidden_layers", 3},
                                                {"num_key_value_heads", 1},
                                                {"head_dim", 16},
                                                {"vocab_size", 43},
                                                {"rms_norm_eps", 1e-6},
                                                {"rms_norm_offset", 1},
                                                {"rope_theta", 10000},
                                                {"hidden_act", "gelu_pytorch_tanh"},
                                                {"tie_word_embeddings", true}});
  io::Json second = first;
  second.update({{"model_type", "gemma2"},
                 {"query_pre_attn_scalar", 20},
                 {"sliding_window", 3},
                 {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}},
                 {"attn_logit_softcapping", 0.02},
                 {"final_logit_softcapping", 0.25}});
  io::Json third = first;
  third.update({{"model_type", "gemma3_text"},
                {"rope_theta", 1e6},
                {"rope_local_base_freq", 10000},
                {"query_pre_attn_scalar", 20},
                {"sliding_window", 3},
                {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}}});
  io::Json from_gguf = third;
  from_gguf["rms_norm_offset"] = 0;
  from_gguf["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  io::Json vault = second;
  vault.update({{"model_type", "vaultgemma"}, {"final_logit_softcapping", nullptr}});
  return {first, second, third, from_gguf, vault};
}

constexpr std::string_view kModelTypes[] = {"gemma", "gemma2", "gemma3_text", "vaultgemma"};

}  // namespace gemma

extern const ModelDef kGemma;
const ModelDef kGemma = {"gemma", gemma::kModelTypes, gemma::make, gemma::tiny_configs};

}  // namespace lumen::models
