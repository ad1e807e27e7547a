#include "models/classifier.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::models {

bool is_classifier(const io::Json& config) {
  const io::Json* type = io::find(config, "model_type");
  if (type == nullptr || !type->is_string()) return false;
  const auto list = classifier_list();
  return std::any_of(list.begin(), list.end(),
                     [&](const ClassifierDef* def) { return *type == def->name; });
}

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

Shape image_shape(const io::Json& config, std::string_view name, int64_t least) {
  const Shape shape = input_shape(config);
  if (shape.rank() != 3 || shape[1] < least || shape[2] < least) {
    fail(ErrorKind::kMalformed, name, " needs images [channels, height, width] of at least ", least,
         "×", least, "; found ", to_string(shape));
  }
  return shape;
}

int64_t num_labels(const io::Json& config) {
  return io::get_int(config, "num_labels", 1, limits::kDim);
}

}  // namespace lumen::models
