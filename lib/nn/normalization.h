// Normalisation over channels. LayerNorm and RmsNorm are in layers.h.
#pragma once

#include <optional>

#include "lib/nn/module.h"

namespace lumen::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  // Weight of a batch in the running statistics; none: 1 / num_batches_tracked, which makes them
  // the mean over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

// (x − mean_c) / √(var_c + eps) · weight_c + bias_c for every channel c of x [batch, channels, …]
// (Ioffe & Szegedy 2015). In training mode inside an nn::TrainingScope, and without running
// statistics always, mean and variance are those of the batch; in training running_mean and
// running_var move towards them, the variance being unbiased: TrainingScope::updates. Buffers:
// running_mean, running_var and num_batches_tracked (int64 []: how many batches moved them), which
// a checkpoint may lack if there is a momentum.
class BatchNorm : public Module {
 public:
  Tensor forward(const Tensor& x) const override;

 protected:
  BatchNorm(const Parameters& parameters, int64_t channels, const BatchNormOptions& options,
            int least_rank, int most_rank);

 private:
  int64_t channels_;
  BatchNormOptions options_;
  int least_rank_, most_rank_;
  Tensor weight_, bias_, running_mean_, running_var_;
  Tensor batches_;  // num_batches_tracked; undefined if the checkpoint has none
};

// Of x [batch, channels] or [batch, channels, length].
class BatchNorm1d : public BatchNorm {
 public:
  BatchNorm1d(const Parameters& parameters, int64_t channels, const BatchNormOptions& options = {})
      : BatchNorm(parameters, channels, options, 2, 3) {}
};

// Of x [batch, channels, height, width].
class BatchNorm2d : public BatchNorm {
 public:
  BatchNorm2d(const Parameters& parameters, int64_t channels, const BatchNormOptions& options = {})
      : BatchNorm(parameters, channels, options, 4, 4) {}
};

// The same over each group of channels of each sample (Wu & He 2018); never running statistics.
struct GroupNorm {
  GroupNorm(const Parameters& parameters, int64_t groups, int64_t channels, double eps = 1e-5,
            bool affine = true);
  Tensor operator()(const Tensor& x) const;

  int64_t groups, channels;
  double eps;
  Tensor weight, bias;
};

}  // namespace lumen::nn
