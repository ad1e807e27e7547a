// A multilayer perceptron: linear layers fc1, fc2, … with an activation, and dropout while
// training, after all but the last. Config: hidden_sizes, hidden_act, dropout.
#include "lib/graph/views.h"
#include "lib/nn/activation.h"
#include "lib/nn/layers.h"
#include "lib/nn/training_scope.h"
#include "models/classifier.h"

namespace lumen::models {
namespace mlp {

class Mlp : public Classifier {
 public:
  Mlp(const io::Json& config, const nn::Parameters& parameters)
      : activation_(io::get_string(config, "hidden_act", "relu")),
        dropout_(io::get_number(config, "dropout", 0, 1, 0)) {
    std::vector<int64_t> sizes = {input_shape(config).elements()};
    if (const io::Json* hidden = io::find(config, "hidden_sizes")) {
      for (const io::Json& size : *hidden) sizes.push_back(size.get<int64_t>());
    }
    sizes.push_back(num_labels(config));
    for (size_t i = 1; i < sizes.size(); ++i) {
      layers_.emplace_back(parameters / str("fc", i), sizes[i - 1], sizes[i], true);
      widths_ += str(i > 1 ? "-" : str(sizes[0], "-"), sizes[i]);
    }
  }

  Tensor logits(const Tensor& input) const override {
    Tensor x = graph::reshape(input, {input.dim(0), -1});
    for (size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = nn::dropout(activation_(layers_[i](x)), dropout_);
    }
    return layers_.back()(x);
  }

  std::string description() const override { return "MLP " + widths_; }

 private:
  nn::Activation activation_;
  std::string widths_;
  double dropout_;
  std::vector<nn::Linear> layers_;
};

std::unique_ptr<Classifier> make(const io::Json& config, const nn::Parameters& parameters) {
  return std::make_unique<Mlp>(config, parameters);
}

std::vector<io::Json> tiny_configs() {
  return {{{"model_type", "mlp"},
           {"input_shape", {1, 4, 4}},
           {"num_labels", 3},
           {"hidden_sizes", {7, 5}}}};
}

}  // namespace mlp

extern const ClassifierDef kMlp;
const ClassifierDef kMlp = {"mlp", mlp::make, mlp::tiny_configs};

}  // namespace lumen::models
