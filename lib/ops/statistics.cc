// Statistics along axes, made of other operations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {
namespace {

int64_t reduced_count(std::string_view op, const Shape& shape, const Axes& axes) {
  const std::vector<bool> gone = chosen_axes(op, shape, axes);
  int64_t count = 1;
  for (int i = 0; i < shape.rank(); ++i) count *= gone[static_cast<size_t>(i)] ? shape[i] : 1;
  return count;
}

// xᵖ of x ≥ 0. Where x is 0 and p < 1 the gradient is 0, as in torch, in place of ∞ that would meet
// the 0 of what x is made of: the power is taken of 1 there.
Tensor power(const Tensor& x, double p) {
  if (p >= 1) return pow(x, p);
  const Tensor none = equal(x, constant_like(0, x));
  const Tensor some = pow(where(none, constant_like(1, x), x), p);
  return where(none, constant_like(std::pow(0.0, p), x), some);
}

}  // namespace

Tensor var(const Tensor& x, const Axes& axes, bool keepdim, double correction) {
  return in_float(x, [&](const Tensor& t) {
    const Tensor centred = sub(t, mean(t, axes, true));
    const auto count = static_cast<double>(reduced_count("var", x.shape(), axes));
    // One element and correction 1: 0 / 0, as torch.
    return div(sum(mul(centred, centred), axes, keepdim), std::max(0.0, count - correction));
  });
}

Tensor stddev(const Tensor& x, const Axes& axes, bool keepdim, double correction) {
  return in_float(x,
                  [&](const Tensor& t) { return power(var(t, axes, keepdim, correction), 0.5); });
}

Tensor logsumexp(const Tensor& x, const Axes& axes, bool keepdim) {
  return in_float(x, [&](const Tensor& t) {
    if (reduced_count("logsumexp", t.shape(), axes) == 0) {
      return log(sum(t, axes, keepdim));  // ln 0
    }
    // The shift is constant to the gradient: it cancels.
    Tensor shift;
    {
      const graph::NoGradScope no_grad;
      const Tensor largest = amax(t, axes, true);
      // Finite also for ∞, beside which what is finite has no weight.
      const double most = t.dtype() == DType::kF64 ? std::numeric_limits<double>::max()
                                                   : std::numeric_limits<float>::max();
      const Tensor other = where(gt(largest, 0.0), most, constant_like(0, largest));
      shift = where(isfinite(largest), largest, other);
    }
    const Tensor total = log(sum(exp(sub(t, shift)), axes, true));
    const std::vector<bool> gone = chosen_axes("logsumexp", t.shape(), axes);
    return graph::reshape(add(total, shift), kept_shape(t.shape(), gone, keepdim));
  });
}

Tensor norm(const Tensor& x, double p, const Axes& axes, bool keepdim) {
  return in_float(x, [&](const Tensor& t) {
    if (p == 0) return sum(sub(1.0, equal(t, constant_like(0, t))), axes, keepdim);
    if (p == 1) return sum(abs(t), axes, keepdim);
    if (std::isinf(p)) return p > 0 ? amax(abs(t), axes, keepdim) : amin(abs(t), axes, keepdim);
    if (p == 2) return power(sum_of_squares(t, axes, keepdim), 0.5);
    return power(sum(power(abs(t), p), axes, keepdim), 1 / p);
  });
}

}  // namespace lumen::ops
