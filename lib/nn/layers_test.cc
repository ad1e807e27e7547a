// Every layer forward and backward against torch.nn.
#include "lib/nn/layers.h"

#include <cmath>
#include <functional>

#include "lib/autograd/autograd.h"
#include "lib/base/testing.h"
#include "lib/io/safetensors.h"
#include "lib/nn/activation.h"
#include "lib/nn/convolution.h"
#include "lib/nn/multihead_attention.h"
#include "lib/nn/normalization.h"
#include "lib/nn/pooling.h"
#include "lib/nn/recurrent.h"
#include "lib/nn/training_scope.h"

using namespace lumen;
using nn::Parameters;
using nn::RecurrentState;
using nn::Tensor;

namespace {

using Inputs = std::map<std::string, Tensor>;
using Build = std::function<Tensor(const Parameters&, Inputs&)>;

Tensor flat(const Tensor& x) {
  return graph::reshape(x, {-1});
}

// Output and last state in one row, as the golden's script has them.
Tensor in_one_row(const nn::Recurrent::Result& result) {
  std::vector<Tensor> parts = {flat(result.output), flat(result.state.h)};
  if (result.state.c.defined()) parts.push_back(flat(result.state.c));
  return ops::concat(parts, 0);
}

// The case's name → the layer.
const std::map<std::string, Build>& cases() {
  static const std::map<std::string, Build> list = {
      {"linear",
       [](const Parameters& p, Inputs& in) { return nn::Linear(p, 5, 4, true)(in["x"]); }},
      {"embedding",
       [](const Parameters& p, Inputs& in) { return nn::Embedding(p, 7, 4)(in["x"]); }},
      {"embedding_padding",
       [](const Parameters& p, Inputs& in) { return nn::Embedding(p, 7, 4, -6)(in["x"]); }},
      {"layer_norm",
       [](const Parameters& p, Inputs& in) { return nn::LayerNorm(p, 6, 1e-5)(in["x"]); }},
      {"rms_norm",
       [](const Parameters& p, Inputs& in) { return nn::RmsNorm(p, 6, 1e-5)(in["x"]); }},
      {"group_norm",
       [](const Parameters& p, Inputs& in) { return nn::GroupNorm(p, 2, 6)(in["x"]); }},
      {"conv1d",
       [](const Parameters& p, Inputs& in) {
         return nn::Conv1d(p, 4, 6, 3, {.stride = 2, .padding = 1, .groups = 2})(in["x"]);
       }},
      {"conv2d",
       [](const Parameters& p, Inputs& in) {
         return nn::Conv2d(p, 3, 4, {3, 2},
                           {.stride = {1, 2}, .padding = {2, 1}, .dilation = {2, 1}})(in["x"]);
       }},
      {"conv2d_groups",
       [](const Parameters& p, Inputs& in) {
         return nn::Conv2d(p, 4, 4, {3, 3}, {.groups = 4}, false)(in["x"]);
       }},
      {"conv_transpose2d",
       [](const Parameters& p, Inputs& in) {
         const ops::Conv2dOptions options = {.stride = {2, 2}, .padding = {1, 1}, .groups = 2};
         return nn::ConvTranspose2d(p, 4, 6, {3, 3}, options, {1, 1})(in["x"]);
       }},
      {"max_pool2d",
       [](const Parameters&, Inputs& in) {
         return nn::MaxPool2d({.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}})(in["x"]);
       }},
      {"avg_pool2d", [](const Parameters&, Inputs& in) { return nn::AvgPool2d(2)(in["x"]); }},
      {"adaptive_avg_pool2d",
       [](const Parameters&, Inputs& in) {
         return nn::AdaptiveAvgPool2d({3, 2})(in["x"]);
       }},
      {"max_pool1d",
       [](const Parameters&, Inputs& in) {
         return nn::MaxPool1d(ops::Pool1dOptions{.kernel = 2})(in["x"]);
       }},
      {"avg_pool1d",
       [](const Parameters&, Inputs& in) {
         return nn::AvgPool1d(ops::Pool1dOptions{.kernel = 3, .stride = 1})(in["x"]);
       }},
      {"adaptive_avg_pool1d",
       [](const Parameters&, Inputs& in) { return nn::AdaptiveAvgPool1d(3)(in["x"]); }},
      {"flatten", [](const Parameters&, Inputs& in) { return nn::Flatten(1, 2)(in["x"]); }},
      {"batch_norm1d",
       [](const Parameters& p, Inputs& in) { return nn::BatchNorm1d(p, 4)(in["x"]); }},
      {"batch_norm1d_signal",
       [](const Parameters& p, Inputs& in) {
         return nn::BatchNorm1d(p, 3, {.momentum = 0.3})(in["x"]);
       }},
      {"batch_norm1d_cumulative",
       [](const Parameters& p, Inputs& in) {
         return nn::BatchNorm1d(p, 4, {.momentum = std::nullopt})(in["x"]);
       }},
      {"batch_norm2d",
       [](const Parameters& p, Inputs& in) { return nn::BatchNorm2d(p, 3)(in["x"]); }},
      {"batch_norm2d_eval",
       [](const Parameters& p, Inputs& in) {
         nn::BatchNorm2d norm(p, 3);
         norm.eval();
         return norm(in["x"]);
       }},
      {"batch_norm2d_plain",
       [](const Parameters& p, Inputs& in) {
         return nn::BatchNorm2d(p, 3, {.affine = false, .track_running_stats = false})(in["x"]);
       }},
      {"rnn_cell",
       [](const Parameters& p, Inputs& in) {
         return nn::RecurrentCell(nn::RecurrentKind::kRnnTanh, p, 3, 4)(in["x"], {in["h"]}).h;
       }},
      {"lstm_cell",
       [](const Parameters& p, Inputs& in) {
         const RecurrentState next =
             nn::RecurrentCell(nn::RecurrentKind::kLstm, p, 3, 4)(in["x"], {in["h"], in["c"]});
         const Tensor parts[] = {next.h, next.c};
         return ops::concat(parts, 0);
       }},
      {"gru_cell",
       [](const Parameters& p, Inputs& in) {
         return nn::RecurrentCell(nn::RecurrentKind::kGru, p, 3, 4, false)(in["x"], {in["h"]}).h;
       }},
      {"rnn",
       [](const Parameters& p, Inputs& in) { return in_one_row(nn::Rnn(p, 3, 4).run(in["x"])); }},
      {"rnn_relu",
       [](const Parameters& p, Inputs& in) {
         const nn::Rnn rnn(p, 3, 4, {.layers = 2, .bidirectional = true}, true);
         return in_one_row(rnn.run(in["x"], in["lengths"]));
       }},
      {"lstm",
       [](const Parameters& p, Inputs& in) {
         return in_one_row(nn::Lstm(p, 3, 4, {.layers = 2}).run(in["x"]));
       }},
      {"lstm_packed",
       [](const Parameters& p, Inputs& in) {
         const nn::Lstm lstm(p, 3, 4, {.layers = 2, .bidirectional = true});
         return in_one_row(lstm.run(in["x"], in["lengths"], {in["h"], in["c"]}));
       }},
      {"gru", [](const Parameters& p,
                 Inputs& in) { return in_one_row(nn::Gru(p, 3, 4, {.layers = 2}).run(in["x"])); }},
      {"gru_packed",
       [](const Parameters& p, Inputs& in) {
         const nn::Gru gru(p, 3, 4, {.bias = false, .bidirectional = true});
         return in_one_row(gru.run(in["x"], in["lengths"], {in["h"]}));
       }},
      {"attention",
       [](const Parameters& p, Inputs& in) { return nn::MultiheadAttention(p, 6, 2)(in["x"]); }},
      {"attention_causal",
       [](const Parameters& p, Inputs& in) {
         return nn::MultiheadAttention(p, 6, 3).attend(in["x"], in["x"], in["x"], {.causal = true});
       }},
      {"attention_cross",
       [](const Parameters& p, Inputs& in) {
         return nn::MultiheadAttention(p, 6, 2, false)
             .attend(in["query"], in["key"], in["value"], {.mask = in["mask"]});
       }},
      {"attention_padding",
       [](const Parameters& p, Inputs& in) {
         return nn::MultiheadAttention(p, 6, 2).attend(in["query"], in["key"], in["value"],
                                                       {.mask = in["mask"]});
       }},
  };
  return list;
}

