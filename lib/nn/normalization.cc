#include "lib/nn/normalization.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

Tensor scalar(double value) {
  return graph::scalar(static_cast<float>(value));
}

}  // namespace

BatchNorm::BatchNorm(const Parameters& parameters, int64_t channels,
                     const BatchNormOptions& options, int least_rank, int most_rank)
    : channels_(channels), options_(options), least_rank_(least_rank), most_rank_(most_rank) {
  if (options.affine) {
    weight_ = parameters.get_f32("weight", {channels}, Init::ones());
    bias_ = parameters.get_f32("bias", {channels}, Init::zeros());
  }
  if (!options.track_running_stats) return;
  running_mean_ = parameters.buffer("running_mean", {channels}, Init::zeros());
  running_var_ = parameters.buffer("running_var", {channels}, Init::ones());
  // Checkpoints from elsewhere may lack the counter.
  if (parameters.has("num_batches_tracked") || !parameters.has("running_mean") ||
      !options.momentum) {
    batches_ = parameters.buffer("num_batches_tracked", {}, Init::zeros(), DType::kI64);
  }
}

Tensor BatchNorm::forward(const Tensor& x) const {
  if (x.rank() < least_rank_ || x.rank() > most_rank_ || x.dim(1) != channels_) {
    fail(ErrorKind::kMalformed, "batch norm of ", channels_, " channels cannot take ",
         to_string(x.shape()), ": expected [batch, ", channels_,
         most_rank_ == 4 ? ", height, width]" : "] or [batch, channels, length]");
  }
  TrainingScope* const step = training() ? TrainingScope::current() : nullptr;
  if (!step && options_.track_running_stats) {
    return ops::batch_norm(x, running_mean_, running_var_, weight_, bias_, options_.eps);
  }
  const auto result = ops::batch_norm_training(x, weight_, bias_, options_.eps);
  if (step && step->moves_states() && options_.track_running_stats) {
    const graph::NoGradScope no_grad;
    const auto count = static_cast<double>(x.shape().elements() / std::max<int64_t>(1, channels_));
    const Tensor unbiased = ops::mul(result.var, scalar(count / (count - 1)));
    Tensor batches;
    if (batches_.defined()) {
      batches = ops::add_state(batches_, ops::full({}, 1, DType::kI64));
      step->add_update(batches);
    }
    const Tensor momentum = options_.momentum ? scalar(*options_.momentum)
                                              : ops::recip(graph::contiguous(batches, DType::kF32));
    step->add_update(ops::lerp_state(running_mean_, result.mean, momentum));
    step->add_update(ops::lerp_state(running_var_, unbiased, momentum));
  }
  return result.y;
}

GroupNorm::GroupNorm(const Parameters& parameters, int64_t group_count, int64_t channel_count,
                     double epsilon, bool affine)
    : groups(group_count), channels(channel_count), eps(epsilon) {
  if (groups < 1 || channels % groups != 0) {
    fail(ErrorKind::kMalformed, "group norm of ", channels, " channels cannot have ", groups,
         " groups");
  }
  if (!affine) return;
  weight = parameters.get_f32("weight", {channels}, Init::ones());
  bias = parameters.get_f32("bias", {channels}, Init::zeros());
}

Tensor GroupNorm::operator()(const Tensor& x) const {
  if (x.rank() < 2 || x.dim(1) != channels) {
    fail(ErrorKind::kMalformed, "group norm of ", channels, " channels cannot take ",
         to_string(x.shape()));
  }
  return ops::group_norm(x, groups, weight, bias, eps);
}

}  // namespace lumen::nn
