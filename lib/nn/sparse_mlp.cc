#include "lib/nn/sparse_mlp.h"

#include "lib/base/strings.h"

namespace lumen::nn {

SparseMlp::SparseMlp(const Parameters& parameters, const SparseMlpShape& shape)
    : router_(parameters / shape.router, shape.hidden, shape.experts, shape.biases),
      options_{.used = shape.used,
               .normalize = shape.normalize,
               .alpha = shape.alpha,
               .limit = shape.limit} {
  for (int64_t e = 0; e < shape.experts; ++e) {
    const Parameters expert = parameters / "experts" / str(e);
    const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
      return (expert / name).get("weight", {out, in}, Init::fan_in_uniform());
    };
    gate_.push_back(matrix(shape.gate, shape.intermediate, shape.hidden));
    up_.push_back(matrix(shape.up, shape.intermediate, shape.hidden));
    down_.push_back(matrix(shape.down, shape.hidden, shape.intermediate));
  }
  if (shape.shared > 0) {
    shared_.emplace(parameters / "shared_expert",
                    GatedMlpShape{shape.hidden, shape.shared, Activation("silu")});
    shared_gate_.emplace(parameters / "shared_expert_gate", shape.hidden, 1, false);
  }
  if (!shape.biases) return;
  const auto bias = [&](const std::string& name, int64_t out) {
    const Parameters place = parameters / "experts" / name;
    return place.get_f32("bias", {shape.experts, out}, Init::zeros());
  };
  options_.gate_bias = bias(shape.gate, shape.intermediate);
  options_.up_bias = bias(shape.up, shape.intermediate);
  options_.down_bias = bias(shape.down, shape.hidden);
}

Tensor SparseMlp::operator()(const Tensor& x) const {
  const Tensor routed = ops::experts(x, router_(x), gate_, up_, down_, options_);
  if (!shared_) return routed;
  return ops::add(routed, ops::mul((*shared_)(x), ops::sigmoid((*shared_gate_)(x))));
}

}  // namespace lumen::nn