// What the golden file has of one case.
struct Golden {
  NamedArrays parameters, inputs, gradients, after;
  Array output, seed;
};

std::map<std::string, Golden> read_goldens() {
  std::map<std::string, Golden> goldens;
  const auto file =
      io::read_safetensors(testing::source_path("testdata/goldens/modules.safetensors"));
  for (const auto& tensor : file->tensors) {
    const size_t slash = tensor.name.find('/');
    Golden& golden = goldens[tensor.name.substr(0, slash)];
    const std::string rest = tensor.name.substr(slash + 1);
    const size_t next = rest.find('/');
    const std::string kind = rest.substr(0, next);
    const std::string name = next == rest.npos ? "" : rest.substr(next + 1);
    const Array array = file->array(tensor);
    if (kind == "parameter") golden.parameters[name] = array;
    if (kind == "input") golden.inputs[name] = array;
    if (kind == "gradient") golden.gradients[name] = array;
    if (kind == "after") golden.after[name] = array;
    if (kind == "output") golden.output = array;
    if (kind == "seed") golden.seed = array;
  }
  return goldens;
}

// max |got − want| / max(1, max |want|).
double error(const Array& got, const Array& want) {
  REQUIRE(got.elements() == want.elements());
  double difference = 0, largest = 1;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double a = got.as<float>()[i], b = want.as<float>()[i];
    difference = std::max(difference, std::isnan(a) ? 1e30 : std::fabs(a - b));
    largest = std::max(largest, std::fabs(b));
  }
  return difference / largest;
}

