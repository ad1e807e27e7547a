// Gemma 3 (Gemma Team 2025, "Gemma 3 Technical Report"), the part that reads and writes text.
//
// Loads Gemma 3 from 270M to 27B, of those that also see images the language model. Differs from
// plain Llama by norms before and after each branch, whose weights are stored less 1, and of every
// query and key head; five layers with a sliding window and a rotary base of their own for each
// that sees all; a gate with GELU; a scale of attention that the config names; and an embedding,
// tied to the head, that is multiplied by √hidden_size.
#include <cmath>

#include "lib/base/error.h"
#include "lib/io/layer_windows.h"
#include "lib/tensor/dtype.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gemma3 {

// √hidden_size. A table of bfloat16 was trained with the root rounded to it.
double embedding_scale(const nn::DecoderConfig& config, const nn::Parameters& all) {
  const auto parameters = all.with_normal_weights(config.initializer_range);
  const Tensor table = (parameters / "model" / "embed_tokens")
                           .get("weight", {config.vocab_size, config.hidden_size});
  const double root = std::sqrt(static_cast<double>(config.hidden_size));
  if (table.dtype() != DType::kBF16) return root;
  return to_float(to_bf16(static_cast<float>(root)));
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (io::get_number(json, key, 0, 1e6, 0) == 0) continue;
    fail(ErrorKind::kUnsupported, key, " of Gemma 2 is not supported in Gemma 3");
  }
  if (io::get_bool(json, "use_bidirectional_attention", false)) {
    fail(ErrorKind::kUnsupported,
         "use_bidirectional_attention is for embeddings; models that continue text are supported");
  }
  const nn::DecoderConfig config(json);
  const double scalar = io::get_number(json, "query_pre_attn_scalar", 1e-6, 1e9,
                                       static_cast<double>(config.head_dim));
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  layer.attention.scale = 1 / std::sqrt(scalar);
  layer.attention.norm_offset = layer.norm_offset =
      io::get_number(json, "rms_norm_offset", 0, 1, 1);
  layer.norms = nn::NormPlacement::kBeforeAndAfter;
  const std::vector<int64_t> windows = io::layer_windows(json);
  const double local_theta = io::get_number(json, "rope_local_base_freq", 1e-3, 1e12, 10000);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_windows(layer, windows),
                   .rotation = local_if_windowed(windows),
                   .local_rope = {{"rope_theta", local_theta}},
                   .embedding_scale = embedding_scale(config, parameters)});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {
      {"model_type", "gemma3_text"},
      {"hidden_size", 24},
      {"intermediate_size", 40},
      {"num_hidden_layers", 3},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 1},
      {"head_dim", 16},
      {"vocab_size", 43},
      {"max_position_embeddings", 64},
      {"rms_norm_eps", 1e-6},
      {"rms_norm_offset", 1},
      {"rope_theta", 1e6},
      {"rope_local_base_freq", 10000},
      {"hidden_act", "gelu_pytorch_tanh"},
      {"query_pre_attn_scalar", 20},
      {"sliding_window", 3},
      {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
      {"tie_word_embeddings", true}};
  io::Json from_gguf = base;
  from_gguf["rms_norm_offset"] = 0;
  from_gguf["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  return {base, from_gguf};
}

constexpr std::string_view kModelTypes[] = {"gemma3_text"};

}  // namespace gemma3

extern const ModelDef kGemma3;
const ModelDef kGemma3 = {"gemma3", gemma3::kModelTypes, gemma3::make, gemma3::tiny_configs};

}  // namespace lumen::models
