// Gemma 3n (Gemma Team 2025), the part that reads and writes text.
//
// Loads E2B, E4B and what is cut out of the latter with layers of different widths. Differs from
// Gemma 3 by norms whose weights are stored whole, norms of values, which have no weight, and no
// scale of attention; several vectors of each token run through the layers side by side (AltUp),
// each layer adds a low-rank product (Laurel) and what an embedding of the token that is its own
// multiplies, as in Gemma 4; the gates of some layers let only the largest numbers through; the
// last layers attend to keys and values of earlier ones.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/normal_distribution.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gemma3n {

constexpr int64_t kMostStreams = 64;

// Not what altup_coef_clip says: it limits coefficients of AltUp in training, to 120, which they
// are far from.
nn::AltUpShape altup_of(const io::Json& json, const nn::LayerShape& layer) {
  const int64_t streams = io::get_int(json, "altup_num_inputs", 1, kMostStreams);
  return {.hidden = layer.mlp.hidden,
          .streams = streams,
          .active = io::get_int(json, "altup_active_idx", 0, streams - 1),
          .norm = layer.norm};
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.scale = 1;
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  layer.attention.value_norm = true;
  layer.norms = {.after_attention = "post_attention_layernorm",
                 .before_mlp = "pre_feedforward_layernorm",
                 .after_mlp = "post_feedforward_layernorm"};
  const nn::PerLayerEmbeddingShape embedding = per_layer_embedding_of(json, config);
  layer.per_layer_input = {config.hidden_size, embedding.dim, config.hidden_act, layer.norm};
  layer.laurel = {config.hidden_size, io::get_int(json, "laurel_rank", 1, limits::kDim),
                  layer.norm};
  layer.altup = altup_of(json, layer);
  layer.scales_active = io::get_bool(json, "altup_correct_scale", true);
  const std::vector<int64_t> windows = io::layer_windows(json);
  const std::vector<int64_t> keys_of = shared_keys_of(json, windows);
  const std::vector<int64_t> lengths = io::intermediate_sizes(json);
  const std::vector<double> sparsities = io::activation_sparsities(json);
  const auto own_layer = [=](int64_t i) {
    const auto at = static_cast<size_t>(i);
    nn::LayerShape own = layer;
    own.attention.window = windows[at];
    own.attention.borrows = keys_of[at] != i;
    own.mlp.intermediate = lengths[at];
    if (sparsities[at] > 0) own.mlp.cutoff = normal_quantile(sparsities[at]);
    return own;
  };
  const DecoderShape shape = {
      .layer = own_layer,
      .rotation = local_if_windowed(windows),
      .local_rope = {{"rope_theta",
                      io::get_number(json, "rope_local_base_freq", 1e-3, 1e12, 10000)}},
      .layer_embedding = embedding,
      .altup = layer.altup,
      .keys_of = keys_of,
      .embedding_scale = embedding_root(config, parameters),
      .logit_cap = soft_cap(json, "final_logit_softcapping")};
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json small = small_config(
      "gemma3n_text",
      {{"hidden_size", 24},
       {"intermediate_size", 40},
       {"num_hidden_layers", 4},
       {"head_dim", 8},
       {"hidden_size_per_layer_input", 6},
       {"vocab_size_per_layer_input", 43},
       {"num_kv_shared_layers", 2},
       {"altup_num_inputs", 4},
       {"altup_active_idx", 0},
       {"laurel_rank", 5},
       {"activation_sparsity_pattern", {0.95, 0.5, 0, 0}},
       {"vocab_size", 43},
       {"sliding_window", 3},
       {"layer_types",
        {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
       {"rms_norm_eps", 1e-6},
       {"rope_theta", 1e6},
       {"rope_local_base_freq", 1e4},
       {"hidden_act", "gelu_pytorch_tanh"},
       {"final_logit_softcapping", 0.25},
       {"tie_word_embeddings", true}});
  io::Json other = small;
  other.update({{"altup_num_inputs", 3},
                {"altup_active_idx", 1},
                {"altup_correct_scale", false},
                {"num_kv_shared_layers", 0},
                {"vocab_size_per_layer_input", 4},
                {"intermediate_sizes", {40, 24, 40, 16}},
                {"tie_word_embeddings", false}});
  return {small, other};
}

constexpr std::string_view kModelTypes[] = {"gemma3n_text"};

}  // namespace gemma3n

extern const ModelDef kGemma3n;
const ModelDef kGemma3n = {"gemma3n", gemma3n::kModelTypes, gemma3n::make, gemma3n::tiny_configs};

}  // namespace lumen::models