Tensor key() {
  const int32_t seed_and_step[] = {1, 0};
  return graph::constant(Array::from<int32_t>(seed_and_step, {2}));
}

}  // namespace

TEST_CASE("every layer is torch.nn's, forward and backward") {
  const std::map<std::string, Golden> goldens = read_goldens();
  CHECK(goldens.size() == cases().size());
  for (const auto& item : cases()) {
    INFO(item.first);
    const Golden& golden = goldens.at(item.first);
    const auto parameters = Parameters::trainable(golden.parameters);
    Inputs inputs;
    for (const auto& [name, array] : golden.inputs) {
      inputs[name] =
          array.dtype() == DType::kF32 ? autograd::variable(array, name) : graph::constant(array);
    }
    const nn::TrainingScope step(key());
    const Tensor output = item.second(parameters, inputs);
    CHECK(parameters.check().empty());
    CHECK(output.shape() == golden.output.shape());
    CHECK(error(output.eval(), golden.output) < 2e-6);

    std::vector<Tensor> wanted;
    for (const auto& [name, array] : golden.gradients) {
      const auto input = inputs.find(name);
      wanted.push_back(input != inputs.end() ? input->second : parameters.named().at(name));
    }
    const Tensor seed = graph::constant(golden.seed);
    std::vector<Tensor> gradients = autograd::gradients({&output, 1}, {&seed, 1}, wanted);
    graph::evaluate(gradients);
    size_t i = 0;
    for (const auto& [name, array] : golden.gradients) {
      INFO("gradient of " << name);
      CHECK(error(gradients[i++].eval(), array) < 5e-6);
    }
    graph::evaluate(step.updates());
    for (const auto& [name, array] : golden.after) {
      INFO(name << " afterwards");
      CHECK(error(parameters.state_dict().at(name), array) < 1e-6);
    }
  }
}

