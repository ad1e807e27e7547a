// Llama (Touvron et al. 2023, "LLaMA" and "Llama 2"; Dubey et al. 2024, "The Llama 3 Herd").
//
// Loads Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM2, Mistral 7B (Jiang et al. 2023), whose only
// difference is a sliding window, Ministral 3 (Mistral AI 2025), which scales the queries of long
// texts (nn::QueryTemperature), and what differs by names and defaults alone: EXAONE 3 and 3.5 (LG
// AI Research 2024), InternLM3 (2025), IQuest-Coder (2026), Helium (Kyutai 2025), whose heads
// rotate in pairs of neighbours, and CWM (Meta 2025) and Ministral 8B (Mistral AI 2024), layers of
// which have a window. The baseline of the zoo: pre-norm decoder, grouped-query attention without
// biases, rotary positions (Llama 3.1 and later: scaled), SwiGLU, output head tied to the embedding
// or not.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace llama {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  if (io::get_string(json, "model_type") == "helium") layer.attention.output_bias = false;
  layer.mlp.bias = io::get_bool(json, "mlp_bias", false);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_windows(layer, io::layer_windows(json))});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("llama", {{"intermediate_size", 48}, {"rope_theta", 10000.0}});
  io::Json tied = base, llama3 = base, mistral = base, biased = base, ministral = base;
  tied["tie_word_embeddings"] = true;
  tied["rope_interleaved"] = true;
  llama3["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 16}};
  mistral["model_type"] = "mistral";
  mistral["sliding_window"] = 3;
  ministral["model_type"] = "ministral3";
  ministral["head_dim"] = 8;
  ministral["rope_interleaved"] = true;
  ministral["rope_scaling"] = {{"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 5},
                               {"attention_factor", 1.0},
                               {"llama_4_scaling_beta", 0.1}};
  io::Json exaone = llama3, internlm = base;
  exaone["model_type"] = "exaone";
  internlm["model_type"] = "internlm3";
  internlm["head_dim"] = 16;
  io::Json iquest = base, helium = base, cwm = llama3;
  iquest["model_type"] = "iquestcoder";
  iquest["head_dim"] = 16;
  helium["model_type"] = "helium";
  helium.update({{"attention_bias", true}, {"rope_interleaved", true}, {"head_dim", 8}});
  cwm.update({{"model_type", "cwm"},
              {"head_dim", 8},
              {"sliding_window", 3},
              {"layer_types", {"full_attention", "sliding_attention"}}});
  biased["attention_bias"] = true;
  biased["mlp_bias"] = true;
  io::Json windowed = mistral;
  windowed["model_type"] = "ministral";
  windowed["layer_types"] = {"sliding_attention", "sliding_attention"};
  return {base,   tied,     llama3, mistral, biased, ministral,
          exaone, internlm, iquest, helium,  cwm,    windowed};
}

constexpr std::string_view kModelTypes[] = {"llama",  "mistral",   "ministral3",
                                            "exaone", "internlm3", "iquestcoder",
                                            "helium", "cwm",       "ministral"};

}  // namespace llama

extern const ModelDef kLlama;
const ModelDef kLlama = {"llama", llama::kModelTypes, llama::make, llama::tiny_configs};

}  // namespace lumen::models
