// A training task in plain C++ for tests of the loop around it: linear regression with momentum on
// numbers that are drawn as they are needed, so that weights, optimizer, cursor and loss all depend
// on everything that came before.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/io/atomic_file.h"
#include "lib/io/write_safetensors.h"
#include "lib/runtime/training/train_task.h"

namespace lumen::runtime::testing {

struct FakeOptions {
  int64_t size = 16;
  int64_t spare = 0;  // numbers that the optimizer has besides
  int64_t steps_per_epoch = 10;
  double step_milliseconds = 0;
  bool tokens = false;      // a language task
  double step_tokens = 32;  // which its summary takes for 32
  bool evaluates = true;
  int64_t nan_from = -1, nan_until = -1;  // steps [from, until) without a finite loss
  int64_t ruin_at = -1;                   // the update of this step makes a weight infinite
  int64_t burst_at = -1;                  // after this step the loss is not finite
  bool learns = true;
  std::string hash = "aa";  // of its data
  std::string data = "fake.csv";
  std::string tokens_hash = "", base_hash = "";
  std::function<void(int64_t)> before_step = {};
  std::function<void(int64_t)> in_evaluation = {};  // after so many steps, before it is asked
  std::function<void(int64_t)> in_sample = {};      // whether it is to stop
};

class FakeTask : public TrainTask {
 public:
  FakeTask(uint64_t seed, FakeOptions options)
      : options_(std::move(options)), random_(seed), truth_(seed, 1) {
    const Shape shape = {options_.size};
    weights_ = Array::zeros(DType::kF32, shape);
    momentum_ = Array::zeros(DType::kF32, shape);
    for (int64_t i = 0; i < options_.size; ++i) target_.push_back(truth_.normal());
  }

  TaskSummary summary() const override {
    TaskSummary summary;
    summary.parameters = summary.trained_parameters = options_.size;
    summary.parameter_bytes = summary.optimizer_bytes = static_cast<uint64_t>(options_.size) * 4;
    summary.arena_bytes = 4096;
    summary.shapes = {{"line.weight", weights_.shape(), true}};
    summary.data = {{options_.data, 1234, options_.hash, 40, 1}};
    summary.tokens_sha256 = options_.tokens_hash;
    summary.base_sha256 = options_.base_hash;
    summary.steps_per_epoch = options_.steps_per_epoch;
    summary.samples_per_step = 4;
    summary.tokens_per_step = options_.tokens ? 32 : 0;
    summary.model = "a line";
    summary.batch = "4 points";
    return summary;
  }

  StepResult step(double lr) override {
    if (options_.before_step) options_.before_step(steps_);
    if (options_.step_milliseconds > 0) {
      std::this_thread::sleep_for(
          std::chrono::duration<double, std::milli>(options_.step_milliseconds));
    }
    const int64_t index = steps_++;
    StepResult result;
    result.samples = 4;
    result.tokens = options_.tokens ? options_.step_tokens : 0;
    const auto w = weights_.as_mutable<float>(), v = momentum_.as_mutable<float>();
    double norm = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const double noise = 0.1 * random_.normal();
      const double gradient = w[i] - target_[i] + noise;
      result.loss += 0.5 * (w[i] - target_[i]) * (w[i] - target_[i]);
      norm += gradient * gradient;
      gradients_.resize(w.size());
      gradients_[i] = gradient;
    }
    result.grad_norm = std::sqrt(norm);
    result.finite = !(index >= options_.nan_from && index < options_.nan_until);
    if (!result.finite) {
      result.loss = NAN;
      result.updated = false;
      return result;
    }
    for (size_t i = 0; i < w.size() && options_.learns; ++i) {
      v[i] = static_cast<float>(0.5 * v[i] + gradients_[i]);
      w[i] = static_cast<float>(w[i] - lr * v[i]);
    }
    if (index == options_.ruin_at) w[0] = INFINITY;
    return result;
  }

  bool has_finite_weights() const override {
    const auto w = weights_.as<float>();
    return std::all_of(w.begin(), w.end(), [](float x) { return std::isfinite(x); });
  }

  NonfinitePlace find_nonfinite() const override {
    const std::string name = "line.weight";
    const bool diverges = steps_ > options_.nan_from && steps_ <= options_.nan_until;
    return {has_finite_weights() ? "" : name, diverges ? name : "", {4, 7}};
  }

  uint64_t evaluation_bytes() const override { return 1024; }
  double loss_after_step() override { return steps_ == options_.burst_at + 1 ? NAN : 0; }

  std::map<std::string, double> evaluate(const StopCheck& stops) override {
    if (!options_.evaluates) return {};
    if (options_.in_evaluation) options_.in_evaluation(steps_);
    if (stops()) return {};
    double loss = loss_after_step();
    const auto w = weights_.as<float>();
    for (size_t i = 0; i < w.size(); ++i) loss += (w[i] - target_[i]) * (w[i] - target_[i]);
    return {{"eval_loss", loss}, {"eval_accuracy", 1 / (1 + loss)}};
  }

  TaskState state() const override {
    const Array spare = Array::zeros(DType::kF32, {options_.spare});
    return {{{"line.weight", weights_}},
            {{"line.weight.momentum", momentum_}, {"spare", spare}},
            {{"steps", steps_}, {"random", random_.offset()}}};
  }

  void restore(const TaskState& state) override {
    const auto found = state.weights.find("line.weight");
    if (found == state.weights.end() || !(found->second.shape() == weights_.shape())) {
      fail(ErrorKind::kMismatch, "line.weight does not fit");
    }
    copy(found->second, weights_);
    copy(state.optimizer.at("line.weight.momentum"), momentum_);
    steps_ = state.json["steps"].get<int64_t>();
    // normal() draws pairs; an even number per step leaves nothing behind.
    random_.set_offset(state.json["random"].get<uint64_t>());
  }

  void export_model(const std::string& directory) override {
    io::write_safetensors(directory + "/model.safetensors", {{"line.weight", weights_}});
    io::write_file_atomically(directory + "/config.json", "{\"model_type\": \"line\"}\n");
  }

  std::vector<std::string> sample(const std::vector<std::string>& prompts, int64_t,
                                  const StopCheck& stops) override {
    if (options_.in_sample) options_.in_sample(steps_);
    std::vector<std::string> texts;
    if (stops()) return texts;
    for (const std::string& prompt : prompts) texts.push_back(prompt + " and so on");
    return texts;
  }

  std::vector<std::string> preview(int64_t count) override {
    std::vector<std::string> samples;
    for (int64_t i = 0; i < count; ++i) samples.push_back("[masked] learnt " + str(i));
    return samples;
  }

 private:
  static void copy(const Array& from, Array& to) {
    const auto values = from.as<float>();
    std::copy(values.begin(), values.end(), to.as_mutable<float>().begin());
  }

  FakeOptions options_;
  Philox random_, truth_;
  std::vector<double> target_, gradients_;
  Array weights_, momentum_;
  int64_t steps_ = 0;
};

inline TaskFactory fake_factory(FakeOptions options = {}) {
  return [options](const Recipe& recipe, const TaskOptions&) {
    return std::make_unique<FakeTask>(static_cast<uint64_t>(recipe.seed), options);
  };
}

}  // namespace lumen::runtime::testing
