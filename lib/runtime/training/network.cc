#include "lib/runtime/training/network.h"

#include "lib/base/error.h"
#include "lib/data/batch.h"
#include "lib/graph/views.h"
#include "lib/io/model_files.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/loss.h"
#include "lib/runtime/training/recipe.h"
#include "models/classifier.h"

namespace lumen::runtime {
namespace {

using graph::Tensor;

const Tensor& field(const Fields& fields, const char* name) {
  auto found = fields.find(name);
  LUMEN_CHECK(found != fields.end());
  return found->second;
}

// Like dropout, label smoothing and even use of experts are means of training: a perplexity has no
// part of them.
double smoothing(const NetworkOptions& options) {
  return nn::TrainingScope::current() != nullptr ? options.label_smoothing : 0;
}

double router_weight(const NetworkOptions& options, const io::Json& config) {
  constexpr const char* kKey = "router_aux_loss_coef";
  const bool given = io::get_bool(config, "output_router_logits", false);
  const double own = given ? io::get_number(config, kKey, 0, 1e30, 0.001) : 0;
  return options.router_aux_loss_coef.value_or(own);
}

// 1 where `values` are not `value`, else 0.
Tensor differs_from(const Tensor& values, int32_t value) {
  return ops::sub(graph::scalar(1),
                  ops::equal(graph::contiguous(values, DType::kF32), graph::scalar(value)));
}

Tensor zero_position() {
  const int32_t zero = 0;
  return graph::constant(Array::from<int32_t>(std::span(&zero, 1), {1}));
}

class LanguageNetwork : public Network {
 public:
  LanguageNetwork(const io::Json& config, const nn::Parameters& parameters,
                  const NetworkOptions& options)
      : config_(config), options_(options) {
    const io::Json classic = io::classic_config(config, false);
    router_weight_ = router_weight(options, classic);
    model_ = models::find_model_def(classic).make(classic, parameters);
    description_ =
        str(io::get_string(classic, "model_type"), ", ",
            classic["num_hidden_layers"].get<int64_t>(), " layers of ",
            classic["hidden_size"].get<int64_t>(), ", vocabulary ", model_->vocab_size());
  }

  Tensor loss_sum(const Fields& fields) const override {
    const Tensor& tokens = field(fields, "tokens");
    models::Training training;
    training.recompute = options_.recompute;
    std::vector<Tensor> router_logits;
    const bool balances = router_weight_ > 0 && nn::TrainingScope::current() != nullptr;
    if (balances) training.router_logits = &router_logits;
    if (auto found = fields.find("segments"); found != fields.end()) {
      training.segments = found->second;
      training.positions = field(fields, "positions");
    }
    const Tensor hidden =
        model_->normalized(model_->hidden(tokens, zero_position(), nullptr, training));
    const int64_t rows = tokens.shape().elements();
    const Tensor flat = graph::reshape(hidden, {rows, hidden.dim(-1)});
    const Tensor targets = graph::reshape(field(fields, "targets"), {rows});
    const Tensor loss = loss_of_rows(flat, targets);
    if (router_logits.empty()) return loss;
    // The whole is divided by the number of targets that count.
    const Tensor seen = training.segments.defined()
                            ? differs_from(training.segments, data::kPadding)
                            : ops::full(tokens.shape(), 1);
    const Tensor balance = nn::load_balancing_loss(router_logits, model_->used_experts(), seen);
    const Tensor count = ops::sum(differs_from(targets, data::kIgnored), ops::kAllAxes, false);
    return ops::add(loss, ops::mul(ops::mul(balance, count), router_weight_));
  }

  Tensor class_logits(const Fields&) const override { return {}; }
  io::Json config() const override { return config_; }
  std::string description() const override { return description_; }
  const models::CausalLm* language_model() const override { return model_.get(); }

 private:
  // Σ losses of the head's logits for `flat` [rows, hidden].
  Tensor loss_of_rows(const Tensor& flat, const Tensor& targets) const {
    const nn::Linear& head = model_->head();
    const double smooth = smoothing(options_), cap = model_->logit_cap();
    if (head.bias.defined() || head.addition || smooth > 0) {
      return ops::cross_entropy(ops::soft_cap(head(flat), cap), targets,
                                {.label_smoothing = smooth, .reduction = ops::Reduction::kSum});
    }
    const Tensor counts = differs_from(targets, data::kIgnored);
    const bool plain = head.weight.dtype() == DType::kF32;  // a frozen base may be quantised
    const Tensor weight = plain ? head.weight : graph::contiguous(head.weight, DType::kF32);
    return ops::linear_cross_entropy(flat, weight, targets, counts, cap);
  }

  io::Json config_;
  NetworkOptions options_;
  double router_weight_ = 0;
  std::string description_;
  std::unique_ptr<models::CausalLm> model_;
};

class ClassifierNetwork : public Network {
 public:
  ClassifierNetwork(const io::Json& config, const nn::Parameters& parameters,
                    const NetworkOptions& options)
      : config_(config), options_(options), model_(models::make_classifier(config, parameters)) {}

