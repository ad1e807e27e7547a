// One compiled forward and backward pass over batches of one shape.
#pragma once

#include <span>
#include <vector>

#include "lib/data/batch.h"
#include "lib/graph/plan.h"
#include "lib/runtime/training/network.h"

namespace lumen::runtime {

// Parameters that are trained, in the order of gradients and optimizer.
struct TrainedParameter {
  std::string name;
  graph::Tensor tensor;
};

struct StepOptions {
  DType compute = DType::kF32;  // f32; bf16 or f16: products of rounded inputs
  bool scaled = false;          // the gradient is of loss · loss_scale (float16)
};

// Plans that share the parameters' memory. Not thread-safe.
class TrainingStep {
 public:
  // Compiles for batches of the shape of `example`, for at most the threads of the current pool.
  TrainingStep(const Network& network, std::span<const TrainedParameter> parameters,
               const data::Batch& example, const StepOptions& options);

  // Computes loss and gradients of `batch`. `seed` and `step` drive dropout.
  void run(ThreadPool& pool, const data::Batch& batch, int32_t seed, int32_t step,
           float loss_scale = 1);

  // Σ of the losses of the targets that count.
  double loss_sum() const;
  // The gradients of loss_sum, one per parameter; valid until the next run.
  const std::vector<Array>& gradients() const { return gradients_; }
  size_t arena_bytes() const { return plan_->arena_bytes(); }

 private:
  std::map<std::string, graph::Tensor> fields_;
  graph::Tensor key_, scale_;
  std::optional<graph::Plan> plan_;
  std::vector<Array> gradients_;
};

// The forward pass alone, as at inference.
class EvaluationStep {
 public:
  EvaluationStep(const Network& network, const data::Batch& example);
  void run(ThreadPool& pool, const data::Batch& batch);

  double loss_sum() const;
  // How many samples have their class on top; 0 if there are no classes.
  int64_t correct(const data::Batch& batch) const;
  bool has_classes() const { return has_classes_; }
  size_t arena_bytes() const { return plan_->arena_bytes(); }

 private:
  std::map<std::string, graph::Tensor> fields_;
  std::optional<graph::Plan> plan_;
  bool has_classes_ = false;
};

}  // namespace lumen::runtime
