// The parts of a decoder with grouped-query attention, rotary positions and a feed-forward layer.
// Models choose where norms stand and of which kind they are, biases, query-key norms, windows,
// positions and scales, and layers with linear attention.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lib/io/json.h"
#include "lib/nn/activation.h"
#include "lib/nn/altup.h"
#include "lib/nn/dual_mlp.h"
#include "lib/nn/gated_delta_net.h"
#include "lib/nn/gated_mlp.h"
#include "lib/nn/griffin_block.h"
#include "lib/nn/kimi_delta_attention.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/latent_attention.h"
#include "lib/nn/laurel.h"
#include "lib/nn/layers.h"
#include "lib/nn/mamba1.h"
#include "lib/nn/mamba2.h"
#include "lib/nn/per_layer_input.h"
#include "lib/nn/rope.h"
#include "lib/nn/shared_transformer.h"
#include "lib/nn/short_convolution.h"
#include "lib/nn/sparse_mlp.h"

namespace lumen::nn {

// The config.json keys that decoders share; fields are named as the keys.
struct DecoderConfig {
  // Throws Error(kMalformed) for missing or contradictory values (heads not divisible by kv_heads,
  // odd rotary_dim) and Error(kUnsupported) for a hidden_act that no gate has.
  explicit DecoderConfig(const io::Json& config);

  int64_t hidden_size, intermediate_size, num_hidden_layers;
  int64_t num_attention_heads, num_key_value_heads, head_dim;
  int64_t rotary_dim;  // how many of head_dim rotate: "partial_rotary_factor" of them
  int64_t vocab_size, max_position_embeddings;
  double rms_norm_eps;
  double initializer_range;  // deviation of new weights
  bool tie_word_embeddings;
  bool attention_bias;       // of q, k, v and o
  int64_t sliding_window;    // 0: none
  Activation hidden_act;     // of feed-forward layers: silu, GELU, relu, relu2; of xielu identity
  double dropout;            // "hidden_dropout": of what layers add, while training
  double attention_dropout;  // of the attention's weights, while training
};

// Keys and values that a layer attends to, [batch, kv_heads, positions, head_dim].
struct KeysAndValues {
  Tensor k, v;
};

// What all layers of one forward pass share.
struct Pass {
  Tensor position;           // int32 [1] or [batch]: of the first token; 0 without a cache
  Tensor rope_table;         // of Rope::table
  Tensor query_table;        // of Rope::query_table
  Tensor query_scale;        // of QueryTemperature, but where query_table has it; may be undefined
  const Rope* rope;          // null: no rotation
  KvCache* cache = nullptr;  // null: attend among the given tokens only
  Tensor segments;           // int32 [batch, tokens]: documents of a packed row; may be undefined
  // Likewise, without a cache: documents cut into the chunks of layers with some
  // (AttentionShape::chunk); undefined where none is longer than a chunk.
  Tensor chunks{};
  Tensor* router_logits = nullptr;  // where a sparse layer puts its router's; null: nowhere
  // Where a layer puts its keys and values for others, or finds another's
  // (AttentionShape::borrows); null: nowhere.
  KeysAndValues* attended = nullptr;
  // [batch, tokens, dim]: a layer's own of PerLayerEmbedding, or what was embedded, of which layers
  // with a SharedTransformer see all tokens; or undefined.
  Tensor layer_input{};
  // A layer gives only so many of the last tokens, though all have keys and values or change a
  // state; 0: all. Then query_table, query_scale and layer_input are those of these, and
  // asked_position is the position of the first.
  int64_t asked = 0;
  Tensor asked_position{};

  // How many of the tokens of x go on, and the position of the first.
  int64_t going_on(const Tensor& x) const { return asked > 0 ? asked : x.dim(1); }
  const Tensor& query_position() const { return asked > 0 ? asked_position : position; }

