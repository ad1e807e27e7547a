#include "lib/nn/sparse_mlp.h"

#include "lib/base/strings.h"

namespace lumen::nn {

SparseMlp::SparseMlp(const Parameters& parameters, const SparseMlpShape& shape)
    : router_(parameters / "gate", shape.hidden, shape.experts, false),
      options_{.used = shape.used, .normalize = shape.normalize} {
  for (int64_t e = 0; e < shape.experts; ++e) {
    const Parameters expert = parameters / "experts" / str(e);
    const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
      return (expert / name).get("weight", {out, in}, Init::fan_in_uniform());
    };
    gate_.push_back(matrix(shape.gate, shape.intermediate, shape.hidden));
    up_.push_back(matrix(shape.up, shape.intermediate, shape.hidden));
    down_.push_back(matrix(shape.down, shape.hidden, shape.intermediate));
  }
}

Tensor SparseMlp::operator()(const Tensor& x) const {
  return ops::experts(x, router_(x), gate_, up_, down_, options_);
}

}  // namespace lumen::nn
