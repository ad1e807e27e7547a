#include "lib/nn/parameters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/base/testing.h"
#include "lib/nn/convolution.h"
#include "lib/nn/layers.h"
#include "lib/nn/normalization.h"

using namespace lumen;
using graph::Tensor;
using nn::Init;
using nn::Parameters;
using testing::contains;
using testing::refusal;

namespace {

std::vector<float> values(const Array& array) {
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments(const Array& array) {
  Moments m;
  double squares = 0;
  for (const double x : array.as<float>()) {
    m.mean += x, squares += x * x;
    m.largest = std::max(m.largest, std::fabs(x));
  }
  const auto n = static_cast<double>(array.elements());
  m.mean /= n;
  m.deviation = std::sqrt(squares / n - m.mean * m.mean);
  return m;
}

}  // namespace

TEST_CASE("initial values have the moments of their distribution") {
  struct Case {
    Init init;
    double deviation, largest;
  };
  const Shape shape = {60, 20, 3, 3};  // fan_in 180, fan_out 540
  const double xavier = std::sqrt(6.0 / 720);
  const std::vector<Case> cases = {
      {Init::normal(0.5), 0.5, 0.5 * 5.5},
      {Init::uniform(2), 2 / std::sqrt(3.0), 2},
      {Init::fan_in_uniform(), 1 / std::sqrt(180.0 * 3), 1 / std::sqrt(180.0)},
      {Init::kaiming_uniform(), std::sqrt(2.0 / 180), std::sqrt(6.0 / 180)},
      {Init::kaiming_normal(), std::sqrt(2.0 / 180), 5.5 * std::sqrt(2.0 / 180)},
      {Init::xavier_uniform(), xavier / std::sqrt(3.0), xavier},
      {Init::xavier_normal(2), 2 * std::sqrt(2.0 / 720), 11 * std::sqrt(2.0 / 720)},
  };
  for (const Case& expected : cases) {
    INFO(static_cast<int>(expected.init.kind));
    Philox random(5);
    const Moments got = moments(nn::initialized(expected.init, DType::kF32, shape, random));
    CHECK(got.mean == Approx(0).margin(4 * expected.deviation / std::sqrt(10800.0)));
    CHECK(got.deviation == Approx(expected.deviation).epsilon(0.03));
    CHECK(got.largest <= expected.largest * (1 + 1e-6));
    CHECK(got.largest > expected.deviation * 1.6);
  }
  Philox random(5);
  CHECK(values(nn::initialized(Init::constant(3), DType::kF32, {2}, random)) ==
        std::vector<float>{3, 3});
  std::vector<float> rates =
      values(nn::initialized(Init::log_uniform(16), DType::kF32, shape, random));
  for (float& rate : rates) rate = std::exp(rate);
  CHECK(*std::min_element(rates.begin(), rates.end()) >= 0.01f * (1 - 1e-6f));
  CHECK(*std::max_element(rates.begin(), rates.end()) <= 16 * (1 + 1e-6f));
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  CHECK(sum / static_cast<double>(rates.size()) == Approx(8.005).epsilon(0.02));
}

TEST_CASE("layers start as PyTorch's do") {
  const auto parameters = Parameters::trainable(1);
  const nn::Linear linear(parameters / "fc", 400, 100, true);
  CHECK(moments(linear.weight.eval()).deviation == Approx(0.05 / std::sqrt(3.0)).epsilon(0.02));
  CHECK(moments(linear.weight.eval()).largest <= 0.05f);
  CHECK(moments(linear.bias.eval()).largest <= 0.05f);
  CHECK(moments(linear.bias.eval()).largest > 0.04f);
  const nn::Embedding embedding(parameters / "emb", 200, 50);
  CHECK(moments(embedding.weight.eval()).deviation == Approx(1).epsilon(0.03));
  const nn::Embedding padded(parameters / "padded", 3, 2, -2);
  const auto rows = values(padded.weight.eval());
  CHECK((rows[1] != 0 && rows[2] == 0 && rows[3] == 0 && rows[4] != 0));
  const auto normal = parameters.with_normal_weights(0.02) / "normal";
  CHECK(values(nn::Embedding(normal, 2, 1, 0).weight.eval())[0] == 0);
  const Tensor rates = normal.get_f32("A_log", {500}, Init::log_uniform(16));
  CHECK(moments(rates.eval()).mean == Approx(std::log(16) - 1).epsilon(0.1));  // not near 0
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kMalformed, [&] { nn::Embedding(parameters / "no", 3, 2, 3); }),
      "an embedding of 3 rows has no row 3 for padding"));
  CHECK(values(nn::RmsNorm(parameters / "norm", 2, 1e-5).weight.eval()) ==
        std::vector<float>{1, 1});
}

