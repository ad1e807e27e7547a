// LFM2 (Liquid AI 2025, "LFM2 Technical Report").
//
// Loads LFM2 and LFM2.5, 350M to 2.6B. Differs from plain Llama by gated short convolutions in
// place of attention in most layers, norms of every query and key head before rotation, and names.
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace lfm2 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape full = plain_layer(config);
  full.attention.qk_norm = nn::QkNorm::kHeads;
  full.attention.q_norm = "q_layernorm";
  full.attention.k_norm = "k_layernorm";
  full.attention.output = "out_proj";
  full.mlp.name = "feed_forward";
  full.mlp.gate = "w1";
  full.mlp.up = "w3";
  full.mlp.down = "w2";
  full.norms = {.before_attention = "operator_norm", .before_mlp = "ffn_norm"};
  nn::LayerShape convolution = full;
  convolution.short_convolution = {
      .hidden = config.hidden_size,
      .kernel = io::get_int(json, "conv_L_cache", 2, io::kMostConvTaps),
      .bias = io::get_bool(json, "conv_bias", false)};
  const auto layer = [=, has_convolution = io::convolution_layers(json)](int64_t i) {
    return has_convolution[static_cast<size_t>(i)] ? convolution : full;
  };
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = layer, .norm = "embedding_norm"});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {{"model_type", "lfm2"},
                         {"hidden_size", 32},
                         {"intermediate_size", 48},
                         {"block_auto_adjust_ff_dim", false},
                         {"num_hidden_layers", 3},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"conv_L_cache", 3},
                         {"layer_types", {"conv", "full_attention", "conv"}},
                         {"vocab_size", 37},
                         {"max_position_embeddings", 64},
                         {"norm_eps", 1e-5},
                         {"rms_norm_eps", 1e-5},
                         {"rope_theta", 1e6},
                         {"tie_word_embeddings", true}};
  io::Json biased = base;
  biased["conv_bias"] = true;
  biased["conv_L_cache"] = 4;
  biased["layer_types"] = {"full_attention", "conv", "conv"};
  biased["tie_word_embeddings"] = false;
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"lfm2"};

}  // namespace lfm2

extern const ModelDef kLfm2;
const ModelDef kLfm2 = {"lfm2", lfm2::kModelTypes, lfm2::make, lfm2::tiny_configs};

}  // namespace lumen::models
