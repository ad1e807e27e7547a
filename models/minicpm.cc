// MiniCPM (Hu et al. 2024, "MiniCPM: Unveiling the Potential of Small Language Models with Scalable
// Training Strategies") and MiniCPM4 (MiniCPM Team 2025).
//
// Loads MiniCPM 1B and 2B, MiniCPM4 0.5B and 8B and MiniCPM4.1. Differs from plain Llama by three
// scales, which make settings found with small models fit large ones: of the embedding, of what
// each branch adds, and of the logits. Attention is dense, also where sparse_config says that of
// long contexts a part could do.
#include <cmath>

#include "lib/base/error.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace minicpm {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  if (io::get_int(json, "num_experts", 0, limits::kExperts, 0) > 0) {
    fail(ErrorKind::kUnsupported, "num_experts ",
         io::get_int(json, "num_experts", 0, limits::kExperts),
         " is not supported in minicpm: its mixture of experts");
  }
  const nn::DecoderConfig config(json);
  const auto number = [&](const char* key, double usual) {
    return io::get_number(json, key, 1e-9, 1e9, usual);
  };
  nn::LayerShape layer = plain_layer(config);
  layer.residual_scale =
      number("scale_depth", 1.4) / std::sqrt(static_cast<double>(config.num_hidden_layers));
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{
          .layer = [=](int64_t) { return layer; },
          .embedding_scale = number("scale_emb", 12),
          .logit_scale = number("dim_model_base", 256) / static_cast<double>(config.hidden_size)});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("minicpm", {{"intermediate_size", 48},
                                                 {"num_key_value_heads", 4},
                                                 {"rope_theta", 10000.0},
                                                 {"scale_emb", 3},
                                                 {"scale_depth", 1.4},
                                                 {"dim_model_base", 16},
                                                 {"tie_word_embeddings", true}});
  io::Json fourth = base;
  fourth.update({{"num_key_value_heads", 2},
                 {"rope_interleaved", true},
                 {"tie_word_embeddings", false},
                 {"rope_scaling",
                  {{"rope_type", "longrope"},
                   {"original_max_position_embeddings", 32},
                   {"short_factor", {1.0, 1.1, 1.5, 2.0}},
                   {"long_factor", {1.0, 2.5, 4.0, 5.0}}}}});
  return {base, fourth};
}

constexpr std::string_view kModelTypes[] = {"minicpm"};

}  // namespace minicpm

extern const ModelDef kMinicpm;
const ModelDef kMinicpm = {"minicpm", minicpm::kModelTypes, minicpm::make, minicpm::tiny_configs};

}  // namespace lumen::models