TEST_CASE("layers without inputs start and compute as PyTorch's") {
  const auto parameters = Parameters::trainable(1);
  const nn::Linear linear(parameters / "fc", 0, 2, true);
  CHECK(values(linear.bias.eval()) == std::vector<float>{0, 0});
  nn::Conv2d conv(parameters / "conv", 0, 2, {2, 2});
  CHECK(values(conv.bias.eval()) == std::vector<float>{0, 0});
  conv.bias = graph::constant(std::vector<float>{1, 2}, {2});
  const Tensor image = graph::constant(Array::zeros(DType::kF32, {2, 0, 2, 3}));
  CHECK(values(conv(image).eval()) == std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2});
  const nn::BatchNorm2d norm(parameters / "norm", 0);
  CHECK(norm(image).shape() == image.shape());
}

TEST_CASE("a language model's place draws normal weights and zero biases") {
  const auto place = Parameters::trainable(1).with_normal_weights(0.02) / "layers" / "0";
  const nn::Linear linear(place, 300, 100, true);
  CHECK(moments(linear.weight.eval()).deviation == Approx(0.02).epsilon(0.03));
  CHECK(moments(linear.bias.eval()).largest == 0);
  CHECK(values(nn::RmsNorm(place, 1, 1e-5).weight.eval()) != std::vector<float>{0});
}

TEST_CASE("a parameter's values depend on seed and name only") {
  const auto a = Parameters::random(3), b = Parameters::trainable(3);
  b.get("other", {100}, Init::normal(1));
  const auto x = values((a / "fc").get("weight", {4, 5}, Init::normal(1)).eval());
  CHECK(x == values((b / "fc").get("weight", {4, 5}, Init::normal(1)).eval()));
  CHECK(x != values((b / "fc2").get("weight", {4, 5}, Init::normal(1)).eval()));
  CHECK(x != values((Parameters::random(4) / "fc").get("weight", {4, 5}, Init::normal(1)).eval()));
}

TEST_CASE("two layers at one place are one, or a mistake that is named") {
  const Parameters parameters = Parameters::trainable(1);
  const nn::Linear first(parameters / "a", 2, 3, false), again(parameters / "a", 2, 3, false);
  CHECK(first.weight.node() == again.weight.node());
  CHECK(parameters.check().empty());
  const nn::Linear other(parameters / "a", 4, 3, false);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { parameters.check(); }),
                 "'a.weight' is asked for as [3, 2] and as [3, 4]"));
}

TEST_CASE("trainable parameters are float32 states in memory of their own") {
  NamedArrays file;
  file["w"] = Array::zeros(DType::kBF16, {2, 32});
  file["w"].as_mutable<bf16>()[3] = to_bf16(1.5f);
  file["steps"] = Array::zeros(DType::kI64, {});
  file["mean"] = Array::zeros(DType::kF32, {2});
  const auto parameters = Parameters::trainable(file);
  const auto w = parameters.get("w", {2, 32});
  const auto mean = parameters.buffer("mean", {2}, Init::zeros());
  const auto steps = parameters.buffer("steps", {}, Init::zeros(), DType::kI64);
  CHECK(parameters.check().empty());
  CHECK(graph::is_state(*w.node()));
  CHECK(w.dtype() == DType::kF32);
  CHECK(w.requires_grad());
  CHECK(w.eval().as<float>()[3] == 1.5f);
  CHECK(graph::is_state(*mean.node()));
  CHECK_FALSE(mean.requires_grad());
  CHECK(mean.eval().data() != file["mean"].data());
  CHECK(steps.dtype() == DType::kI64);
  CHECK(parameters.named_parameters().size() == 1);
  CHECK(parameters.named().size() == 3);

  const auto shared = Parameters::from_checkpoint(file);
  CHECK(graph::is_constant(*shared.buffer("mean", {2}, Init::zeros()).node()));
  CHECK(shared.get("w", {2, 32}).node()->value.data() == file["w"].data());
}

TEST_CASE("parameters are frozen by pattern, before or after they are asked for") {
  const auto parameters = Parameters::trainable(1);
  const auto a = parameters.get("a.weight", {2});
  CHECK(parameters.freeze("a.*") == 1);
  CHECK(parameters.freeze("c.*") == 0);
  CHECK_FALSE(a.requires_grad());
  CHECK_FALSE(parameters.get("a.bias", {2}).requires_grad());
  CHECK(parameters.get("b.bias", {2}).requires_grad());
  CHECK(parameters.named_parameters().size() == 3);
}

