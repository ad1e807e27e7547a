// Apertus (Project Apertus 2025, "Apertus: Democratizing Open and Compliant LLMs for Global
// Language Environments").
//
// Loads Apertus 8B and 70B. Differs from Llama by norms of every query and key head and by a
// feed-forward layer without a gate, whose activation has learned slopes (nn::Xielu).
#include "models/decoder_lm.h"

namespace lumen::models {
namespace apertus {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  layer.norms = {.before_attention = "attention_layernorm", .before_mlp = "feedforward_layernorm"};
  layer.plain_mlp = plain_mlp(config, /*bias=*/false);
  layer.plain_mlp->xielu = io::get_string(json, "hidden_act", "xielu") == "xielu";
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "apertus", {{"intermediate_size", 48},
                  {"head_dim", 8},
                  {"rope_theta", 1.2e7},
                  {"hidden_act", "xielu"},
                  {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1.2e7}}}});
  io::Json scaled = base;
  scaled.erase("rope_parameters");
  scaled.update({{"attention_bias", true},
                 {"tie_word_embeddings", true},
                 {"rope_scaling",
                  {{"rope_type", "llama3"},
                   {"factor", 8.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0},
                   {"original_max_position_embeddings", 16}}}});
  return {base, scaled};
}

constexpr std::string_view kModelTypes[] = {"apertus"};

}  // namespace apertus

extern const ModelDef kApertus;
const ModelDef kApertus = {"apertus", apertus::kModelTypes, apertus::make, apertus::tiny_configs};

}  // namespace lumen::models
