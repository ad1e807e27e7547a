// ResNet-9 (the small residual network of the DAWNBench entries, after He et al. 2016, "Deep
// Residual Learning for Image Recognition"): convolutions 3×3 without bias, each with batch
// normalisation and ReLU; channels c, 2c, [2c, 2c], 4c, 8c, [8c, 8c] with residual connections
// around the pairs, maximum pooling in between, dropout, a linear layer. Config: channels (c, 64),
// dropout.
#include "lib/base/limits.h"
#include "lib/graph/views.h"
#include "lib/nn/convolution.h"
#include "lib/nn/layers.h"
#include "lib/nn/normalization.h"
#include "lib/nn/training_scope.h"
#include "models/classifier.h"

namespace lumen::models {
namespace resnet9 {

ops::Conv2dOptions same_size() {
  ops::Conv2dOptions options;
  options.padding = {1, 1};
  return options;
}

struct ConvBlock {
  ConvBlock(const nn::Parameters& parameters, int64_t in, int64_t out)
      : conv(parameters / "conv", in, out, {3, 3}, same_size(), false),
        bn(parameters / "bn", out) {}
  Tensor operator()(const Tensor& x) const { return ops::relu(bn(conv(x))); }

  nn::Conv2d conv;
  nn::BatchNorm2d bn;
};

struct Residual {
  Residual(const nn::Parameters& parameters, int64_t channels)
      : first(parameters / "0", channels, channels), second(parameters / "1", channels, channels) {}
  Tensor operator()(const Tensor& x) const { return ops::add(x, second(first(x))); }

  ConvBlock first, second;
};

class ResNet9 : public Classifier {
 public:
  ResNet9(const io::Json& config, const nn::Parameters& parameters)
      : input_(image_shape(config, "resnet9", 8)),
        channels_(io::get_int(config, "channels", 1, limits::kDim / 8, 64)),
        labels_(num_labels(config)),
        dropout_(io::get_number(config, "dropout", 0, 1, 0)),
        conv1_(parameters / "conv1", input_[0], channels_),
        conv2_(parameters / "conv2", channels_, 2 * channels_),
        res1_(parameters / "res1", 2 * channels_),
        conv3_(parameters / "conv3", 2 * channels_, 4 * channels_),
        conv4_(parameters / "conv4", 4 * channels_, 8 * channels_),
        res2_(parameters / "res2", 8 * channels_),
        classifier_(parameters / "classifier", 8 * channels_, labels_, true) {}

  Tensor logits(const Tensor& input) const override {
    const ops::PoolOptions pool = {.kernel = {2, 2}};
    Tensor x = res1_(ops::max_pool2d(conv2_(conv1_(input)), pool));
    x = ops::max_pool2d(conv3_(x), pool);
    x = res2_(ops::max_pool2d(conv4_(x), pool));
    x = ops::max_pool2d(x, {.kernel = {x.dim(2), x.dim(3)}});
    return classifier_(nn::dropout(graph::reshape(x, {input.dim(0), -1}), dropout_));
  }

  std::string description() const override {
    return str("ResNet-9 of ", channels_, " channels, ", input_[0], "×", input_[1], "×", input_[2],
               " to ", labels_, " classes");
  }

 private:
  Shape input_;
  int64_t channels_, labels_;
  double dropout_;
  ConvBlock conv1_, conv2_;
  Residual res1_;
  ConvBlock conv3_, conv4_;
  Residual res2_;
  nn::Linear classifier_;
};

std::unique_ptr<Classifier> make(const io::Json& config, const nn::Parameters& parameters) {
  return std::make_unique<ResNet9>(config, parameters);
}

std::vector<io::Json> tiny_configs() {
  return {{{"model_type", "resnet9"},
           {"input_shape", {3, 16, 16}},
           {"num_labels", 3},
           {"channels", 2}}};
}

}  // namespace resnet9

extern const ClassifierDef kResnet9;
const ClassifierDef kResnet9 = {"resnet9", resnet9::make, resnet9::tiny_configs};

}  // namespace lumen::models
