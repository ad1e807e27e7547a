#include "lib/nn/xielu.h"

#include <cmath>

#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

constexpr double kAlpha = 0.8, kBeta = 0.5, kEps = -1e-6;

// What softplus gives `slope` for.
Init slope_of(double slope) {
  return Init::constant(std::log(std::expm1(slope)));
}

}  // namespace

Xielu::Xielu(const Parameters& parameters)
    : alpha_p_(parameters.get_f32("alpha_p", {1}, slope_of(kAlpha))),
      alpha_n_(parameters.get_f32("alpha_n", {1}, slope_of(kAlpha - kBeta))),
      beta_(parameters.buffer("beta", {}, Init::constant(kBeta))),
      eps_(parameters.buffer("eps", {}, Init::constant(kEps))) {}

Tensor Xielu::operator()(const Tensor& x) const {
  const Tensor positive = ops::mul(ops::softplus(alpha_p_), ops::square(x));
  const Tensor negative = ops::mul(ops::add(beta_, ops::softplus(alpha_n_)),
                                   ops::sub(ops::expm1(ops::minimum(x, eps_)), x));
  return ops::add(ops::where(ops::gt(x, 0), positive, negative), ops::mul(beta_, x));
}

}  // namespace lumen::nn
