// GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").
//
// Loads GPT-2 in all sizes and what nanoGPT-style recipes train. Differs from plain Llama by
// learned positions instead of rotation, LayerNorm instead of RMSNorm, biases everywhere, one
// product for q, k and v, a GELU feed-forward layer (Cerebras-GPT: without tanh), weights stored
// [in, out] (nn/conv1d.h), and an output head usually tied to the embedding.
#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/nn/activation.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/learned_positions.h"
#include "lib/nn/training_scope.h"
#include "models/model.h"

namespace lumen::models {
namespace gpt2 {

// By the name in the config; those that Hugging Face has too.
nn::Activation activation_of(const io::Json& config) {
  const std::vector<std::string> known = {
      "gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu", "swish", "tanh"};
  const std::string name = io::get_string(config, "activation_function", known[0]);
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    fail(ErrorKind::kUnsupported, "activation_function ", quoted(name),
         " is not supported; known: ", join(known, ", "));
  }
  return nn::Activation(name);
}

struct Config {
  explicit Config(const io::Json& config)
      : n_embd(io::get_int(config, "hidden_size", 1, limits::kDim)),
        n_layer(io::get_int(config, "num_hidden_layers", 1, limits::kLayers)),
        n_head(io::get_int(config, "num_attention_heads", 1, limits::kHeads)),
        n_inner(io::get_int(config, "intermediate_size", 1, limits::kDim, 4 * n_embd)),
        n_positions(io::get_int(config, "max_position_embeddings", 1, limits::kContext)),
        vocab_size(io::get_int(config, "vocab_size", 1, limits::kVocab)),
        layer_norm_epsilon(io::get_number(config, "layer_norm_epsilon", 0, 1, 1e-5)),
        resid_pdrop(io::get_number(config, "resid_pdrop", 0, 1, 0)),
        embd_pdrop(io::get_number(config, "embd_pdrop", 0, 1, 0)),
        attn_pdrop(io::get_number(config, "attn_pdrop", 0, 1, 0)),
        scale_attn_weights(io::get_bool(config, "scale_attn_weights", true)),
        scale_attn_by_inverse_layer_idx(
            io::get_bool(config, "scale_attn_by_inverse_layer_idx", false)),
        activation(activation_of(config)),
        order(nn::conv1d_order(config)),
        tied(io::get_bool(config, "tie_word_embeddings", true)) {
    if (n_embd % n_head != 0) {
      fail(ErrorKind::kMalformed, "n_embd ", n_embd, " is not a multiple of n_head ", n_head);
    }
  }

  // What the products of q and k are multiplied by: 1/√head_dim, and 1/(layer + 1) where the config
  // says so.
  double attention_scale(int64_t layer) const {
    const double width = scale_attn_weights ? static_cast<double>(n_embd / n_head) : 1;
    const double depth = scale_attn_by_inverse_layer_idx ? static_cast<double>(layer + 1) : 1;
    return 1 / (std::sqrt(width) * depth);
  }

  int64_t n_embd, n_layer, n_head, n_inner, n_positions, vocab_size;
  double layer_norm_epsilon;
  double resid_pdrop, embd_pdrop, attn_pdrop;  // while training
  bool scale_attn_weights, scale_attn_by_inverse_layer_idx;
  nn::Activation activation;
  nn::WeightOrder order;
  bool tied;  // the output head is the embedding
};

struct Block {
  Block(const nn::Parameters& parameters, const Config& config, int64_t layer)
      : heads(config.n_head),
        scale(config.attention_scale(layer)),
        dropout(config.resid_pdrop),
        attention_dropout(config.attn_pdrop),
        activation(config.activation),
        ln_1(parameters / "ln_1", config.n_embd, config.layer_norm_epsilon),
        c_attn(parameters / "attn" / "c_attn", config.n_embd, 3 * config.n_embd, config.order),
        c_proj(parameters / "attn" / "c_proj", config.n_embd, config.n_embd, config.order),
        ln_2(parameters / "ln_2", config.n_embd, config.layer_norm_epsilon),
        mlp_fc(parameters / "mlp" / "c_fc", config.n_embd, config.n_inner, config.order),
        mlp_proj(parameters / "mlp" / "c_proj", config.n_inner, config.n_embd, config.order) {}

  // The output for x, or for the tokens of it that are asked for.
  Tensor operator()(const Tensor& x, const nn::Pass& pass, int64_t layer) const {
    const Tensor out = nn::dropout(attention(ln_1(x), pass, layer), dropout);
    const Tensor attended = ops::add(nn::last_tokens(x, pass.going_on(x)), out);
    const Tensor inner = activation(mlp_fc(ln_2(attended)));
    return ops::add(attended, nn::dropout(mlp_proj(inner), dropout));
  }

