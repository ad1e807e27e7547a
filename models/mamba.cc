// Mamba (Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces") and
// Falcon-Mamba (Zuo et al. 2024, "Falcon Mamba").
//
// Loads Mamba 130M to 2.8B as transformers has them, and Falcon-Mamba 7B. Every layer is the mixer
// of Mamba behind a norm, and nothing else: there is no attention, and what is kept of a text does
// not grow with it. Falcon-Mamba has norms without weights inside the mixer.
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace mamba {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::Mamba1Shape mixer = {.hidden = config.hidden_size,
                           .inner = config.intermediate_size,
                           .state = io::get_int(json, "state_size", 1, limits::kDim),
                           .step_rank = io::get_int(json, "time_step_rank", 1, limits::kDim),
                           .kernel = io::get_int(json, "conv_kernel", 2, io::kMostConvTaps),
                           .conv_bias = io::get_bool(json, "use_conv_bias", true),
                           .bias = io::get_bool(json, "use_bias", false),
                           .out_takes_additions = false};
  require_silu(json, "Mamba");
  if (io::get_string(json, "model_type") == "falcon_mamba") {
    mixer.norms = nn::Mamba1Norms::kPlain;
    mixer.eps = io::get_number(json, "mixer_rms_eps", 0, 1, 1e-6);
  }
  nn::LayerShape layer = plain_layer(config);
  layer.parts = nn::LayerParts::kMixer;
  layer.norms.before_attention = "norm";
  layer.mamba1 = mixer;
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .rotation = [](int64_t) { return Rotation::kNone; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("mamba", {{"intermediate_size", 64},
                                               {"num_attention_heads", 1},
                                               {"num_key_value_heads", 1},
                                               {"layer_norm_epsilon", 1e-5},
                                               {"state_size", 6},
                                               {"time_step_rank", 2},
                                               {"conv_kernel", 4},
                                               {"initializer_range", 0.3},
                                               {"tie_word_embeddings", true}});
  io::Json falcon = base;
  falcon.update({{"model_type", "falcon_mamba"},
                 {"intermediate_size", 40},
                 {"time_step_rank", 5},
                 {"conv_kernel", 3},
                 {"use_bias", true},
                 {"use_conv_bias", false},
                 {"mixer_rms_eps", 1e-4},
                 {"tie_word_embeddings", false}});
  return {base, falcon};
}

constexpr std::string_view kModelTypes[] = {"mamba", "falcon_mamba"};

}  // namespace mamba

extern const ModelDef kMamba;
const ModelDef kMamba = {"mamba", mamba::kModelTypes, mamba::make, mamba::tiny_configs};

}  // namespace lumen::models
