// Networks that give one row of numbers per sample: class logits, or a value.
#pragma once

#include <memory>
#include <string>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::models {

using graph::Tensor;

// Builds graphs, owns nothing but its parameters. Keys of its config.json: "model_type", one of the
// names below; "input_shape", of one sample; "num_labels", how many numbers it gives.
class Classifier {
 public:
  virtual ~Classifier() = default;

  // x [batch, …input_shape] → [batch, num_labels].
  virtual Tensor logits(const Tensor& x) const = 0;
  // One line: "LeNet, 1×28×28 to 10 classes".
  virtual std::string description() const = 0;
};

// The network of a config: "mlp", "lenet" or "resnet9". Throws Error(kUnsupported) for another
// model_type and Error(kMalformed) for an input that it cannot take.
std::unique_ptr<Classifier> make_classifier(const io::Json& config,
                                            const nn::Parameters& parameters);

}  // namespace lumen::models
