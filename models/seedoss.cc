// Seed-OSS (ByteDance Seed 2025, "Seed-OSS Open-Source Models").
//
// Loads Seed-OSS-36B. Differs from plain Llama by biases on the query, key and value projections,
// for the output projection and the feed-forward layer where the config says so, and by heads that
// are wider than hidden_size over their number.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace seedoss {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.output_bias = io::get_bool(json, "attention_out_bias", false);
  layer.mlp.bias = io::get_bool(json, "mlp_bias", false);
  layer.dropout = io::get_number(json, "residual_dropout", 0, 1, 0);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("seed_oss", {{"hidden_size", 24},
                                                  {"intermediate_size", 40},
                                                  {"head_dim", 16},
                                                  {"rms_norm_eps", 1e-6},
                                                  {"rope_theta", 1e7},
                                                  {"attention_bias", true}});
  io::Json biased = base;
  biased["attention_out_bias"] = true;
  biased["mlp_bias"] = true;
  biased["tie_word_embeddings"] = true;
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"seed_oss"};

}  // namespace seedoss

extern const ModelDef kSeedoss;
const ModelDef kSeedoss = {"seedoss", seedoss::kModelTypes, seedoss::make, seedoss::tiny_configs};

}  // namespace lumen::models
