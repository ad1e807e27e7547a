// Granite 3 (Granite Team 2024, "Granite 3.0 Language Models").
//
// Loads the dense Granite 3 models, 1B-A400M and 3B-A800M. Differs from plain Llama by four
// multipliers that the config names: of the embedding, of what each branch adds, of attention's
// products, and, a divisor, of the logits. The smaller have a mixture of experts in place of every
// feed-forward layer, weighted by a softmax over those that a token goes through, and some beside
// it a feed-forward layer that all tokens go through.
#include "lib/base/limits.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace granite {

// Files have all experts of a layer in one tensor, and gate and up of the shared layer: PEFT has no
// names for additions to single ones.
void set_experts(const io::Json& json, const nn::DecoderConfig& config, nn::LayerShape& layer) {
  layer.experts = experts_of(json, config, "num_local_experts");
  layer.experts->name = "block_sparse_moe";
  layer.experts->router = "router.layer";
  layer.experts->normalize = true;
  layer.experts->takes_additions = false;
  if (io::get_string(json, "model_type") != "granitemoeshared") return;
  const int64_t shared = io::get_int(json, "shared_intermediate_size", 0, limits::kDim, 0);
  if (shared == 0) return;
  layer.shared_mlp = {config.hidden_size, shared, config.hidden_act};
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  auto multiplier = [&](const char* key) { return io::get_number(json, key, 1e-9, 1e9, 1); };
  nn::LayerShape layer = plain_layer(config);
  layer.attention.scale = multiplier("attention_multiplier");
  layer.mlp.bias = io::get_bool(json, "mlp_bias", false);
  if (io::get_string(json, "model_type") != "granite") set_experts(json, config, layer);
  layer.residual_scale = multiplier("residual_multiplier");
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .embedding_scale = multiplier("embedding_multiplier"),
                   .logit_scale = 1 / multiplier("logits_scaling")});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {{"model_type", "granite"},
                         {"hidden_size", 32},
                         {"intermediate_size", 48},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"vocab_size", 37},
                         {"max_position_embeddings", 64},
                         {"rms_norm_eps", 1e-5},
                         {"rope_theta", 1e4},
                         {"embedding_multiplier", 12.0},
                         {"residual_multiplier", 0.22},
                         {"attention_multiplier", 0.25},
                         {"logits_scaling", 8.0},
                         {"tie_word_embeddings", true}};
  io::Json biased = base;
  biased["rope_interleaved"] = true;
  biased["attention_bias"] = true;
  biased["mlp_bias"] = true;
  io::Json mixture = base;
  mixture.update({{"model_type", "granitemoe"},
                  {"intermediate_size", 16},
                  {"num_local_experts", 3},
                  {"num_experts_per_tok", 2}});
  io::Json shared = mixture;
  shared.update({{"model_type", "granitemoeshared"},
                 {"shared_intermediate_size", 20},
                 {"num_experts_per_tok", 3},
                 {"attention_bias", true},
                 {"tie_word_embeddings", false}});
  return {base, biased, mixture, shared};
}

constexpr std::string_view kModelTypes[] = {"granite", "granitemoe", "granitemoeshared"};

}  // namespace granite

extern const ModelDef kGranite;
const ModelDef kGranite = {"granite", granite::kModelTypes, granite::make, granite::tiny_configs};

}  // namespace lumen::models