  // The cache rows that the batch uses; undefined: its own.
  Tensor slots() const { return cache ? cache->slots() : Tensor(); }
};

// Documents, whose `positions` (int32 [batch, tokens]) are from 0 on, cut into chunks of `chunk`
// tokens, as Pass::chunks.
Tensor chunks_of(const Tensor& positions, int64_t chunk);

// The last `count` of x [batch, tokens, …].
Tensor last_tokens(const Tensor& x, int64_t count);

// Whether products with these weights round activations to bfloat16 where that is fast
// (kernels/matmul.h).
bool rounds_activations(DType weights);

// Appends k and v [batch, tokens, kv_heads, head_dim] to the cache of `layer` and replaces them by
// what attention reads, [batch, kv_heads, positions, head_dim]; without a cache, the given tokens.
void add_to_cache(const Pass& pass, int64_t layer, Tensor& k, Tensor& v);

// The norm of queries and keys: of each head, with one weight for all (Qwen3, Gemma 3) or one for
// each (HeadsLayerNorm), or of all heads at once, before rotation (OLMo 2).
enum class QkNorm { kNone, kHeads, kEachHead, kWhole };

struct AttentionShape {
  std::string name = "self_attn";  // of the layer, below which its parameters are
  int64_t hidden, heads, kv_heads, head_dim;
  int64_t given = 0;  // how wide x is; 0: hidden, as what it gives
  // Of q_proj, k_proj and v_proj, linear_q_adapter_list and so on; none: there are none (Zamba2).
  std::optional<OwnAddition> own_addition{};
  bool qkv_bias = false, output_bias = false;
  bool fused = false;  // one product for q, k and v (Phi-3)
  std::string fused_name = "qkv_proj";
  bool by_groups = false;       // the rows of that are, of each head of keys, its queries, its key
                                // and its value (GPT-NeoX, Falcon)
  bool borrows = false;         // attends to keys and values of another layer, and has none
  bool values_of_keys = false;  // values are what k_proj gives, which there is no v_proj for
  bool gated = false;  // q_proj has for each head, after the query, what its output is multiplied
                       // by the sigmoid of (Qwen3.5)
  std::string gate = "";          // name of a layer that gives this in place of q_proj; "": none
  bool gates_heads = false;       // it gives one number for each head (LFM3)
  bool softplus_gate = false;     // the softplus of what it gives, not the sigmoid (Laguna)
  std::string output = "o_proj";  // name of the output projection
  std::string output_norm = "";   // name of a norm of what it is given, as `norm`; "": none
  QkNorm qk_norm = QkNorm::kNone;
  std::string q_norm = "q_norm", k_norm = "k_norm";  // their names
  bool rotates_first = false;                        // norms of heads are of what rotated (Hunyuan)
  bool value_norm = false;  // values of a head are divided by their root mean square
  NormShape norm{};         // of queries and keys, or of the output
  double clip = 0;  // queries, keys and values are brought into ±clip before they rotate; 0: not
  std::optional<double> scale{};       // of q · k; none: 1 / √head_dim
  double in_scale = 1, out_scale = 1;  // what x, and what o_proj gives, is multiplied by
  double cap = 0;                      // of the scaled q · k (ops::soft_cap); 0: none
  double max_bias = 0;                 // as of ops::AttentionOptions
  bool sinks = false;                  // a parameter per head (ops::AttentionOptions::sinks)
  int64_t window = 0;                  // 0: all positions
  int64_t chunk = 0;                   // as of ops::AttentionOptions
  double dropout = 0;                  // of the weights, while training
};

// Grouped-query self-attention (Ainslie et al. 2023): q_proj, k_proj and v_proj, or qkv_proj with
// their rows one after the other, o_proj and, with a qk_norm, the two norms, with sinks, sinks. One
// that borrows has q_proj and its norm alone; the others in a checkpoint are left out.
// x [batch, tokens, hidden] → the same, or of those that are asked for.
class SelfAttention {
 public:
  SelfAttention(const Parameters& parameters, const AttentionShape& shape);
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

