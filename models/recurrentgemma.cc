// RecurrentGemma (Botev et al. 2024, "RecurrentGemma: Moving Past Transformers for Efficient Open
// Language Models").
//
// Loads RecurrentGemma 2B and 9B. Differs from Gemma by Griffin's recurrent block in place of
// attention in two of three layers (block_types), attention with a window of which half of each
// head rotates, biases, a cap of logits, and names.
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "lib/tensor/dtype.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace recurrent_gemma {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  constexpr const char* kBlock = "temporal_block";
  const nn::DecoderConfig config(json);
  nn::LayerShape attention = plain_layer(config);
  attention.attention.name = kBlock;
  attention.attention.output_bias = true;
  attention.attention.window = config.sliding_window;
  attention.norm.offset = io::get_number(json, "rms_norm_offset", 0, 1, 1);
  attention.norms.before_attention = "temporal_pre_norm";
  attention.norms.before_mlp = "channel_pre_norm";
  attention.mlp.name = "mlp_block";
  attention.mlp.bias = true;
  attention.mlp.intermediate = std::max<int64_t>(1, config.intermediate_size / 2);
  nn::LayerShape recurrent = attention;
  recurrent.griffin =
      nn::GriffinBlockShape{.name = kBlock,
                            .hidden = config.hidden_size,
                            .width = io::get_int(json, "lru_width", 1, limits::kDim),
                            .heads = config.num_attention_heads,
                            .kernel = io::get_int(json, "conv1d_width", 2, io::kMostConvTaps),
                            .activation = config.hidden_act};
  if (recurrent.griffin->width % config.num_attention_heads != 0) {
    fail(ErrorKind::kMalformed, "lru_width ", recurrent.griffin->width,
         " is not a multiple of num_attention_heads ", config.num_attention_heads);
  }
  const auto layer = [=, is_linear = io::linear_attention_layers(json)](int64_t i) {
    return is_linear[static_cast<size_t>(i)] ? recurrent : attention;
  };
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = layer,
                   .embedding_scale = to_float(to_bf16(root)),  // whatever the type of the table
                   .logit_cap = soft_cap(json, "logits_soft_cap"),
                   .norm = "final_norm"});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base =
      small_config("recurrent_gemma",
                   {{"intermediate_size", 96},
                    {"num_hidden_layers", 3},
                    {"num_key_value_heads", 1},
                    {"layer_types", {"linear_attention", "linear_attention", "full_attention"}},
                    {"partial_rotary_factor", 0.5},
                    {"rope_theta", 10000.0},
                    {"rms_norm_offset", 1},
                    {"rms_norm_eps", 1e-6},
                    {"hidden_act", "gelu_pytorch_tanh"},
                    {"lru_width", 32},
                    {"conv1d_width", 4},
                    {"sliding_window", 3},
                    {"logits_soft_cap", 30.0},
                    {"initializer_range", 0.3},
                    {"tie_word_embeddings", true}});
  io::Json wide = base;
  wide.update({{"num_hidden_layers", 2},
               {"layer_types", {"full_attention", "linear_attention"}},
               {"num_key_value_heads", 2},
               {"lru_width", 40},
               {"conv1d_width", 3},
               {"attention_bias", true},
               {"tie_word_embeddings", false}});
  return {base, wide};
}

constexpr std::string_view kModelTypes[] = {"recurrent_gemma"};

}  // namespace recurrent_gemma

extern const ModelDef kRecurrentgemma;
const ModelDef kRecurrentgemma = {"recurrentgemma", recurrent_gemma::kModelTypes,
                                  recurrent_gemma::make, recurrent_gemma::tiny_configs};

}  // namespace lumen::models
