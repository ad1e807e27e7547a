#include "lib/nn/normalization.h"

#include "lib/base/error.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

// [channels] as [channels, 1, …], which broadcasts over x [batch, channels, …].
Tensor per_channel(const Tensor& values, int rank) {
  Shape shape = values.shape();
  for (int axis = 2; axis < rank; ++axis) shape.push_back(1);
  return graph::reshape(values, shape);
}

struct Moments {
  Tensor mean, variance;  // [channels]; the variance biased
};

// Over all axes but the second.
Moments batch_moments(const Tensor& x, int64_t channels) {
  const int64_t rest = x.shape().elements() / std::max<int64_t>(1, x.dim(0) * channels);
  const Tensor flat = graph::reshape(
      graph::transpose(graph::reshape(x, {x.dim(0), channels, rest}), 0, 1), {channels, -1});
  const Tensor mean = ops::mean(flat, 1), centered = ops::sub(flat, mean);
  const Tensor variance = ops::mean(ops::mul(centered, centered), 1);
  return {graph::reshape(mean, {channels}), graph::reshape(variance, {channels})};
}

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
  if (parameters.has("num_batches_tracked") || !parameters.has("running_mean")) {
    parameters.buffer("num_batches_tracked", {}, Init::zeros(), DType::kI64);
  }
}

Tensor BatchNorm::forward(const Tensor& x) const {
  if (x.rank() < least_rank_ || x.rank() > most_rank_ || x.dim(1) != channels_) {
    fail(ErrorKind::kMalformed, "batch norm of ", channels_, " channels cannot take ",
         to_string(x.shape()), ": expected [batch, ", channels_,
         most_rank_ == 4 ? ", height, width]" : "] or [batch, channels, length]");
  }
  TrainingScope* const step = training() ? TrainingScope::current() : nullptr;
  const bool of_batch = step || !options_.track_running_stats;
  Tensor mean = running_mean_, variance = running_var_;
  if (of_batch) {
    const int64_t count = x.shape().elements() / channels_;
    if (step && count < 2) {
      fail(ErrorKind::kMalformed, "batch norm cannot train on ", to_string(x.shape()),
           ": one value per channel has no variance");
    }
    const Moments moments = batch_moments(x, channels_);
    mean = moments.mean, variance = moments.variance;
    if (step && options_.track_running_stats) {
      const graph::NoGradScope no_grad;
      const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
      auto move = [&](const Tensor& running, const Tensor& value, double factor) {
        const Tensor kept = ops::mul(running, scalar(1 - options_.momentum));
        const Tensor added = ops::mul(value, scalar(options_.momentum * factor));
        step->add_update(ops::assign(running, ops::add(kept, added)));
      };
      move(running_mean_, mean, 1);
      move(running_var_, variance, unbiased);
    }
  }
  Tensor factor = ops::rsqrt(ops::add(variance, scalar(options_.eps)));
  if (weight_.defined()) factor = ops::mul(factor, weight_);
  const Tensor centered = ops::sub(x, per_channel(mean, x.rank()));
  const Tensor y = ops::mul(centered, per_channel(factor, x.rank()));
  return bias_.defined() ? ops::add(y, per_channel(bias_, x.rank())) : y;
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
  // Every group of a sample is a row.
  const Tensor rows = graph::reshape(x, {x.dim(0) * groups, -1});
  const std::vector<float> ones(rows.dim(1), 1.0f), zeros(rows.dim(1), 0.0f);
  const Tensor normal = graph::reshape(ops::layer_norm(rows, graph::constant(ones, {rows.dim(1)}),
                                                       graph::constant(zeros, {rows.dim(1)}), eps),
                                       x.shape());
  if (!weight.defined()) return normal;
  return ops::add(ops::mul(normal, per_channel(weight, x.rank())), per_channel(bias, x.rank()));
}

}  // namespace lumen::nn
