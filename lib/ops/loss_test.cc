// Losses against PyTorch: testdata/goldens/losses.safetensors, made by
// scripts/make_loss_goldens.py.
#include "lib/ops/loss.h"

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "lib/autograd/autograd.h"
#include "lib/base/testing.h"
#include "lib/io/safetensors.h"

using namespace lumen;
using graph::Tensor;
using ops::Reduction;

namespace {

using Inputs = std::span<const Tensor>;

const std::map<std::string, Reduction> kReductions = {
    {"none", Reduction::kNone}, {"mean", Reduction::kMean}, {"sum", Reduction::kSum}};

class Goldens {
 public:
  Goldens()
      : file_(io::read_safetensors(testing::source_path("testdata/goldens/losses.safetensors"))) {
    for (const auto& tensor : file_->tensors) {
      arrays_[tensor.name] = file_->array(tensor);
      if (tensor.name.find(":value") != std::string::npos) unseen_.insert(tensor.name);
    }
  }

  Array array(const std::string& name) const {
    INFO(name);
    REQUIRE(arrays_.count(name) > 0);
    return arrays_.at(name);
  }
  Tensor variable(const std::string& name) const {
    const Array mapped = array(name);  // read only
    return autograd::variable(Array::from<float>(mapped.as<float>(), mapped.shape()));
  }
  Tensor constant(const std::string& name) const { return graph::constant(array(name)); }
  // Cases of the file that no check has looked at.
  const std::set<std::string>& unseen() const { return unseen_; }

  // `inputs` are pairs of the golden input and its name in the case.
  void check(const std::string& name, std::vector<std::pair<std::string, std::string>> inputs,
             const std::function<Tensor(Inputs)>& build) {
    INFO(name);
    std::vector<Tensor> variables;
    for (const auto& [input, label] : inputs) variables.push_back(variable(input));
    const Tensor value = build(variables);
    unseen_.erase(name + ":value");
    compare(value, array(name + ":value"));
    Array probe = Array::zeros(DType::kF32, value.shape());
    float next = 1;
    for (float& x : probe.as_mutable<float>()) x = next++;
    const Tensor seed = graph::constant(probe);
    const auto gradients = autograd::gradients({&value, 1}, {&seed, 1}, variables);
    for (size_t i = 0; i < inputs.size(); ++i) {
      INFO("gradient of " << inputs[i].second);
      compare(gradients[i], array(name + ":grad." + inputs[i].second));
    }
  }

 private:
  static void compare(const Tensor& got, const Array& want) {
    REQUIRE(to_string(got.shape()) == to_string(want.shape()));
    const Array values = got.eval();
    const auto a = values.as<float>(), b = want.as<float>();
    for (size_t i = 0; i < b.size(); ++i) {
      INFO("element " << i << ": got " << a[i] << ", torch " << b[i]);
      if (std::isnan(b[i])) {
        REQUIRE(std::isnan(a[i]));
      } else {
        REQUIRE(std::fabs(double{a[i]} - b[i]) <= 2e-6 * (1 + std::fabs(double{b[i]})));
      }
    }
  }

