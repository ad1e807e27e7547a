// Networks that give one row of numbers per sample: class logits, or a value.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::models {

using graph::Tensor;

// Builds graphs, owns nothing but its parameters. Keys of its config.json: "model_type", the name
// of its definition; "input_shape", of one sample; "num_labels", how many numbers it gives.
class Classifier {
 public:
  virtual ~Classifier() = default;

  // x [batch, …input_shape] → [batch, num_labels].
  virtual Tensor logits(const Tensor& x) const = 0;
  // One line: "LeNet, 1×28×28 to 10 classes".
  virtual std::string description() const = 0;
};

// One per file of this folder, listed in models/meson.build.
struct ClassifierDef {
  std::string_view name;
  // Throws Error(kMalformed) for an input that it cannot take.
  std::unique_ptr<Classifier> (*make)(const io::Json& config, const nn::Parameters& parameters);
  std::vector<io::Json> (*tiny_configs)();  // for tests
};

std::span<const ClassifierDef* const> classifier_list();

// Whether config["model_type"] is a classifier's; false if it has none.
bool is_classifier(const io::Json& config);

// The network of a config. Throws Error(kUnsupported) for another model_type.
std::unique_ptr<Classifier> make_classifier(const io::Json& config,
                                            const nn::Parameters& parameters);

// What all of them read from their config.
Shape input_shape(const io::Json& config);
// input_shape of images [channels, height, width] of at least least × least for the network `name`.
// Throws Error(kMalformed) for another.
Shape image_shape(const io::Json& config, std::string_view name, int64_t least);
int64_t num_labels(const io::Json& config);

}  // namespace lumen::models
