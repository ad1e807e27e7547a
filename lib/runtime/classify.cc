#include "lib/runtime/classify.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/function_ref.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/data/feature_rows.h"
#include "lib/data/read_image.h"
#include "lib/graph/plan.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"
#include "lib/ops/ops.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/version.h"
#include "models/classifier.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using graph::Tensor;

std::vector<double> numbers(const io::Json& json, const std::string& key, int64_t count) {
  const io::Json* list = io::find(json, key);
  const bool fits = list != nullptr && list->is_array() &&
                    static_cast<int64_t>(list->size()) == count &&
                    std::all_of(list->begin(), list->end(),
                                [](const io::Json& value) { return value.is_number(); });
  if (!fits) {
    fail(ErrorKind::kMalformed, "key ", quoted(key), ": expected a list of ", count,
         " numbers, one per channel or feature");
  }
  return list->get<std::vector<double>>();
}

// How training made the network's numbers, from preprocessor_config.json: of pixels per channel, of
// tables per feature.
data::FeatureNames read_preprocessing(const std::string& path, const Shape& input) {
  const io::Json json = io::read_json(path);
  return with_context(io::place_of(path), [&] {
    data::FeatureNames result;
    result.mean = numbers(json, "image_mean", input[0]);
    result.std = numbers(json, "image_std", input[0]);
    for (const double deviation : result.std) {
      if (!(deviation > 0)) {
        fail(ErrorKind::kMalformed, "key 'image_std': found ", deviation, ", expected above 0");
      }
    }
    if (input.rank() == 3) return result;
    result.has_header = io::get_bool(json, "header", true);
    const io::Json* names = io::find(json, "feature_names");
    for (int64_t i = 0; i < input[0]; ++i) {
      const bool has =
          names != nullptr && names->is_array() && names->size() > static_cast<size_t>(i);
      if (!has || !(*names)[static_cast<size_t>(i)].is_string()) {
        fail(ErrorKind::kMalformed, "key 'feature_names': feature ", i, " has no name");
      }
      result.names.push_back((*names)[static_cast<size_t>(i)].get<std::string>());
    }
    return result;
  });
}

// Names of classes by number: config.json's id2label. None if the network gives a number.
std::vector<std::string> read_labels(const io::Json& config, int64_t count) {
  const io::Json* names = io::find(config, "id2label");
  if (names == nullptr && count == 1) return {};
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

// A network of lumen-train's with its compiled forward pass for one picture or row.
class TrainedNetwork {
 public:
  TrainedNetwork(const std::string& directory, int64_t threads) : pool_(static_cast<int>(threads)) {
    const std::string config_path = directory + "/config.json";
    const std::string weights_path = directory + "/model.safetensors";
    const io::Json config = io::read_json(config_path);
    const graph::PoolScope scope(pool_);
    with_context(io::place_of(config_path), [&] {
      shape_ = models::input_shape(config);
      const bool picture =
          shape_.rank() == 3 && shape_[1] == shape_[2] && (shape_[0] == 1 || shape_[0] == 3);
      if (!picture && shape_.rank() != 1) {
        fail(ErrorKind::kUnsupported, "the network takes ", to_string(shape_),
             " numbers; only square pictures [1 or 3, size, size] and rows of tables can be "
             "classified");
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
    preprocessing_ = read_preprocessing(directory + "/preprocessor_config.json", shape_);
    Shape one = {1};
    for (const int64_t extent : shape_) one.push_back(extent);
    input_ = graph::input(DType::kF32, one, "x");
    const Tensor logits = model_->logits(input_);
    const Tensor out = labels_.empty() ? logits : ops::softmax(logits);
    plan_.emplace(graph::compile({&out, 1}, {.threads = pool_.threads()}));
  }

  bool takes_pictures() const { return shape_.rank() == 3; }
  // Empty: it gives a number.
  const std::vector<std::string>& labels() const { return labels_; }

  // One for each picture, or row of a table: calls found(place, scores), the scores being the
  // probabilities of all classes or the number; `line` is 0 for pictures.
  void look_at(const std::string& path,
               FunctionRef<void(int64_t line, std::span<const float> scores)> found) {
    if (takes_pictures()) {
      const Array image =
          data::read_image(path, shape_[1], preprocessing_.mean, preprocessing_.std);
      return found(0, run(image.as<float>()));
    }
    const data::FeatureRows rows = data::read_feature_rows(path, preprocessing_);
    const auto width = static_cast<size_t>(shape_[0]);
    for (size_t i = 0; i < rows.lines.size(); ++i) {
      found(rows.lines[i], run(std::span(rows.x).subspan(i * width, width)));
    }
  }

 private:
  std::span<const float> run(std::span<const float> x) {
    std::copy(x.begin(), x.end(), plan_->input(input_).as_mutable<float>().begin());
    plan_->run(pool_);
    return plan_->output(0).as<float>();
  }

  ThreadPool pool_;
  Shape shape_;  // of one picture or row
  std::vector<std::string> labels_;
  data::FeatureNames preprocessing_;
  std::unique_ptr<models::Classifier> model_;
  Tensor input_;
  std::optional<graph::Plan> plan_;
};

io::Json to_json(const std::vector<std::string>& labels, const std::string& path, int64_t line,
                 std::span<const float> scores, size_t top) {
  io::Json out = {{"path", to_valid_utf8(path)}};
  if (line > 0) out["line"] = line;
  if (labels.empty()) {
    out["value"] = scores[0];
    return out;
  }
  out["class"] = to_valid_utf8(labels[top]);
  out["probabilities"] = io::Json::object();
  for (size_t i = 0; i < labels.size(); ++i) {
    out["probabilities"][to_valid_utf8(labels[i])] = scores[i];
  }
  return out;
}

}  // namespace

bool is_classifier_directory(const std::string& path) {
  const std::string config = path + "/config.json";
  return io::is_regular_file(config) && models::is_classifier(io::read_config(config));
}

void run_classifier(const RunOptions& options, const std::string& directory) {
  if (options.images.empty()) {
    fail(ErrorKind::kUsage, quoted(directory),
         " is a classifier: name the PNG or JPEG files, or tables (CSV), to look at after it");
  }
  TrainedNetwork network(directory, options.threads.value_or(default_thread_count()));
  const std::vector<std::string>& labels = network.labels();
  const TextSafety safety = is_terminal(1) ? TextSafety::kTerminal : TextSafety::kPipe;
  io::Json results = io::Json::array();
  for (const std::string& path : options.images) {
    network.look_at(path, [&](int64_t line, std::span<const float> scores) {
      const auto top =
          static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
      if (options.json) {
        results.push_back(to_json(labels, path, line, scores, top));
        return;
      }
      const std::string answer = labels.empty()
                                     ? str(scores[0])
                                     : str(labels[top], " (", fixed(scores[top] * 100.0, 1), " %)");
      std::string out;
      append_safe_text(out, str(path, line > 0 ? str(":", line) : "", ": ", answer, "\n"), safety);
      write_stdout(out);
    });
  }
  if (options.json) {
    const io::Json result = {{"schema", 1},
                             {"model", to_valid_utf8(*options.model)},
                             {network.takes_pictures() ? "images" : "rows", results},
                             {"version", build_description()["version"]}};
    write_stdout(result.dump() + "\n");
  }
}

}  // namespace lumen::runtime