  std::shared_ptr<const io::SafetensorsFile> file_;
  std::map<std::string, Array> arrays_;
  std::set<std::string> unseen_;
};

void check_class_losses(Goldens& goldens) {
  const Tensor targets = goldens.constant("targets");
  for (const std::string logits : {"logits", "extreme"}) {
    for (bool weighted : {false, true}) {
      for (const std::string smoothing : {"0", "0.1"}) {
        for (const auto& [label, reduction] : kReductions) {
          ops::CrossEntropyOptions options{.label_smoothing = smoothing == "0" ? 0 : 0.1,
                                           .reduction = reduction};
          if (weighted) options.class_weight = goldens.constant("class_weight");
          const std::string name = str(logits, "/weight=", int{weighted}, "/smoothing=", smoothing,
                                       "/reduction=", label);
          goldens.check("probabilities/" + name, {{logits, "x"}, {"probabilities", "t"}},
                        [&](Inputs in) { return ops::cross_entropy(in[0], in[1], options); });
          for (int64_t ignore : {-100, 2}) {
            options.ignore_index = ignore;
            goldens.check(str("cross_entropy/", name, "/ignore=", ignore), {{logits, "x"}},
                          [&](Inputs in) { return ops::cross_entropy(in[0], targets, options); });
            if (smoothing != "0" || logits != "logits") continue;
            goldens.check(
                str("nll/weight=", int{weighted}, "/reduction=", label, "/ignore=", ignore),
                {{"logits", "x"}}, [&](Inputs in) { return ops::nll(in[0], targets, options); });
          }
        }
      }
    }
  }
  const std::vector<int32_t> none(static_cast<size_t>(targets.dim(0)), -100);
  const Tensor nothing = graph::constant(Array::from<int32_t>(none, targets.shape()));
  for (const auto& [label, reduction] : kReductions) {
    goldens.check("nothing_counts/reduction=" + label, {{"logits", "x"}},
                  [&, how = reduction](Inputs in) {
                    return ops::cross_entropy(in[0], nothing, {.reduction = how});
                  });
  }
}

void check_differences(Goldens& goldens) {
  const std::vector<std::pair<std::string, std::string>> inputs = {{"x", "x"}, {"y", "y"}};
  for (const auto& [label, reduction] : kReductions) {
    const Reduction how = reduction;
    const std::string ending = "reduction=" + label;
    goldens.check("mse/" + ending, inputs,
                  [&](Inputs in) { return ops::mse_loss(in[0], in[1], how); });
    goldens.check("l1/" + ending, inputs,
                  [&](Inputs in) { return ops::l1_loss(in[0], in[1], how); });
    for (double width : {0.5, 1.0, 2.0}) {
      goldens.check(str("huber/delta=", width, "/", ending), inputs,
                    [&](Inputs in) { return ops::huber_loss(in[0], in[1], how, width); });
      goldens.check(str("smooth_l1/beta=", width, "/", ending), inputs,
                    [&](Inputs in) { return ops::smooth_l1_loss(in[0], in[1], how, width); });
    }
  }
}

void check_binary_losses(Goldens& goldens) {
  const Tensor label = goldens.constant("label");
  for (const auto& [name, reduction] : kReductions) {
    const Reduction how = reduction;
    for (int weighted : {0, 1}) {
      const Tensor weight = weighted ? goldens.constant("element_weight") : Tensor();
      goldens.check(
          str("bce/weight=", weighted, "/reduction=", name), {{"unit", "p"}},
          [&](Inputs in) { return ops::binary_cross_entropy(in[0], label, weight, how); });
      for (int positive : {0, 1}) {
        const Tensor factor = positive ? goldens.constant("class_weight") : Tensor();
        for (const std::string x : {"x", "extreme"}) {
          goldens.check(str("bce_with_logits/", x, "/weight=", weighted, "/positive=", positive,
                            "/reduction=", name),
                        {{x, "x"}}, [&](Inputs in) {
                          return ops::binary_cross_entropy_with_logits(in[0], label, weight, factor,
                                                                       how);
                        });
        }
      }
    }
  }
  for (const std::string x : {"x", "extreme"}) {
    goldens.check("log_sigmoid/" + x, {{x, "x"}},
                  [&](Inputs in) { return ops::log_sigmoid(in[0]); });
  }
}

void check_divergences(Goldens& goldens) {
  const Tensor target = goldens.constant("probabilities");
  auto reductions = kReductions;
  reductions["batchmean"] = Reduction::kBatchMean;
  for (const auto& [label, reduction] : reductions) {
    const Reduction how = reduction;
    goldens.check("kl_div/log_target=0/reduction=" + label, {{"log_p", "x"}},
                  [&](Inputs in) { return ops::kl_div(in[0], target, how); });
    goldens.check("kl_div/log_target=1/reduction=" + label, {{"log_p", "x"}, {"log_q", "t"}},
                  [&](Inputs in) { return ops::kl_div(in[0], in[1], how, true); });
  }
}

}  // namespace

TEST_CASE("every loss has the values and gradients of PyTorch") {
  Goldens goldens;
  check_class_losses(goldens);
  check_differences(goldens);
  check_binary_losses(goldens);
  check_divergences(goldens);
  for (const std::string& name : goldens.unseen()) FAIL_CHECK("no test looks at " << name);
}