 private:
  AttentionShape shape_;
  std::vector<Linear> qkv_;  // q_proj, k_proj, v_proj, or qkv_proj alone
  std::optional<Linear> gate_;
  Linear o_proj_;
  std::optional<Norm> q_norm_, k_norm_, output_norm_;
  Tensor sinks_;  // [heads], or undefined
};

// Names of a layer's norms, of what self_attn and mlp are given and of what they give; "": none.
struct NormNames {
  std::string before_attention = "input_layernorm", after_attention = "";
  std::string before_mlp = "post_attention_layernorm", after_mlp = "";
};

// What a layer has: a mixer of tokens, which is attention or what is in its place, and an mlp or
// what is in its place, or one of them alone, after the norm before_attention or before_mlp
// (Nemotron-H).
enum class LayerParts { kBoth, kMixer, kMlp };

struct LayerShape {
  AttentionShape attention;
  std::optional<GatedDeltaNetShape> delta_net{};        // in place of attention, as linear_attn
  std::optional<KimiDeltaAttentionShape> kimi_delta{};  // in place of attention, as self_attn
  std::optional<LatentAttentionShape> latent{};         // in place of attention, as self_attn
  std::optional<ShortConvolutionShape> short_convolution{};  // in place of attention, as conv
  std::optional<Mamba1Shape> mamba1{};                       // in place of attention
  std::optional<Mamba2Shape> mamba{};                        // in place of attention
  std::optional<GriffinBlockShape> griffin{};                // in place of attention
  // What it gives is added to what the mixer, behind its norm, is given.
  std::optional<SharedTransformerShape> shared_transformer{};
  bool mamba_beside = false;  // of attention, which is there, too: what both give is added
  GatedMlpShape mlp;
  std::optional<PlainMlpShape> plain_mlp{};             // in place of mlp
  std::optional<SparseMlpShape> experts{};              // in place of mlp
  std::optional<GatedMlpShape> shared_mlp{};            // beside experts, as shared_mlp
  std::optional<DualMlpShape> dual_mlp{};               // in place of mlp and the norm before it
  std::optional<PerLayerInputShape> per_layer_input{};  // added behind the mlp
  // What it gives for what the mixer is given is added behind the mixer, and the sum is divided by
  // √2 (Gemma 3n).
  std::optional<LaurelShape> laurel{};
  // Around all of this but the per_layer_input, which must be there: it is given what the active
  // stream becomes, times correct_output_scale if `scales_active`, and added to all but the first.
  std::optional<AltUpShape> altup{};
  bool scales_active = false;
  LayerParts parts = LayerParts::kBoth;
  NormNames norms{};
  NormShape norm;
  bool scaled_output = false;  // what the layer gives is multiplied by the buffer layer_scalar
  bool parallel = false;       // the mlp is given what the attention is (Cohere), or, with a norm
                               // before it, that of x (GPT-NeoX)
  double residual_scale = 1;   // what both give is multiplied by it before it is added
  double dropout = 0;          // of what is added, while training
  bool drops_mixed = true;     // of what the mixer gives, too
};

using TokenMixer = std::variant<SelfAttention, LatentAttention, GatedDeltaNet, KimiDeltaAttention,
                                ShortConvolution, Mamba1, Mamba2, GriffinBlock>;
using FeedForward = std::variant<GatedMlp, PlainMlp, SparseMlp, DualMlp>;

// With attention or what is in its place: x + self_attn(x), then x + mlp(x), or, in parallel, x +
// self_attn(x) + mlp(x), or one of the two alone, with norms and scales as the shape says. With
// AltUp x and the result are all streams of a token, [batch, tokens, streams · hidden].
class DecoderLayer {
 public:
  DecoderLayer(const Parameters& parameters, const LayerShape& shape);
  // `layer` counts the layers with attention, or those with what is in its place.
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

 private:
  // x + what the branch gave, after its norm if it has one.
  Tensor added(const Tensor& x, Tensor branch, const std::optional<Norm>& norm,
               double dropout) const;
  Tensor mixed(const Tensor& x, const Pass& pass, int64_t layer) const;
  Tensor fed_forward(const Tensor& x, const Pass& pass) const;
  // What mixer and mlp make of x.
  Tensor updated(const Tensor& x, const Pass& pass, int64_t layer) const;

  LayerShape shape_;
  std::optional<TokenMixer> mixer_;
  std::optional<Mamba2> beside_;
  std::optional<SharedTransformer> shared_transformer_;
  std::optional<FeedForward> mlp_;
  std::optional<GatedMlp> shared_mlp_;
  std::optional<Norm> before_attention_, after_attention_, before_mlp_, after_mlp_;
  std::optional<PerLayerInput> per_layer_input_;
  std::optional<Laurel> laurel_;
  std::optional<AltUp> altup_;
  Tensor active_scale_;  // [hidden], or undefined
  Tensor layer_scalar_;  // [1], or undefined
};

}  // namespace lumen::nn
