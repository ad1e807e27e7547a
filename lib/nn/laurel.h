// The learned augmented residual layer (LAuReL, of low rank; Menghani et al. 2024; Gemma 3n).
#pragma once

#include "lib/nn/layers.h"

namespace lumen::nn {

struct LaurelShape {
  int64_t hidden, rank;
  NormShape norm;
};

// x + post_laurel_norm(linear_right(linear_left(x))), x [..., hidden].
class Laurel {
 public:
  Laurel(const Parameters& parameters, const LaurelShape& shape)
      : linear_left_(parameters / "linear_left", shape.hidden, shape.rank, false),
        linear_right_(parameters / "linear_right", shape.rank, shape.hidden, false),
        norm_(parameters / "post_laurel_norm", shape.hidden, shape.norm) {}
  Tensor operator()(const Tensor& x) const {
    return ops::add(x, norm_(linear_right_(linear_left_(x))));
  }

 private:
  Linear linear_left_, linear_right_;
  Norm norm_;
};

}  // namespace lumen::nn