TEST_CASE("linear_cross_entropy is cross_entropy of the product") {
  Goldens goldens;
  const Tensor hidden = goldens.variable("x");
  const Tensor weight = goldens.variable("y");
  const Tensor targets =
      graph::constant(Array::from<int32_t>(std::vector<int32_t>{3, 0, 5, 2, 2, 1}, {6}));
  const Tensor six = graph::slice(goldens.constant("class_weight"), 0, 0, 6);
  const Tensor losses =
      ops::cross_entropy(ops::linear(hidden, weight), targets, {.reduction = Reduction::kNone});
  const Tensor want = ops::reduce(ops::mul(losses, six), Reduction::kSum);
  const Tensor got = ops::linear_cross_entropy(hidden, weight, targets, six);
  CHECK(got.item() == Approx(want.item()).epsilon(1e-5));
}

TEST_CASE("a mean of many narrow losses does not overflow in their sum") {
  const Tensor large = ops::full({2000}, 100, DType::kF16), zero = ops::zeros_like(large);
  CHECK(ops::l1_loss(large, zero).item() == 100);
  CHECK(ops::reduce(ops::full({2, 1000}, 40, DType::kF16), Reduction::kBatchMean).item() == 40000);
}

TEST_CASE("kl_div is a mean over the input's batch, not over the target's that it meets") {
  const Tensor input = ops::full({2}, -1), target = ops::full({3, 2}, 1);  // six losses of 1
  CHECK(ops::kl_div(input, target, ops::Reduction::kBatchMean).item() == 3);
  CHECK(ops::kl_div(ops::full({}, -1), target, ops::Reduction::kBatchMean).item() == 6);
}

TEST_CASE("huber losses have their second derivative where input and target are equal") {
  const Tensor target = graph::constant(std::vector<float>{1, 1, 1}, {3});
  for (const bool smooth : {false, true}) {
    const Tensor x = autograd::variable(Array::from<float>(std::vector<float>{1, 1.5f, 5}, {3}));
    const Tensor y = smooth ? ops::smooth_l1_loss(x, target, Reduction::kSum)
                            : ops::huber_loss(x, target, Reduction::kSum);
    const Tensor slope = ops::sum(autograd::gradients({&y, 1}, {}, {&x, 1}, true)[0], 0, false);
    const Array second = autograd::gradients({&slope, 1}, {}, {&x, 1})[0].eval();
    const auto values = second.as<float>();
    CHECK(std::vector<float>(values.begin(), values.end()) == std::vector<float>{1, 1, 0});
  }
}

TEST_CASE("losses refuse what does not fit") {
  const Tensor logits = graph::constant(Array::zeros(DType::kF32, {2, 3}));
  const Tensor three = graph::constant(Array::zeros(DType::kI32, {3}));
  auto message = [](auto&& body) { return testing::refusal(ErrorKind::kMalformed, body); };
  CHECK(message([&] { ops::cross_entropy(logits, three); }) ==
        "cross_entropy(f32 [2, 3], i32 [3]): the targets must be int32 or int64 [rows]");
  CHECK(testing::contains(
      message([&] {
        ops::cross_entropy(logits, graph::constant(Array::zeros(DType::kF32, {2, 4})));
      }),
      "cross_entropy"));
  CHECK(testing::contains(message([&] { ops::nll(logits, three, {.label_smoothing = 0.1}); }),
                          "label smoothing"));
  const Tensor two = graph::constant(Array::zeros(DType::kI32, {2}));
  for (double smoothing : {-0.1, 1.1}) {
    CHECK(testing::contains(
        message([&] { ops::cross_entropy(logits, two, {.label_smoothing = smoothing}); }),
        "expected 0 to 1"));
  }
  CHECK(testing::contains(message([&] { ops::huber_loss(logits, logits, Reduction::kMean, 0); }),
                          "delta"));
  CHECK(testing::contains(
      message([&] { ops::smooth_l1_loss(logits, logits, Reduction::kMean, -1); }), "beta"));
}
