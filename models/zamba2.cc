// Zamba2 (Glorioso et al. 2024, "The Zamba2 Suite: Technical Report").
//
// Loads Zamba2 1.2B, 2.7B and 7B. Every layer is Mamba-2 behind a norm. In some (layer_types) a
// transformer block, which is given what was embedded beside what the layer is given, adds to what
// Mamba-2 is given: there are num_mem_blocks of them, which these layers use in turn, each with
// low-rank additions of its own.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"
#include "models/mamba2_layers.h"

namespace lumen::models {
namespace zamba2 {

nn::Mamba2Shape mamba(const io::Json& json, const nn::DecoderConfig& config) {
  constexpr Mamba2Keys kKeys = {"n_mamba_heads",   "mamba_headdim", "mamba_ngroups",
                                "mamba_d_state",   "mamba_d_conv",  "use_conv_bias",
                                "mamba_activation"};
  nn::Mamba2Shape shape = mamba2_of(json, config, kKeys);
  shape.in_bias = shape.out_bias = io::get_bool(json, "add_bias_linear", false);
  shape.conv_bias = true;  // whatever the config says
  shape.eps = 1e-5;
  return shape;
}

nn::SharedTransformerShape transformer(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SharedTransformerShape shape = {
      .hidden = config.hidden_size,
      .intermediate = config.intermediate_size,
      .heads = config.num_attention_heads,
      .kv_heads = config.num_key_value_heads,
      .head_dim = config.head_dim,
      .activation = config.hidden_act,
      .bias = io::get_bool(json, "add_bias_linear", false),
      .eps = config.rms_norm_eps,
      .dropout = config.attention_dropout,
      .adapter_rank = io::get_int(json, "adapter_rank", 1, limits::kDim),
      .attention_adapters = io::get_bool(json, "use_shared_attention_adapter", false)};
  if (shape.heads * shape.head_dim != 2 * shape.hidden) {
    fail(ErrorKind::kMalformed, shape.heads, " heads of attention_head_dim ", shape.head_dim,
         " are not twice hidden_size ", shape.hidden);
  }
  if (shape.attention_adapters && shape.kv_heads != shape.heads) {
    fail(ErrorKind::kUnsupported,
         "use_shared_attention_adapter with another num_key_value_heads than num_attention_heads "
         "is not supported");
  }
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  if (!config.tie_word_embeddings) {
    fail(ErrorKind::kUnsupported,
         "tie_word_embeddings false is not supported in zamba2: transformers then has a block of "
         "its own for every layer");
  }
  nn::LayerShape plain = plain_layer(config);
  plain.parts = nn::LayerParts::kMixer;
  plain.mamba = mamba(json, config);
  nn::LayerShape hybrid = plain;
  hybrid.mamba->name = "mamba_decoder.mamba";
  hybrid.norms.before_attention = "mamba_decoder.input_layernorm";
  hybrid.shared_transformer = transformer(json, config);
  const int64_t blocks = io::get_int(json, "num_mem_blocks", 1, limits::kLayers, 1);
  std::vector<int64_t> with_blocks;  // layers
  std::vector<int64_t> numbers;      // of each layer among them; −1: none
  for (const bool has_block : io::hybrid_layers(json)) {
    numbers.push_back(has_block ? std::ssize(with_blocks) : -1);
    if (has_block) with_blocks.push_back(std::ssize(numbers) - 1);
  }
  const nn::Parameters layers =
      parameters.with_normal_weights(config.initializer_range) / "model" / "layers";
  const auto layer = [=](int64_t i) {
    const int64_t number = numbers[static_cast<size_t>(i)];
    if (number < 0) return plain;
    nn::LayerShape own = hybrid;
    const int64_t first = with_blocks[static_cast<size_t>(number % blocks)];
    own.shared_transformer->number = number;
    own.shared_transformer->block = layers / str(first) / "shared_transformer";
    own.shared_transformer->is_own = first == i;
    return own;
  };
  const Rotation rotation =
      io::get_bool(json, "use_mem_rope", false) ? Rotation::kGlobal : Rotation::kNone;
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = layer,
                                                  .rotation = [=](int64_t) { return rotation; },
                                                  .norm = "final_layernorm"});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base =
      small_config("zamba2", {{"hidden_size", 24},
                              {"intermediate_size", 40},
                              {"num_hidden_layers", 4},
                              {"layer_types", {"mamba", "hybrid", "hybrid", "hybrid"}},
                              {"num_key_value_heads", 4},
                              {"head_dim", 12},
                              {"num_mem_blocks", 2},
                              {"adapter_rank", 3},
                              {"use_shared_attention_adapter", true},
                              {"use_mem_rope", true},
                              {"rope_theta", 10000.0},
                              {"hidden_act", "gelu"},
                              {"n_mamba_heads", 4},
                              {"mamba_headdim", 12},
                              {"mamba_ngroups", 1},
                              {"mamba_d_state", 6},
                              {"mamba_d_conv", 4},
                              {"initializer_range", 0.15},
                              {"tie_word_embeddings", true}});
  io::Json other = base;
  other.update({{"num_hidden_layers", 3},
                {"layer_types", {"hybrid", "mamba", "hybrid"}},
                {"num_mem_blocks", 1},
                {"num_key_value_heads", 2},
                {"use_shared_attention_adapter", false},
                {"use_mem_rope", false},
                {"add_bias_linear", true},
                {"mamba_ngroups", 2},
                {"mamba_d_conv", 3}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"zamba2"};

}  // namespace zamba2

extern const ModelDef kZamba2;
const ModelDef kZamba2 = {"zamba2", zamba2::kModelTypes, zamba2::make, zamba2::tiny_configs};

}  // namespace lumen::models
