// OLMo 2 (OLMo Team 2025, "2 OLMo 2 Furious") and OLMo 3 (OLMo Team 2025, "Olmo 3").
//
// Loads OLMo 2 and 3 in all sizes. Differs from plain Llama by norms after each branch instead of
// before it, and of all query and all key heads at once; OLMo 3 also by three layers with a sliding
// window, whose rotation is not scaled, for each that sees all.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace olmo2 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qk_norm = nn::QkNorm::kWhole;
  layer.norms = {.before_attention = "",
                 .after_attention = "post_attention_layernorm",
                 .before_mlp = "",
                 .after_mlp = "post_feedforward_layernorm"};
  const std::vector<int64_t> windows = io::layer_windows(json);
  const double theta = io::get_number(json, "rope_theta", 1e-3, 1e12, 10000);
  const double local_theta = io::get_number(json, "rope_local_base_freq", 1e-3, 1e12, theta);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = with_windows(layer, windows),
                                                  .rotation = local_if_windowed(windows),
                                                  .local_rope = {{"rope_theta", local_theta}}});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "olmo2", {{"intermediate_size", 48}, {"rms_norm_eps", 1e-6}, {"rope_theta", 5e5}});
  io::Json third = base;
  third["model_type"] = "olmo3";
  third["sliding_window"] = 3;
  third["layer_types"] = {"sliding_attention", "full_attention"};
  third["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  return {base, third};
}

constexpr std::string_view kModelTypes[] = {"olmo2", "olmo3"};

}  // namespace olmo2

extern const ModelDef kOlmo2;
const ModelDef kOlmo2 = {"olmo2", olmo2::kModelTypes, olmo2::make, olmo2::tiny_configs};

}  // namespace lumen::models
