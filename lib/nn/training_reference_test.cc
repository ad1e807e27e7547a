// Follows the shared training references: fixed weights, batches and optimizer, with the losses of
// every step in float64. Networks and optimizers are read from each case's reference.json.
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "lib/autograd/autograd.h"
#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/io/gzip.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/io/npy.h"
#include "lib/io/safetensors.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/simd.h"
#include "lib/nn/convolution.h"
#include "lib/nn/layers.h"
#include "lib/nn/pooling.h"
#include "lib/nn/recurrent.h"
#include "lib/ops/loss.h"
#include "lib/optim/clip.h"
#include "lib/optim/optimizer.h"

using namespace lumen;
using nn::Parameters;
using nn::Tensor;

namespace {

using lumen::testing::relative_error;

std::string text_of(const std::string& path) {
  const auto buffer = io::map_file(path);
  const std::span<const std::byte> bytes(buffer->data, buffer->bytes);
  if (io::is_gzip(bytes)) return io::gunzip(bytes, uint64_t{1} << 30);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// All numbers of a text, in order: "Conv2d(1,8,3,pad 1) conv1" → 2 1 8 3 1 1.
std::vector<double> numbers(const std::string& text) {
  std::vector<double> found;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) ||
                                 text[end] == '.' || (end > i && text[end] == 'e') ||
                                 (end > i && text[end] == '-' && text[end - 1] == 'e'))) {
      ++end;
    }
    while (end > i && (text[end - 1] == '.' || text[end - 1] == 'e')) --end;
    double value;
    if (end > i && parse_number(std::string_view(text).substr(i, end - i), value)) {
      found.push_back(value);
      i = end;
    } else {
      ++i;
    }
  }
  return found;
}

// The number after a word: "lr 1e-3, …" → 0.001.
std::optional<double> after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word + " ");
  if (at == text.npos) return {};
  return numbers(text.substr(at + word.size())).front();
}

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at; (at = text.find(separator, begin)) != text.npos; begin = at + separator.size()) {
    parts.push_back(text.substr(begin, at - begin));
  }
  parts.push_back(text.substr(begin));
  return parts;
}

using Layer = std::function<Tensor(const Tensor&)>;

// "Linear(784,64) fc1", "LSTM(24->48, torch gate order i f g o) rnn", "MaxPool2", "ReLU".
Layer layer_of(const std::string& text, const Parameters& parameters) {
  const size_t open = text.find('('), close = text.rfind(')');
  const std::string kind = text.substr(0, open);
  const std::string inside = open == text.npos ? "" : text.substr(open + 1, close - open - 1);
  const std::string name = close == text.npos ? "" : text.substr(close + 2);
  std::vector<int64_t> n;
  for (const double number : numbers(inside)) n.push_back(static_cast<int64_t>(number));
  const Parameters place = parameters / name;
  if (kind == "ReLU") return ops::relu;
  if (kind == "Tanh") return ops::tanh;
  if (kind == "MaxPool2") return nn::MaxPool2d(2);
  if (kind == "Embedding") return nn::Embedding(place, n[0], n[1]);
  if (kind == "Conv2d") {
    const ops::Conv2dOptions options = {.padding = {n.at(3), n.at(3)}};
    return nn::Conv2d(place, n[0], n[1], {n[2], n[2]}, options);
  }
  if (kind == "Linear") {
    // Images become rows.
    return [linear = nn::Linear(place, n[0], n[1], true), width = n[0]](const Tensor& x) {
      return linear(x.dim(x.rank() - 1) == width ? x : nn::Flatten()(x));
    };
  }
  if (kind == "LSTM") {
    auto lstm = std::make_shared<nn::Lstm>(place, n[0], n[1]);
    return [lstm](const Tensor& x) { return (*lstm)(x); };
  }
  if (kind == "GRU") {
    auto gru = std::make_shared<nn::Gru>(place, n[0], n[1]);
    return [gru](const Tensor& x) { return (*gru)(x); };
  }
  if (kind == "RNN") {
    auto rnn = std::make_shared<nn::Rnn>(place, n[0], n[1], nn::RecurrentOptions{},
                                         testing::contains(inside, "relu"));
    return [rnn](const Tensor& x) { return (*rnn)(x); };
  }
  fail(ErrorKind::kUnsupported, "the reference has a layer ", quoted(text));
}