TEST_CASE("state_dict shares memory, load_state_dict copies in place") {
  const auto a = Parameters::trainable(1), b = Parameters::trainable(2);
  for (const Parameters& p : {a, b}) {
    p.get("w", {2, 3}, Init::normal(1));
    p.buffer("count", {}, Init::zeros(), DType::kI64);
  }
  NamedArrays values_of_a = a.state_dict();
  values_of_a["count"].as_mutable<int64_t>()[0] = 7;
  const std::byte* memory = b.state_dict()["w"].data();
  b.load_state_dict(values_of_a);
  CHECK(b.state_dict()["w"].data() == memory);
  CHECK(values(b.state_dict()["w"]) == values(values_of_a["w"]));
  CHECK(b.state_dict()["count"].as<int64_t>()[0] == 7);
  CHECK(a.state_dict()["count"].as<int64_t>()[0] == 7);
}

TEST_CASE("a state dict that does not fit is refused whole, in one message") {
  const auto parameters = Parameters::trainable(1);
  parameters.get("a", {2}, Init::ones());
  parameters.get("b", {2, 3}, Init::ones());
  parameters.get("c", {2}, Init::ones());
  NamedArrays given;
  given["a"] = Array::zeros(DType::kF32, {2});
  given["b"] = Array::zeros(DType::kF32, {3, 2});
  given["d"] = Array::zeros(DType::kF32, {1});
  const std::string message =
      refusal(ErrorKind::kMismatch, [&] { parameters.load_state_dict(given); });
  CHECK(contains(message, "missing: 'c'"));
  CHECK(contains(message, "unexpected: 'd'"));
  CHECK(contains(message, "'b' [3, 2] instead of [2, 3]"));
  CHECK(values(parameters.state_dict()["a"]) == std::vector<float>{1, 1});

  given.erase("d");
  given["b"] = Array::zeros(DType::kF32, {2, 3});
  given["c"] = Array::zeros(DType::kI32, {2});
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { parameters.load_state_dict(given); }),
                 "'c' i32 instead of f32"));
  CHECK(values(parameters.state_dict()["a"]) == std::vector<float>{1, 1});
}

TEST_CASE("an adapter adds where it has tensors, in whatever layers those are") {
  NamedArrays base, adapter;
  for (const char* layer : {"0", "1", "2"}) {
    base[str("layers.", layer, ".q_proj.weight")] = Array::zeros(DType::kF32, {4, 3});
  }
  for (const char* layer : {"0", "2"}) {
    adapter[str("layers.", layer, ".q_proj.lora_A.weight")] = Array::zeros(DType::kF32, {2, 3});
    adapter[str("layers.", layer, ".q_proj.lora_B.weight")] = Array::zeros(DType::kF32, {4, 2});
  }
  auto build = [&](const NamedArrays& tensors) {
    const auto parameters =
        Parameters::from_checkpoint(base).with_lora({.rank = 2, .scale = 0.5}, tensors, "a.gguf");
    std::vector<bool> added;
    for (const char* layer : {"0", "1", "2"}) {
      const nn::Linear linear(parameters / "layers" / layer / "q_proj", 3, 4, false);
      added.push_back(linear.addition.has_value());
    }
    const std::vector<std::string> unused = parameters.check();
    CHECK(unused.empty());
    return added;
  };
  CHECK(build(adapter) == std::vector<bool>{true, false, true});
  adapter.erase("layers.2.q_proj.lora_B.weight");
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { build(adapter); }),
                 "'layers.2.q_proj.lora_B.weight' is missing in the adapter a.gguf"));
  adapter["layers.2.q_proj.lora_B.weight"] = Array::zeros(DType::kF32, {5, 2});
  CHECK(contains(
      refusal(ErrorKind::kMismatch, [&] { build(adapter); }),
      "the adapter a.gguf does not fit the model: 'layers.2.q_proj.lora_B.weight' has shape "
      "[5, 2], expected [4, 2]"));
}

TEST_CASE("without targets all linear layers get an addition but the output and routers") {
  const auto has = [](std::vector<std::string> targets, const char* layer) {
    NamedArrays base = {{str(layer, ".weight"), Array::zeros(DType::kF32, {4, 3})}};
    const auto parameters = Parameters::from_checkpoint(std::move(base))
                                .with_lora({.rank = 2, .targets = std::move(targets)}, 1);
    return nn::Linear(parameters / layer, 3, 4, false).addition.has_value();
  };
  for (const char* layer : {"q_proj", "gate_proj", "c_attn"}) CHECK(has({}, layer));
  for (const char* layer : {"lm_head", "gate", "router"}) {
    CHECK(!has({}, layer));
    CHECK(has({layer}, layer));
  }
}

TEST_CASE("what is left out and what lies below it may be in the checkpoint") {
  const Array one = Array::zeros(DType::kF32, {1});
  const auto parameters = Parameters::from_checkpoint(
      {{"a.scale", one}, {"a.k_proj.weight", one}, {"a.k_proj2.weight", one}});
  for (const char* name : {"scale", "k_proj"}) (parameters / "a").leave_out(name);
  CHECK(parameters.check() == std::vector<std::string>{"a.k_proj2.weight"});
}

