#include "lib/runtime/classify.h"

#include <algorithm>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/data/read_image.h"
#include "lib/graph/plan.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"
#include "lib/ops/ops.h"
#include "lib/runtime/output.h"
#include "lib/runtime/version.h"
#include "models/classifier.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using graph::Tensor;

// How training made numbers of pixels, from preprocessor_config.json.
struct Preprocessing {
  std::vector<double> mean, deviation;  // per channel
};

std::vector<double> numbers(const io::Json& json, const std::string& key, int64_t count) {
  const io::Json* list = io::find(json, key);
  const bool fits = list != nullptr && list->is_array() &&
                    static_cast<int64_t>(list->size()) == count &&
                    std::all_of(list->begin(), list->end(),
                                [](const io::Json& value) { return value.is_number(); });
  if (!fits) {
    fail(ErrorKind::kMalformed, "key ", quoted(key), ": expected a list of ", count,
         " numbers, one per channel");
  }
  return list->get<std::vector<double>>();
}

Preprocessing read_preprocessing(const std::string& path, int64_t channels) {
  const io::Json json = io::read_json(path);
  return with_context(io::place_of(path), [&] {
    Preprocessing result = {numbers(json, "image_mean", channels),
                            numbers(json, "image_std", channels)};
    for (const double deviation : result.deviation) {
      if (!(deviation > 0)) {
        fail(ErrorKind::kMalformed, "key 'image_std': found ", deviation, ", expected above 0");
      }
    }
    return result;
  });
}

// Names of classes by number: config.json's id2label.
std::vector<std::string> read_labels(const io::Json& config, int64_t count) {
  const io::Json* names = io::find(config, "id2label");
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) {
    const io::Json* name =
        names != nullptr && names->is_object() ? io::find(*names, str(i)) : nullptr;
    if (name == nullptr || !name->is_string()) {
      fail(ErrorKind::kMalformed, "key 'id2label': class ", i, " has no name");
    }
    labels.push_back(name->get<std::string>());
  }
  return labels;
}

// A classifier with its compiled forward pass for one picture.
class PictureClassifier {
 public:
  PictureClassifier(const std::string& directory, int64_t threads)
      : pool_(static_cast<int>(threads)) {
    const std::string config_path = directory + "/config.json";
    const std::string weights_path = directory + "/model.safetensors";
    const io::Json config = io::read_json(config_path);
    const graph::PoolScope scope(pool_);
    with_context(io::place_of(config_path), [&] {
      shape_ = models::input_shape(config);
      if (shape_.rank() != 3 || shape_[1] != shape_[2] || (shape_[0] != 1 && shape_[0] != 3)) {
        fail(ErrorKind::kUnsupported, "the network takes ", to_string(shape_),
             " numbers; only square pictures [1 or 3, size, size] can be classified");
      }
      labels_ = read_labels(config, models::num_labels(config));
    });
    const auto parameters =
        nn::Parameters::from_checkpoint(io::read_safetensors(weights_path)->arrays());
    const graph::NoGradScope no_grad;
    with_context(io::place_of(directory), [&] {
      model_ = models::make_classifier(config, parameters);
      models::check_tensors(parameters);
    });
    preprocessing_ = read_preprocessing(directory + "/preprocessor_config.json", shape_[0]);
    input_ = graph::input(DType::kF32, {1, shape_[0], shape_[1], shape_[2]}, "x");
    const Tensor probabilities = ops::softmax(model_->logits(input_));
    plan_.emplace(graph::compile({&probabilities, 1}, {.threads = pool_.threads()}));
  }

  const std::vector<std::string>& labels() const { return labels_; }

  // The probability of every class; valid until the next call.
  std::span<const float> classify(const std::string& path) {
    const Array image =
        data::read_image(path, shape_[1], preprocessing_.mean, preprocessing_.deviation);
    std::memcpy(plan_->input(input_).mutable_data(), image.data(), image.bytes());
    plan_->run(pool_);
    return plan_->output(0).as<float>();
  }

 private:
  ThreadPool pool_;
  Shape shape_;  // of one picture
  std::vector<std::string> labels_;
  Preprocessing preprocessing_;
  std::unique_ptr<models::Classifier> model_;
  Tensor input_;
  std::optional<graph::Plan> plan_;
};

}  // namespace

bool is_classifier_directory(const std::string& path) {
  const std::string config = path + "/config.json";
  return io::is_regular_file(config) && models::is_classifier(io::read_json(config));
}

void run_classifier(const RunOptions& options, const std::string& directory) {
  if (options.images.empty()) {
    fail(ErrorKind::kUsage, quoted(directory),
         " is a classifier: name the PNG or JPEG files to look at after it");
  }
  PictureClassifier classifier(directory, options.threads.value_or(default_thread_count()));
  const TextSafety safety = is_terminal(1) ? TextSafety::kTerminal : TextSafety::kPipe;
  io::Json pictures = io::Json::array();
  for (const std::string& path : options.images) {
    const std::span<const float> all = classifier.classify(path);
    const auto top = static_cast<size_t>(std::max_element(all.begin(), all.end()) - all.begin());
    const std::string& label = classifier.labels()[top];
    if (options.json) {
      io::Json probabilities = io::Json::object();
      for (size_t i = 0; i < all.size(); ++i) {
        probabilities[to_valid_utf8(classifier.labels()[i])] = all[i];
      }
      pictures.push_back({{"path", to_valid_utf8(path)},
                          {"class", to_valid_utf8(label)},
                          {"probabilities", probabilities}});
      continue;
    }
    std::string line;
    append_safe_text(line, str(path, ": ", label, " (", fixed(all[top] * 100.0, 1), " %)\n"),
                     safety);
    write_stdout(line);
  }
  if (options.json) {
    const io::Json result = {{"schema", 1},
                             {"model", to_valid_utf8(*options.model)},
                             {"images", pictures},
                             {"version", build_description()["version"]}};
    write_stdout(result.dump() + "\n");
  }
}

}  // namespace lumen::runtime
