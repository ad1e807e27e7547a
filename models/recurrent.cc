// Recurrent language models: Elman networks (1990), LSTM (Hochreiter & Schmidhuber 1997) and GRU
// (Cho et al. 2014) over token vectors, as lumen-train makes them.
//
// The cell is the model_type: "rnn" (hidden_act tanh or relu), "lstm" or "gru". Parameters:
// model.embed_tokens, model.rnn as PyTorch names them, lm_head with a bias unless tied to the
// embedding. Where attention caches keys and values of every position, the cache holds the last
// state, in the row of its position: a text can be continued at its end only.
#include "lib/nn/recurrent.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/graph/views.h"
#include "lib/nn/training_scope.h"
#include "models/model.h"

namespace lumen::models {
namespace recurrent {

struct Config {
  explicit Config(const io::Json& config)
      : model_type(io::get_string(config, "model_type")),
        hidden_size(io::get_int(config, "hidden_size", 1, limits::kDim)),
        embedding_size(io::get_int(config, "embedding_size", 1, limits::kDim, hidden_size)),
        num_hidden_layers(io::get_int(config, "num_hidden_layers", 1, limits::kLayers)),
        vocab_size(io::get_int(config, "vocab_size", 1, limits::kVocab)),
        max_position_embeddings(
            io::get_int(config, "max_position_embeddings", 1, limits::kContext, limits::kContext)),
        dropout(io::get_number(config, "dropout", 0, 1, 0)),
        tie_word_embeddings(io::get_bool(config, "tie_word_embeddings", false)),
        relu(model_type == "rnn" && io::get_string(config, "hidden_act", "tanh") == "relu") {
    if (tie_word_embeddings && embedding_size != hidden_size) {
      fail(ErrorKind::kMalformed, "tie_word_embeddings needs embedding_size ", embedding_size,
           " to be hidden_size ", hidden_size);
    }
  }

  nn::RecurrentKind kind() const {
    return model_type == "lstm"  ? nn::RecurrentKind::kLstm
           : model_type == "gru" ? nn::RecurrentKind::kGru
           : relu                ? nn::RecurrentKind::kRnnRelu
                                 : nn::RecurrentKind::kRnnTanh;
  }

  std::string model_type;
  int64_t hidden_size, embedding_size, num_hidden_layers, vocab_size, max_position_embeddings;
  double dropout;
  bool tie_word_embeddings, relu;
};

class RecurrentLm : public CausalLm {
 public:
  RecurrentLm(const Config& config, const nn::Parameters& parameters)
      : config_(config),
        embed_tokens_(parameters / "model" / "embed_tokens", config.vocab_size,
                      config.embedding_size),
        rnn_(config.kind(), parameters / "model" / "rnn", config.embedding_size, config.hidden_size,
             {.layers = config.num_hidden_layers, .dropout = config.dropout}),
        lm_head_(config.tie_word_embeddings ? nn::Linear(embed_tokens_.weight)
                                            : nn::Linear(parameters / "lm_head", config.hidden_size,
                                                         config.vocab_size, true)) {}

  nn::KvCacheShape cache_shape(int64_t batch, int64_t context) const override {
    return {config_.num_hidden_layers, batch, 1, context, config_.hidden_size};
  }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_position_embeddings; }
  bool keeps_positions() const override { return false; }

  Tensor hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                const Training&) const override {
    const Tensor x = embed_tokens_(tokens);
    if (cache == nullptr) return rnn_.run(x).output;
    const auto result = rnn_.run(x, {}, last_state(*cache, position));
    const Tensor at = shifted(position, tokens.dim(1) - 1);
    Tensor output = result.output;
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      output = keep(output, cache->k(layer), result.state.h, layer, at);
      if (result.state.c.defined()) {
        output = keep(output, cache->v(layer), result.state.c, layer, at);
      }
    }
    return output;
  }
  Tensor normalized(const Tensor& hidden) const override {
    return nn::dropout(hidden, config_.dropout);
  }
  const nn::Linear& head() const override { return lm_head_; }

 private:
  // position + by, int32 [1].
  static Tensor shifted(const Tensor& position, int64_t by) {
    const Tensor moved =
        ops::add(graph::contiguous(position, DType::kF32), graph::scalar(static_cast<float>(by)));
    return graph::contiguous(moved, DType::kI32);
  }

  // The state before `position`, [layers, 1, hidden]: zeros at the beginning of a text.
  nn::RecurrentState last_state(const nn::KvCache& cache, const Tensor& position) const {
    const Tensor start = graph::contiguous(position, DType::kF32);
    const Tensor row = graph::contiguous(
        ops::maximum(ops::sub(start, graph::scalar(1)), graph::scalar(0)), DType::kI32);
    const Tensor begun = ops::less_than(graph::scalar(0), start);
    auto rows = [&](bool keys) {
      std::vector<Tensor> layers;
      for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
        const Tensor& memory = keys ? cache.k(layer) : cache.v(layer);
        LUMEN_CHECK(memory.dim(0) == 1);
        const Tensor table = graph::reshape(memory, {memory.dim(2), memory.dim(3)});
        // Rows that were never written may hold anything.
        const Tensor state = ops::where(begun, ops::embedding(table, row), graph::scalar(0));
        layers.push_back(graph::reshape(state, {1, 1, config_.hidden_size}));
      }
      return ops::concat(layers, 0);
    };
    nn::RecurrentState state = {rows(true)};
    if (config_.kind() == nn::RecurrentKind::kLstm) state.c = rows(false);
    return state;
  }

  // `output`, with the state of `layer` written to `memory`.
  Tensor keep(const Tensor& output, const Tensor& memory, const Tensor& states, int64_t layer,
              const Tensor& at) const {
    const Tensor state =
        graph::reshape(graph::slice(states, 0, layer, layer + 1), {1, 1, 1, config_.hidden_size});
    return graph::after(output, ops::kv_append(memory, state, at));
  }

  Config config_;
  nn::Embedding embed_tokens_;
  nn::Recurrent rnn_;
  nn::Linear lm_head_;
};

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  return std::make_unique<RecurrentLm>(Config(json), parameters);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {{"model_type", "lstm"},
                         {"hidden_size", 12},
                         {"embedding_size", 7},
                         {"num_hidden_layers", 2},
                         {"vocab_size", 31}};
  io::Json gru = base, rnn = base;
  gru["model_type"] = "gru";
  gru["embedding_size"] = 12;
  gru["tie_word_embeddings"] = true;
  rnn["model_type"] = "rnn";
  return {base, gru, rnn};
}

constexpr std::string_view kModelTypes[] = {"rnn", "lstm", "gru"};

}  // namespace recurrent

extern const ModelDef kRecurrent;
const ModelDef kRecurrent = {"recurrent", recurrent::kModelTypes, recurrent::make,
                             recurrent::tiny_configs};

}  // namespace lumen::models