TEST_CASE("every layer refuses an undefined tensor") {
  const std::map<std::string, Golden> goldens = read_goldens();
  for (const auto& item : cases()) {
    INFO(item.first);
    const auto parameters = Parameters::trainable(goldens.at(item.first).parameters);
    const nn::TrainingScope step(key());
    Inputs undefined;
    CHECK(testing::contains(
        testing::refusal(ErrorKind::kMalformed, [&] { item.second(parameters, undefined); }),
        " is an undefined tensor"));
  }
  CHECK(testing::contains(testing::refusal(ErrorKind::kMalformed, [] { nn::Linear{Tensor()}; }),
                          "Linear: shared is an undefined tensor"));
}

TEST_CASE("every layer's state dict survives the round trip") {
  for (const auto& item : read_goldens()) {
    INFO(item.first);
    if (item.second.parameters.empty()) continue;
    const auto build = [&](const Parameters& parameters) {
      Inputs inputs;
      for (const auto& [name, array] : item.second.inputs) inputs[name] = graph::constant(array);
      return cases().at(item.first)(parameters, inputs);
    };
    const auto loaded = Parameters::trainable(item.second.parameters);
    const auto fresh = Parameters::trainable(7);
    const Tensor want = build(loaded);
    build(fresh);
    fresh.load_state_dict(loaded.state_dict());
    const Array got = build(fresh).eval();
    CHECK(error(got, want.eval()) == 0);
  }
}

TEST_CASE("layers compute with checkpoints of float16 as with their values in float32") {
  const Tensor image = ops::full({2, 4, 5, 5}, 0.5, DType::kF32);
  const Tensor steps = ops::full({2, 3, 4}, 0.5, DType::kF32);
  const Tensor row = ops::full({2, 5}, 0.5, DType::kF32);
  auto outputs = [&](const Parameters& p) {
    const Tensor parts[] = {
        flat(nn::Conv2d(p / "conv2d", 4, 2, {3, 3})(image)),
        flat(nn::Conv1d(p / "conv1d", 3, 2, 2)(steps)),
        flat(nn::ConvTranspose2d(p / "transposed", 4, 2, {3, 3})(image)),
        flat(nn::RecurrentCell(nn::RecurrentKind::kRnnTanh, p / "cell", 5, 3)(row).h),
        flat(nn::Lstm(p / "lstm", 4, 3, {.bidirectional = true})(steps)),
        flat(nn::MultiheadAttention(p / "attention", 4, 2)(steps))};
    const Tensor all = ops::concat(parts, 0);
    CHECK(p.check().empty());
    return all.eval();
  };
  const auto start = Parameters::trainable(1);
  outputs(start);
  NamedArrays half, widened;
  for (const auto& [name, array] : start.state_dict()) {
    half[name] = graph::contiguous(graph::constant(array), DType::kF16).eval();
    widened[name] = nn::float32_copy(half[name]);
  }
  const Array want = outputs(Parameters::from_checkpoint(widened));
  CHECK(error(outputs(Parameters::from_checkpoint(half)), want) < 1e-6);
}

TEST_CASE("either part of an LSTM's state may be left out") {
  const auto parameters = Parameters::trainable(1);
  const nn::RecurrentCell cell(nn::RecurrentKind::kLstm, parameters, 3, 4);
  const Tensor x = graph::constant(Array::zeros(DType::kF32, {2, 3}));
  const Tensor ones = ops::full({2, 4}, 1.0, DType::kF32), zeros = ops::zeros_like(ones);
  auto same = [&](const RecurrentState& a, const RecurrentState& b) {
    return error(cell(x, a).h.eval(), cell(x, b).h.eval()) == 0;
  };
  CHECK(same({ones}, {ones, zeros}));
  CHECK(same({{}, ones}, {zeros, ones}));
  CHECK_FALSE(same({{}, ones}, {zeros, zeros}));
}