TEST_CASE("a layer with a rank and a scale of its own is merged with these") {
  const auto matrix = [](const Shape& shape, float value) {
    return Array::from<float>(std::vector<float>(static_cast<size_t>(shape.elements()), value),
                              shape);
  };
  nn::LoraOptions options{.rank = 2, .scale = 0.5};
  options.own["b."] = {1, 8};
  NamedArrays adapter;
  for (const auto& [layer, rank] : {std::pair("a.", 2), std::pair("b.", 1)}) {
    adapter[str(layer, "lora_A.weight")] = matrix({rank, 3}, 1);
    adapter[str(layer, "lora_B.weight")] = matrix({4, rank}, 1);
  }
  const auto parameters = Parameters::from_checkpoint(
                              {{"a.weight", matrix({4, 3}, 0)}, {"b.weight", matrix({4, 3}, 0)}})
                              .with_lora(options, adapter, "a");
  for (const char* layer : {"a", "b"}) {
    (parameters / layer).low_rank((parameters / layer).get("weight", {4, 3}));
  }
  parameters.check();
  CHECK(values(parameters.merged("a.weight"))[0] == 1);
  CHECK(values(parameters.merged("b.weight"))[0] == 8);
}

TEST_CASE("targets are ends of names, and of experts the parameter of all") {
  const auto named = [](std::vector<std::string> targets, const std::string& layer,
                        const std::vector<std::string>& names = {}) {
    const auto parameters =
        Parameters::from_checkpoint({}).with_lora({.rank = 2, .targets = std::move(targets)}, 1);
    const auto weight = graph::constant(Array::zeros(DType::kF32, {4, 3}));
    const bool has =
        (parameters / layer).low_rank(weight, nn::WeightOrder::kOutIn, names).has_value();
    CHECK(has != parameters.named_targets().empty());
    return has;
  };
  const std::string shared = "layers.1.mlp.shared_expert.up_proj";
  CHECK(named({"up_proj"}, shared));
  CHECK(named({"shared_expert.up_proj", "q_proj"}, shared));
  CHECK(named({"1.mlp.shared_expert.up_proj"}, shared));
  CHECK_FALSE(named({"expert.up_proj"}, shared));
  CHECK_FALSE(named({"mlp.up_proj"}, shared));
  const std::string expert = "layers.1.mlp.experts.2.up_proj", of_all = "experts.gate_up_proj";
  CHECK(named({of_all}, expert, {of_all}));
  CHECK_FALSE(named({"up_proj"}, expert, {of_all}));
  CHECK(named({"up_proj"}, expert, {of_all, "up_proj"}));
  CHECK_FALSE(named({}, expert, {of_all}));
  CHECK_FALSE(named({}, "layers.0.router.proj"));
  CHECK(named({}, "layers.0.mlp.up_proj"));
}

TEST_CASE("the scale of a LoRA is alpha / rank, rank-stabilised alpha / sqrt(rank)") {
  CHECK(nn::lora_scale(32, 16, false) == 2);
  CHECK(nn::lora_scale(32, 16, true) == 8);
}

TEST_CASE("float64 weights of a checkpoint are used as float32") {
  Array stored = Array::zeros(DType::kF64, {2, 3});
  stored.as_mutable<double>()[4] = 0.5;
  const auto parameters = Parameters::from_checkpoint({{"w", stored}});
  const graph::Tensor weight = parameters.get("w", {2, 3}, Init::zeros());
  REQUIRE(weight.dtype() == DType::kF32);
  CHECK(weight.node()->value.as<float>()[4] == 0.5f);
}

TEST_CASE("matrices are stored in the type asked for, vectors and what does not fit otherwise") {
  auto type_of = [](DType from, const Shape& shape, DType to) {
    return nn::stored_as(Array::zeros(from, shape), to).dtype();
  };
  CHECK(type_of(DType::kF32, {2, 64}, DType::kQ8_0) == DType::kQ8_0);
  CHECK(type_of(DType::kF32, {2, 64}, DType::kQ4_K) == DType::kF16);  // blocks of 256
  CHECK(type_of(DType::kF32, {2, 40}, DType::kQ8_0) == DType::kF16);
  CHECK(type_of(DType::kF32, {2, 40}, DType::kBF16) == DType::kBF16);
  CHECK(type_of(DType::kF32, {64}, DType::kQ8_0) == DType::kF32);
  CHECK(type_of(DType::kI32, {2, 64}, DType::kF16) == DType::kI32);
  const std::vector<float> numbers = {1, -2, 0.5, 3};
  const Array half = nn::stored_as(Array::from<float>(numbers, {2, 2}), DType::kF16);
  CHECK(values(nn::float32_copy(half)) == numbers);
}