  Tensor attention(const Tensor& x, const nn::Pass& pass, int64_t layer) const {
    const int64_t batch = x.dim(0), tokens = x.dim(1), dim = x.dim(2), asked = pass.going_on(x);
    const Tensor qkv = graph::reshape(c_attn(x), {batch, tokens, 3 * heads, dim / heads});
    const Tensor q = nn::last_tokens(graph::slice(qkv, 2, 0, heads), asked);
    Tensor k = graph::slice(qkv, 2, heads, 2 * heads);
    Tensor v = graph::slice(qkv, 2, 2 * heads, 3 * heads);
    nn::add_to_cache(pass, layer, k, v);
    const Tensor out = ops::attention(q, k, v, pass.query_position(),
                                      {.scale = scale,
                                       .segments = pass.segments,
                                       .slots = pass.slots(),
                                       .dropout = nn::attention_dropout(attention_dropout)});
    return c_proj(graph::reshape(out, {batch, asked, dim}));
  }

  int64_t heads;
  double scale;
  double dropout, attention_dropout;
  nn::Activation activation;
  nn::LayerNorm ln_1;
  nn::Conv1D c_attn, c_proj;
  nn::LayerNorm ln_2;
  nn::Conv1D mlp_fc, mlp_proj;
};

class Gpt2 : public CausalLm {
 public:
  Gpt2(const Config& config, const nn::Parameters& parameters, const nn::Parameters& head)
      : config_(config),
        wte_(parameters / "wte", config.vocab_size, config.n_embd),
        wpe_(parameters / "wpe", config.n_positions, config.n_embd),
        ln_f_(parameters / "ln_f", config.n_embd, config.layer_norm_epsilon),
        head_(config.tied ? nn::Linear(wte_.weight)
                          : nn::Linear(head, config.n_embd, config.vocab_size, false)) {
    for (int64_t i = 0; i < config.n_layer; ++i) {
      blocks_.emplace_back(parameters / "h" / str(i), config, i);
    }
  }

  nn::KvCacheShape cache_shape(int64_t batch, int64_t context) const override {
    return {config_.n_layer, batch, config_.n_head, context, config_.n_embd / config_.n_head};
  }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.n_positions; }

  Tensor hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                const Training& training) const override {
    return run_all(tokens, position, cache, training, tokens.dim(1));
  }
  Tensor last_hidden(const Tensor& tokens, const Tensor& position, nn::KvCache& cache,
                     int64_t count) const override {
    return run_all(tokens, position, &cache, {}, count);
  }
  Tensor normalized(const Tensor& hidden) const override { return ln_f_(hidden); }
  const nn::Linear& head() const override { return head_; }

 private:
  Tensor run_all(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                 const Training& training, int64_t asked) const {
    nn::Pass pass = {position, {}, {}, {}, nullptr, cache, training.segments};
    const Tensor positions = wpe_(position, tokens.dim(1), training.positions);
    Tensor x = nn::dropout(ops::add(wte_(tokens), positions), config_.embd_pdrop);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (asked < tokens.dim(1) && i + 1 == blocks_.size()) {
        pass.asked = asked;
        pass.asked_position = ops::add(position, tokens.dim(1) - asked);
      }
      x = run_layer(training.recompute, x, [this, i, pass](const Tensor& in) {
        return blocks_[i](in, pass, static_cast<int64_t>(i));
      });
    }
    return x;
  }

  Config config_;
  nn::Embedding wte_;
  nn::LearnedPositions wpe_;
  std::vector<Block> blocks_;
  nn::LayerNorm ln_f_;
  nn::Linear head_;
};

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const auto place =
      parameters.with_normal_weights(io::get_number(json, "initializer_range", 0, 1, 0.02));
  return std::make_unique<Gpt2>(Config(json), place / "transformer", place / "lm_head");
}

std::vector<io::Json> tiny_configs() {
  const io::Json tied = {{"model_type", "gpt2"},   {"hidden_size", 24},
                         {"num_hidden_layers", 2}, {"num_attention_heads", 3},
                         {"vocab_size", 41},       {"max_position_embeddings", 32}};
  io::Json untied = tied;
  untied["tie_word_embeddings"] = false;
  io::Json scaled = tied;
  scaled["scale_attn_weights"] = false;
  scaled["scale_attn_by_inverse_layer_idx"] = true;
  io::Json exact = tied;
  exact["activation_function"] = "gelu";
  io::Json from_gguf = tied;
  from_gguf["conv1d_out_in"] = true;
  return {tied, untied, scaled, exact, from_gguf};
}

constexpr std::string_view kModelTypes[] = {"gpt2"};

}  // namespace gpt2

extern const ModelDef kGpt2;
const ModelDef kGpt2 = {"gpt2", gpt2::kModelTypes, gpt2::make, gpt2::tiny_configs};

}  // namespace lumen::models
