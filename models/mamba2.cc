// Mamba-2 (Dao & Gu 2024, "Transformers are SSMs") and Mamba-Codestral (Mistral AI 2024).
//
// Loads what transformers has of them. Every layer is Mamba-2 behind a norm, and nothing else:
// there is no attention, and what is kept of a text does not grow with it.
#include <cmath>

#include "lib/base/error.h"
#include "models/decoder_lm.h"
#include "models/mamba2_layers.h"

namespace lumen::models {
namespace mamba2 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  constexpr Mamba2Keys kKeys = {"num_heads",   "head_dim",      "n_groups",  "state_size",
                                "conv_kernel", "use_conv_bias", "hidden_act"};
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  nn::Mamba2Shape mixer = mamba2_of(json, config, kKeys);
  mixer.name = "mixer";
  mixer.out_takes_additions = false;
  mixer.in_bias = mixer.out_bias = io::get_bool(json, "use_bias", false);
  const int64_t inner = std::llround(io::get_number(json, "expand", 0, 64, 2) *
                                     static_cast<double>(config.hidden_size));
  if (mixer.inner() != inner) {
    fail(ErrorKind::kMalformed, "num_heads ", mixer.heads, " of head_dim ", mixer.head_dim,
         " are not expand · hidden_size = ", inner, " numbers");
  }
  layer.parts = nn::LayerParts::kMixer;
  layer.norms.before_attention = "norm";
  layer.mamba = mixer;
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .rotation = [](int64_t) { return Rotation::kNone; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("mamba2", {{"intermediate_size", 64},
                                                {"num_attention_heads", 1},
                                                {"num_key_value_heads", 1},
                                                {"layer_norm_epsilon", 1e-5},
                                                {"rope_theta", 10000.0},
                                                {"num_heads", 8},
                                                {"head_dim", 8},
                                                {"n_groups", 2},
                                                {"state_size", 6},
                                                {"conv_kernel", 4},
                                                {"expand", 2},
                                                {"initializer_range", 0.3},
                                                {"tie_word_embeddings", false}});
  io::Json biased = base;
  biased.update({{"use_bias", true},
                 {"use_conv_bias", false},
                 {"n_groups", 1},
                 {"time_step_limit", {0.1, 1.5}},
                 {"tie_word_embeddings", true}});
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"mamba2"};

}  // namespace mamba2

extern const ModelDef kMamba2;
const ModelDef kMamba2 = {"mamba2", mamba2::kModelTypes, mamba2::make, mamba2::tiny_configs};

}  // namespace lumen::models