optim::OptimizerConfig optimizer_of(const std::string& text) {
  optim::OptimizerConfig config;
  config.type = text.starts_with("SGD") ? "sgd" : text.starts_with("AdamW") ? "adamw" : "adam";
  config.weight_decay = after(text, "weight_decay").value_or(0);
  if (const size_t at = text.find("betas "); at != text.npos) {
    const auto betas = numbers(text.substr(at));
    config.betas = {betas[0], betas[1]};
  }
  config.eps = after(text, "eps");
  config.momentum = after(text, "momentum");
  return config;
}

// Batch i, in memory of the two inputs.
struct Data {
  std::string images, labels, text;
  std::vector<int32_t> ids;

  void load(bool language) {
    const std::string base = testing::shared_data("datasets");
    if (language) {
      text = text_of(base + "/text/tinyshakespeare.txt");
      const std::set<char> characters(text.begin(), text.end());
      const std::vector<char> sorted(characters.begin(), characters.end());
      for (const char c : text) {
        ids.push_back(static_cast<int32_t>(std::ranges::lower_bound(sorted, c) - sorted.begin()));
      }
    } else {
      images = text_of(base + "/mnist/train-images-idx3-ubyte.gz");
      labels = text_of(base + "/mnist/train-labels-idx1-ubyte.gz");
    }
  }

  // Rows i · rows … of the training set: pixels / 255.
  void fill_images(int64_t i, Array& x, Array& y) const {
    constexpr int64_t kImageHeader = 16, kLabelHeader = 8;
    const int64_t rows = y.elements(), pixels = x.elements() / rows;
    auto pixel = x.as_mutable<float>();
    for (int64_t j = 0; j < x.elements(); ++j) {
      pixel[j] = static_cast<float>(
          static_cast<uint8_t>(images[kImageHeader + i * rows * pixels + j]) / 255.0);
    }
    auto label = y.as_mutable<int32_t>();
    for (int64_t j = 0; j < rows; ++j) label[j] = labels[kLabelHeader + i * rows + j];
  }

  // Consecutive pieces of text; targets are one character on.
  void fill_text(int64_t i, Array& x, Array& y) const {
    const int64_t first = i * x.elements();
    std::copy_n(ids.begin() + first, x.elements(), x.as_mutable<int32_t>().begin());
    std::copy_n(ids.begin() + first + 1, y.elements(), y.as_mutable<int32_t>().begin());
  }
};

