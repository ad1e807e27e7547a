#include "lib/nn/dual_mlp.h"

#include <cmath>

namespace lumen::nn {
namespace {

Norm norm_of(const Parameters& parameters, const char* name, const DualMlpShape& shape) {
  return Norm(parameters / name, shape.dense.hidden, shape.norm);
}

}  // namespace

DualMlp::DualMlp(const Parameters& parameters, const DualMlpShape& shape)
    : dense_(parameters / shape.dense.name, shape.dense),
      experts_(parameters, shape.experts),
      before_dense_(norm_of(parameters, "pre_feedforward_layernorm", shape)),
      after_dense_(norm_of(parameters, "post_feedforward_layernorm_1", shape)),
      before_experts_(norm_of(parameters, "pre_feedforward_layernorm_2", shape)),
      after_experts_(norm_of(parameters, "post_feedforward_layernorm_2", shape)),
      scale_(parameters.get_f32("router.scale", {shape.dense.hidden}, Init::ones())),
      eps_(shape.norm.eps) {}

Tensor DualMlp::operator()(const Tensor& x, Tensor* router_logits) const {
  const double root = std::sqrt(static_cast<double>(scale_.dim(0)));
  const Tensor given = ops::rms_norm(x, ops::mul(scale_, 1 / root), eps_);
  const Tensor routed = experts_.with_router(before_experts_(x), given, router_logits);
  return ops::add(after_dense_(dense_(before_dense_(x))), after_experts_(routed));
}

}  // namespace lumen::nn
