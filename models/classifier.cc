#include "models/classifier.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/ops/ops.h"

namespace lumen::models {

std::unique_ptr<Classifier> make_classifier(const io::Json& config,
                                            const nn::Parameters& parameters) {
  const std::string type = io::get_string(config, "model_type");
  std::vector<std::string> known;
  for (const ClassifierDef* def : classifier_list()) {
    if (def->name == type) return def->make(config, parameters);
    known.emplace_back(def->name);
  }
  fail(ErrorKind::kUnsupported, "model_type ", quoted(type),
       " is no classifier; known: ", join(known, ", "));
}

Shape input_shape(const io::Json& config) {
  const io::Json* list = io::find(config, "input_shape");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > 3) {
    fail(ErrorKind::kMalformed, "key 'input_shape': expected a list of one to three extents");
  }
  Shape shape;
  for (const io::Json& extent : *list) {
    if (!extent.is_number_integer() || extent < 1 || extent > limits::kDim) {
      fail(ErrorKind::kMalformed, "key 'input_shape': an extent is not from 1 to ", limits::kDim);
    }
    shape.push_back(extent.get<int64_t>());
  }
  return shape;
}

int64_t num_labels(const io::Json& config) {
  return io::get_int(config, "num_labels", 1, limits::kDim);
}

Tensor activation(const std::string& name, const Tensor& x) {
  if (name == "relu") return ops::relu(x);
  if (name == "gelu") return ops::gelu_tanh(x);
  if (name == "silu") return ops::silu(x);
  if (name == "tanh") return ops::tanh(x);
  if (name == "sigmoid") return ops::sigmoid(x);
  fail(ErrorKind::kUnsupported, "hidden_act ", quoted(name),
       " is not supported; known: relu, gelu, silu, tanh, sigmoid");
}

}  // namespace lumen::models