// With AMX in exact float32 (`precision = "highest"`): products on tiles promise 4e-6 each, not
// 1e-5 after all layers.
void follow(const std::string& root, const std::string& name) {
  const kernels::ExactProductsScope exact(kernels::uses_amx());
  const std::string directory = root + "/" + name;
  const io::Json reference = io::read_json(directory + "/reference.json");
  std::string network = reference["network"];
  if (network.starts_with("as ")) {
    const std::string other = root + "/" + network.substr(3) + "/reference.json";
    network = io::read_json(other)["network"];
  }
  const bool language = network.starts_with("Embedding");
  const bool spatial = testing::contains(network, "Conv2d");
  const int64_t batch = reference["batch"];
  const auto parameters =
      Parameters::trainable(io::read_safetensors(directory + "/init.safetensors")->arrays());
  std::vector<Layer> layers;
  for (const std::string& text : split(network, " - ")) {
    layers.push_back(layer_of(text, parameters));
  }
  CHECK(parameters.check().empty());

  const Array logits0 = io::read_npy(directory + "/logits0.npy");
  const int64_t classes = logits0.shape()[-1], rows = logits0.elements() / classes;
  const Tensor x = language  ? graph::input(DType::kI32, {batch, rows / batch}, "x")
                   : spatial ? graph::input(DType::kF32, {batch, 1, 28, 28}, "x")
                             : graph::input(DType::kF32, {batch, 784}, "x");
  const Tensor y = graph::input(DType::kI32, {rows}, "y");
  Tensor logits = x;
  for (const Layer& layer : layers) logits = layer(logits);
  logits = graph::reshape(logits, {rows, classes});
  const Tensor loss = ops::cross_entropy(logits, y);
  std::vector<Tensor> wanted, outputs = {loss, logits};
  std::vector<optim::NamedParameter> named;
  for (const auto& item : parameters.named_parameters()) {
    wanted.push_back(item.second);
    named.push_back({item.first, item.second.node()->value});
  }
  for (const Tensor& gradient : autograd::gradients({&loss, 1}, {}, wanted)) {
    outputs.push_back(gradient);
  }
  ThreadPool pool(1);
  const graph::PoolScope scope(pool);
  graph::Plan plan = graph::compile(outputs);
  const std::string text = reference["optimizer"];
  const auto optimizer = optim::make_optimizer(optimizer_of(text), named);
  const std::optional<double> clip = after(text, "norm");
  Data data;
  data.load(language);
  for (size_t step = 0; step < reference["losses"].size(); ++step) {
    INFO("step " << step);
    const auto i = static_cast<int64_t>(step);
    if (language) {
      data.fill_text(i, plan.input(x), plan.input(y));
    } else {
      data.fill_images(i, plan.input(x), plan.input(y));
    }
    plan.run(pool);
    const double want = reference["losses"][step];
    CHECK(plan.output(0).as<float>()[0] == Approx(want).epsilon(1e-5));
    std::vector<Array> gradients;
    for (size_t k = 2; k < outputs.size(); ++k) gradients.push_back(plan.output(k));
    if (step == 0) {
      CHECK(relative_error(plan.output(1).as<float>(), logits0.as<float>()) < 1e-5);
      const NamedArrays grad0 = io::read_safetensors(directory + "/grad0.safetensors")->arrays();
      for (size_t k = 0; k < named.size(); ++k) {
        INFO(named[k].name);
        CHECK(relative_error(gradients[k].as<float>(), grad0.at(named[k].name).as<float>()) < 1e-5);
      }
    }
    const double norm = optim::grad_norm(pool, gradients);
    if (!reference["grad_norms_before_clipping"].is_null()) {
      const double want_norm = reference["grad_norms_before_clipping"][step];
      CHECK(norm == Approx(want_norm).epsilon(1e-4));
    }
    const double scale = clip ? optim::clip_factor(norm, *clip) : 1;
    optimizer->step(pool, gradients, after(text, "lr").value(), scale);
  }
  for (const auto& [parameter, want] :
       io::read_safetensors(directory + "/final.safetensors")->arrays()) {
    INFO(parameter);
    CHECK(relative_error(parameters.state_dict().at(parameter).as<float>(), want.as<float>()) <
          1e-4);
  }
}

}  // namespace

TEST_CASE("numbers are found in the references' texts") {
  CHECK(numbers("Conv2d(1,8,3,pad 1) conv1") == std::vector<double>{2, 1, 8, 3, 1, 1});
  CHECK(numbers("LSTM(24->48)") == std::vector<double>{24, 48});
  CHECK(after("Adam lr 1e-3, betas 0.9 0.999, eps 1e-8", "eps") == 1e-8);
  CHECK_FALSE(after("SGD lr 0.1", "eps").has_value());
}

TEST_CASE("the training references are followed") {
  LUMEN_SHARED_DATA(root, "training-reference");
  size_t followed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename().string();
    INFO(name);
    follow(root, name);
    ++followed;
  }
  CHECK(followed > 0);
}
