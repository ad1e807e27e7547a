// What configs leave out of families that are Llamas but for that, for which layers have a window,
// or for norms and activations.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/family_completions.h"

namespace lumen::io {
namespace {

// Without a list all layers but every 4th, from the first on, have the window.
void set_first_of_four(Json& config) {
  Json types = Json::array();
  for (int64_t i = 0; i < get_int(config, "num_hidden_layers", 1, limits::kLayers); ++i) {
    types.push_back(i % 4 == 0 ? "full_attention" : "sliding_attention");
  }
  set_default(config, "layer_types", std::move(types));
}

}  // namespace

// As CwmConfig has it.
void complete_cwm(Json& config) {
  set_defaults(config, {{"vocab_size", 128256},
                        {"hidden_size", 6144},
                        {"intermediate_size", 21504},
                        {"num_hidden_layers", 64},
                        {"num_attention_heads", 48},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 1e6},
                        {"sliding_window", 8192},
                        {"tie_word_embeddings", false}});
  if (find_value(config, "rope_parameters") == nullptr) {
    set_default(config, "rope_scaling",
                {{"rope_type", "llama3"},
                 {"factor", 16.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 8192}});
  }
  set_first_of_four(config);
}

// As BitNetConfig has it.
void complete_bitnet(Json& config) {
  set_defaults(config, {{"vocab_size", 128256},
                        {"hidden_size", 2560},
                        {"intermediate_size", 6912},
                        {"num_hidden_layers", 30},
                        {"num_attention_heads", 20},
                        {"hidden_act", "relu2"},
                        {"max_position_embeddings", 2048},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 500000},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 5);  // null is as many as heads
}

// As HeliumConfig has it.
void complete_helium(Json& config) {
  set_defaults(config, {{"vocab_size", 48000},
                        {"hidden_size", 2560},
                        {"intermediate_size", 7040},
                        {"num_hidden_layers", 24},
                        {"num_attention_heads", 20},
                        {"num_key_value_heads", 20},
                        {"head_dim", 128},
                        {"max_position_embeddings", 4096},
                        {"rms_norm_eps", 1e-8},
                        {"tie_word_embeddings", false}});
}

// As GraniteSWAConfig has it. A layer's own base of rotation, 0 where it does not rotate, is the
// model's where no list says it.
void complete_granite_swa(Json& config) {
  set_defaults(config, {{"vocab_size", 100352},
                        {"hidden_size", 2560},
                        {"intermediate_size", 8192},
                        {"num_hidden_layers", 24},
                        {"num_attention_heads", 20},
                        {"max_position_embeddings", 8192},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", true}});
  set_absent(config, "num_key_value_heads", 4);  // null is as many as heads
  set_absent(config, "sliding_window", 128);
  set_first_of_four(config);
}

// As GraniteMoeSWAConfig has it.
void complete_granite_moe_swa(Json& config) {
  complete_granite_moe(config);
  set_absent(config, "sliding_window", 128);
  set_first_of_four(config);
}

// As Jais2Config has it.
void complete_jais2(Json& config) {
  set_defaults(config, {{"vocab_size", 150272},
                        {"hidden_size", 3328},
                        {"intermediate_size", 26624},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 26},
                        {"hidden_act", "relu2"},
                        {"max_position_embeddings", 8192},
                        {"attention_bias", true},
                        {"mlp_bias", true},
                        {"tie_word_embeddings", false}});
}

// As MinistralConfig has it: without a list all layers have the window, if there is one.
void complete_ministral(Json& config) {
  set_defaults(config, {{"vocab_size", 32000},
                        {"hidden_size", 4096},
                        {"intermediate_size", 14336},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"max_position_embeddings", 131072},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 8);  // null is as many as heads
  set_absent(config, "sliding_window", 4096);
  config["attention_bias"] = false;
  const bool windowed = find_value(config, "sliding_window") != nullptr;
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  set_default(config, "layer_types",
              std::vector<std::string>(static_cast<size_t>(layers),
                                       windowed ? "sliding_attention" : "full_attention"));
}

// As NanoChatConfig has it.
void complete_nanochat(Json& config) {
  set_defaults(config, {{"vocab_size", 50304},
                        {"hidden_size", 768},
                        {"intermediate_size", 8192},
                        {"num_hidden_layers", 12},
                        {"num_attention_heads", 6},
                        {"hidden_act", "relu2"},
                        {"max_position_embeddings", 2048},
                        {"tie_word_embeddings", false}});
  set_absent(config, "final_logit_softcapping", 15.0);  // null is none
}

// As IQuestCoderConfig has it.
void complete_iquestcoder(Json& config) {
  if (find_value(config, "clip_qkv") != nullptr || get_bool(config, "use_sliding_window", false)) {
    fail(ErrorKind::kUnsupported,
         "clip_qkv and use_sliding_window are not supported for model_type 'iquestcoder'; no "
         "published model has them");
  }
  set_defaults(config, {{"vocab_size", 76800},
                        {"hidden_size", 5120},
                        {"intermediate_size", 27648},
                        {"num_hidden_layers", 80},
                        {"num_attention_heads", 40},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", false}});
  config["sliding_window"] = nullptr;
}

}  // namespace lumen::io