TEST_CASE("layers refuse what does not fit them") {
  const auto parameters = Parameters::trainable(1);
  auto message = [](auto&& body) { return testing::refusal(ErrorKind::kMalformed, body); };
  const Tensor image = graph::constant(Array::zeros(DType::kF32, {2, 3, 4, 4}));
  CHECK(testing::contains(message([&] {
                            nn::Conv2d(parameters / "a", 4, 6, {3, 3}, {.groups = 3});
                          }),
                          "groups = 3"));
  CHECK(testing::contains(message([&] { nn::GroupNorm(parameters / "b", 4, 6); }), "4 groups"));
  CHECK(testing::contains(message([&] { nn::BatchNorm1d(parameters / "c", 3)(image); }),
                          "cannot take [2, 3, 4, 4]"));
  CHECK(testing::contains(message([&] { nn::Lstm(parameters / "d", 3, 4)(image); }),
                          "expected [batch, steps, 3]"));
  CHECK(testing::contains(message([&] { nn::MultiheadAttention(parameters / "e", 6, 4); }),
                          "cannot have 4 heads"));
  const Tensor row = graph::constant(Array::zeros(DType::kF32, {1, 4}));
  const Tensor x = graph::constant(Array::zeros(DType::kF32, {2, 3}));
  const nn::RecurrentCell cell(nn::RecurrentKind::kGru, parameters / "g", 3, 4);
  CHECK(testing::contains(message([&] { cell(row); }), "expected [batch, 3]"));
  CHECK(testing::contains(message([&] { cell(x, {row}); }), "expected [2, 4]"));
  CHECK(testing::contains(message([&] {
                            cell(x, {{}, ops::zeros_like(graph::expand(row, {2, 4}))});
                          }),
                          "only an LSTM has"));
  const Tensor steps = graph::constant(Array::zeros(DType::kF32, {2, 5, 3}));
  CHECK(testing::contains(message([&] { nn::Gru(parameters / "h", 3, 4).run(steps, {}, {row}); }),
                          "expected [1, 2, 4]"));
  const Array too_long = Array::from<int32_t>(std::vector<int32_t>{5, 6}, {2});
  CHECK(testing::contains(
      message([&] {
        nn::Gru(parameters / "h", 3, 4).run(steps, graph::constant(too_long)).output.eval();
      }),
      "sample 1 has length 6, expected 0 to 5"));
  const nn::MultiheadAttention attention(parameters / "i", 3, 1);
  const Tensor mask = graph::constant(Array::zeros(DType::kF32, {5, 5}));
  CHECK(testing::contains(message([&] {
                            const Tensor one = graph::slice(steps, 0, 0, 1);
                            attention.attend(steps, one, one, {.mask = mask});
                          }),
                          "expected one batch"));
  const Tensor integers = graph::constant(Array::zeros(DType::kI32, {5, 5}));
  CHECK(
      testing::contains(message([&] { attention.attend(steps, steps, steps, {.mask = integers}); }),
                        "expected bool or floats"));
  const nn::TrainingScope step(key());
  const Tensor one = graph::constant(Array::zeros(DType::kF32, {1, 3}));
  CHECK(testing::contains(message([&] { nn::BatchNorm1d(parameters / "f", 3)(one); }),
                          "more than one value per channel"));
  CHECK(
      testing::contains(testing::refusal(ErrorKind::kUnsupported, [] { nn::Activation("geluu"); }),
                        "there is no activation"));
}

TEST_CASE("the input's bias of a recurrent layer has one number per gate and may be bfloat16") {
  const Tensor x = ops::full({2, 3, 4}, 1), w = ops::full({5, 4}, 0.1), u = ops::full({5, 5}, 0.1);
  const auto layer = [&](const Tensor& input_bias, const Tensor& hidden_bias) {
    return ops::rnn(x, {w, u, input_bias, hidden_bias}, {}, false, {}).out;
  };
  const Tensor half = ops::full({5}, 0.5), one = ops::full({5}, 1);
  const Tensor narrow = graph::contiguous(half, DType::kBF16);
  const Array expected = layer(one, {}).eval();
  for (const Tensor& out : {layer(half, half), layer(narrow, half), layer({}, one)}) {
    const Array got = out.eval();
    for (size_t i = 0; i < 30; ++i) {
      CHECK(got.as<float>()[i] == Approx(expected.as<float>()[i]).epsilon(1e-6));
    }
  }
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kMalformed, [&] { layer(ops::full({1}, 0.5), half); }),
      "needs [5]"));
}
