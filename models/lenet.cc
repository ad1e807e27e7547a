// LeNet-5 (LeCun et al. 1998, "Gradient-Based Learning Applied to Document Recognition") with ReLU
// and maximum pooling: conv1 6×5×5, conv2 16×5×5, fc1 120, fc2 84, fc3. Images of 28×28 are padded
// to 32×32 in the first layer, as in the paper. Config: hidden_act, dropout.
#include "lib/graph/views.h"
#include "lib/nn/activation.h"
#include "lib/nn/convolution.h"
#include "lib/nn/layers.h"
#include "lib/nn/training_scope.h"
#include "models/classifier.h"

namespace lumen::models {
namespace lenet {

constexpr int64_t kChannels1 = 6, kChannels2 = 16, kExtent = 5;
constexpr std::array<int64_t, 2> kKernel = {kExtent, kExtent};

class LeNet : public Classifier {
 public:
  LeNet(const io::Json& config, const nn::Parameters& parameters)
      : input_(image_shape(config, "lenet", 16)),
        padding_(input_[1] == 28 && input_[2] == 28 ? 2 : 0),
        activation_(io::get_string(config, "hidden_act", "relu")),
        dropout_(io::get_number(config, "dropout", 0, 1, 0)),
        labels_(num_labels(config)),
        conv1_(parameters / "conv1", input_[0], kChannels1, kKernel,
               {.padding = {padding_, padding_}}),
        conv2_(parameters / "conv2", kChannels1, kChannels2, kKernel),
        fc1_(parameters / "fc1", kChannels2 * pooled(input_[1]) * pooled(input_[2]), 120, true),
        fc2_(parameters / "fc2", 120, 84, true),
        fc3_(parameters / "fc3", 84, labels_, true) {}

  Tensor logits(const Tensor& input) const override {
    const ops::PoolOptions pool = {.kernel = {2, 2}};
    Tensor x = ops::max_pool2d(activation_(conv1_(input)), pool);
    x = ops::max_pool2d(activation_(conv2_(x)), pool);
    x = graph::reshape(x, {input.dim(0), -1});
    x = nn::dropout(activation_(fc1_(x)), dropout_);
    x = nn::dropout(activation_(fc2_(x)), dropout_);
    return fc3_(x);
  }

  std::string description() const override {
    return str("LeNet, ", input_[0], "×", input_[1], "×", input_[2], " to ", labels_, " classes");
  }

 private:
  // An extent after both convolutions and poolings.
  int64_t pooled(int64_t extent) const {
    return ((extent + 2 * padding_ - kExtent + 1) / 2 - kExtent + 1) / 2;
  }

  Shape input_;
  int64_t padding_;
  nn::Activation activation_;
  double dropout_;
  int64_t labels_;
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_, fc3_;
};

std::unique_ptr<Classifier> make(const io::Json& config, const nn::Parameters& parameters) {
  return std::make_unique<LeNet>(config, parameters);
}

std::vector<io::Json> tiny_configs() {
  return {{{"model_type", "lenet"}, {"input_shape", {1, 28, 28}}, {"num_labels", 3}},
          {{"model_type", "lenet"}, {"input_shape", {3, 32, 32}}, {"num_labels", 2}}};
}

}  // namespace lenet

extern const ClassifierDef kLenet;
const ClassifierDef kLenet = {"lenet", lenet::make, lenet::tiny_configs};

}  // namespace lumen::models
