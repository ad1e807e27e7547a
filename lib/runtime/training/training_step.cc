#include "lib/runtime/training/training_step.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "lib/autograd/autograd.h"
#include "lib/base/error.h"
#include "lib/graph/plan_observer.h"
#include "lib/nn/training_scope.h"

namespace lumen::runtime {
namespace {

using graph::Tensor;

constexpr int64_t kCopyGrain = 1 << 16;  // bytes that are worth a thread

Fields make_inputs(const data::Batch& example) {
  Fields fields;
  for (const auto& [name, array] : example.fields) {
    fields[name] = graph::input(array.dtype(), array.shape(), name);
  }
  return fields;
}

// By all threads, so that each has what it reads first in its cache.
void fill(ThreadPool& pool, graph::Plan& plan, const Fields& fields, const data::Batch& batch) {
  const graph::ObservedPart part("data");
  for (const auto& [name, tensor] : fields) {
    if (!plan.has_input(tensor)) continue;
    const Array& from = batch.fields.at(name);
    Array& to = plan.input(tensor);
    LUMEN_CHECK(from.shape() == to.shape() && from.dtype() == to.dtype());
    std::byte* const data = to.mutable_data();
    pool.parallel_for(
        static_cast<int64_t>(from.bytes()), kCopyGrain, [&](int64_t begin, int64_t end, int) {
          std::memcpy(data + begin, from.data() + begin, static_cast<size_t>(end - begin));
        });
  }
}

// The order in which a backward pass finishes gradients: the parameters used last come first, so
// that what their gradients need is not kept longer than necessary.
std::vector<size_t> backward_order(const Tensor& loss,
                                   std::span<const TrainedParameter> parameters) {
  std::unordered_map<const graph::Node*, size_t> first_use;
  const graph::Graph graph({loss.node()});
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const graph::NodePtr& input : graph.nodes()[i]->inputs) first_use.emplace(input.get(), i);
  }
  std::vector<size_t> order(parameters.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  auto use = [&](size_t i) {
    auto found = first_use.find(parameters[i].tensor.node().get());
    return found == first_use.end() ? 0 : found->second;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return use(a) > use(b); });
  return order;
}

}  // namespace

TrainingStep::TrainingStep(const Network& network, std::span<const TrainedParameter> parameters,
                           const data::Batch& example, const StepOptions& options)
    : fields_(make_inputs(example)), key_(graph::input(DType::kI32, {2}, "key")) {
  std::vector<Tensor> outputs;
  const graph::AutocastScope autocast(options.compute);
  const nn::TrainingScope training(key_);
  const Tensor loss = network.loss_sum(fields_);
  outputs = {loss};
  for (const Tensor& update : training.updates()) outputs.push_back(update);
  std::vector<Tensor> wrt;
  for (const TrainedParameter& parameter : parameters) wrt.push_back(parameter.tensor);
  Tensor seed;
  if (options.scaled) seed = scale_ = graph::input(DType::kF32, {}, "loss_scale");
  const std::vector<Tensor> gradients = autograd::gradients({&loss, 1}, {&seed, 1}, wrt);
  const std::vector<size_t> order = backward_order(loss, parameters);
  const size_t first = outputs.size();
  for (size_t i : order) outputs.push_back(gradients[i]);
  plan_.emplace(graph::compile(outputs));
  gradients_.resize(order.size());
  for (size_t i = 0; i < order.size(); ++i) gradients_[order[i]] = plan_->output(first + i);
}

void TrainingStep::run(ThreadPool& pool, const data::Batch& batch, int32_t seed, int32_t step,
                       float loss_scale) {
  fill(pool, *plan_, fields_, batch);
  if (plan_->has_input(key_)) {
    const auto key = plan_->input(key_).as_mutable<int32_t>();
    key[0] = seed;
    key[1] = step;
  }
  if (scale_.defined()) plan_->input(scale_).as_mutable<float>()[0] = loss_scale;
  plan_->run(pool);
}

double TrainingStep::loss_sum() const {
  return static_cast<double>(plan_->output(0).as<float>()[0]);
}

EvaluationStep::EvaluationStep(const Network& network, const data::Batch& example)
    : fields_(make_inputs(example)) {
  const graph::NoGradScope no_grad;
  std::vector<Tensor> outputs = {network.loss_sum(fields_)};
  const Tensor logits = network.class_logits(fields_);
  has_classes_ = logits.defined();
  if (has_classes_) outputs.push_back(logits);
  plan_.emplace(graph::compile(outputs));
}

void EvaluationStep::run(ThreadPool& pool, const data::Batch& batch) {
  fill(pool, *plan_, fields_, batch);
  plan_->run(pool);
}

double EvaluationStep::loss_sum() const {
  return static_cast<double>(plan_->output(0).as<float>()[0]);
}

int64_t EvaluationStep::correct(const data::Batch& batch) const {
  if (!has_classes_) return 0;
  const Array& logits = plan_->output(1);
  const int64_t classes = logits.shape()[-1];
  const auto values = logits.as<float>();
  const auto labels = batch.fields.at("y").as<int32_t>();
  int64_t count = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto row = values.subspan(i * static_cast<size_t>(classes), static_cast<size_t>(classes));
    const auto top = std::max_element(row.begin(), row.end()) - row.begin();
    count += labels[i] == top;
  }
  return count;
}

}  // namespace lumen::runtime