  Tensor loss_sum(const Fields& fields) const override {
    const Tensor out = model_->logits(field(fields, "x"));
    const Tensor& y = field(fields, "y");
    if (y.dtype() != DType::kI32) {
      const Tensor fills = ops::isnan(y);  // data::kIgnoredNumber
      return ops::mse_loss(ops::where(fills, 0, graph::reshape(out, y.shape())),
                           ops::where(fills, 0, y), ops::Reduction::kSum);
    }
    return ops::cross_entropy(
        out, y, {.label_smoothing = smoothing(options_), .reduction = ops::Reduction::kSum});
  }

  Tensor class_logits(const Fields& fields) const override {
    if (field(fields, "y").dtype() != DType::kI32) return {};
    return model_->logits(field(fields, "x"));
  }
  io::Json config() const override { return config_; }
  std::string description() const override { return model_->description(); }

 private:
  io::Json config_;
  NetworkOptions options_;
  std::unique_ptr<models::Classifier> model_;
};

io::Json classifier_config(const ModelRecipe& model, const DataShape& data) {
  if (data.features.rank() == 0) {
    fail(ErrorKind::kUsage, "model.type ", quoted(*model.type),
         " needs images or tables; the data are text");
  }
  io::Json shape = io::Json::array();
  for (int64_t extent : data.features) shape.push_back(extent);
  io::Json config = {{"model_type", *model.type},
                     {"input_shape", shape},
                     {"num_labels", std::max<int64_t>(1, data.classes)}};
  if (!model.hidden.empty()) config["hidden_sizes"] = model.hidden;
  if (model.activation) config["hidden_act"] = *model.activation;
  if (model.dropout) config["dropout"] = *model.dropout;
  if (model.channels) config["channels"] = *model.channels;
  return config;
}

io::Json llama_config(const ModelRecipe& m, int64_t vocab) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", *m.dim},
          {"intermediate_size", *m.ffn},
          {"num_hidden_layers", *m.layers},
          {"num_attention_heads", *m.heads},
          {"num_key_value_heads", *m.kv_heads},
          {"head_dim", *m.head_dim},
          {"hidden_act", "silu"},
          {"max_position_embeddings", *m.context},
          {"rms_norm_eps", *m.norm_eps},
          {"rope_theta", *m.rope_theta},
          {"tie_word_embeddings", m.tie_embeddings.value_or(true)},
          {"hidden_dropout", m.dropout.value_or(0)},
          {"torch_dtype", "float32"},
          {"vocab_size", vocab}};
}

io::Json gpt2_config(const ModelRecipe& m, int64_t vocab) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", *m.dim},
          {"n_inner", *m.ffn},
          {"n_layer", *m.layers},
          {"n_head", *m.heads},
          {"n_positions", *m.context},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", *m.norm_eps},
          {"resid_pdrop", m.dropout.value_or(0)},
          {"embd_pdrop", m.dropout.value_or(0)},
          {"attn_pdrop", m.dropout.value_or(0)},
          {"tie_word_embeddings", m.tie_embeddings.value_or(true)},
          {"torch_dtype", "float32"},
          {"vocab_size", vocab}};
}

io::Json recurrent_config(const ModelRecipe& m, int64_t vocab) {
  const int64_t hidden = m.hidden.empty() ? 256 : m.hidden[0];
  return {{"model_type", *m.type},
          {"hidden_size", hidden},
          {"embedding_size", m.embedding.value_or(hidden)},
          {"num_hidden_layers", m.layers.value_or(1)},
          {"num_attention_heads", 1},
          {"intermediate_size", hidden},
          {"max_position_embeddings", limits::kContext},
          {"hidden_act", m.activation.value_or("tanh")},
          {"dropout", m.dropout.value_or(0)},
          {"tie_word_embeddings", m.tie_embeddings.value_or(false)},
          {"torch_dtype", "float32"},
          {"vocab_size", vocab}};
}

}  // namespace

io::Json network_config(const ModelRecipe& model, const DataShape& data) {
  const std::string& type = *model.type;
  if (models::is_classifier({{"model_type", type}})) return classifier_config(model, data);
  if (data.vocab == 0) {
    fail(ErrorKind::kUsage, "model.type ", quoted(type),
         " continues text; the data are images or tables");
  }
  if (type == "llama") return llama_config(model, data.vocab);
  if (type == "gpt2") return gpt2_config(model, data.vocab);
  return recurrent_config(model, data.vocab);
}

std::unique_ptr<Network> make_network(const io::Json& config, const nn::Parameters& parameters,
                                      const NetworkOptions& options) {
  if (models::is_classifier(config)) {
    return std::make_unique<ClassifierNetwork>(config, parameters, options);
  }
  return std::make_unique<LanguageNetwork>(config, parameters, options);
}

}  // namespace lumen::runtime
