// What low-rank additions (low_rank.h) start with before they are trained.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/base/random.h"
#include "lib/nn/low_rank.h"

namespace lumen::nn {

enum class LowRankInit {
  kUniform,     // A as PyTorch's Linear layers, B = 0 (Hu et al. 2021)
  kGaussian,    // A of deviation 1 / rank, B = 0
  kOrthogonal,  // A and B of deviation about 1/10 with B A = 0; the rank is even
  kRandom,      // A and B as PyTorch's Linear layers: changes the model
  kPissa,  // √Σ Vᵀ and U √Σ of the largest singular values Σ of W / scale (Meng et al. 2024)
  kOlora,  // of W = Q R the first rows of R and columns of Q (Büyükakyüz 2024)
};

// Whether an addition starts as a part of W, which is taken from it: the layer is
// W x + scale · (B A − B₀ A₀) x with A₀ and B₀ as at the start.
inline bool is_part_of_weight(LowRankInit init) {
  return init == LowRankInit::kPissa || init == LowRankInit::kOlora;
}

struct LowRankStart {
  Array a, b;  // float32 [rank, in], [out, rank]
};

// Of a layer with this weight, a constant. Where W has fewer singular values or columns than `rank`
// the others start as kUniform. `iterations` are the most for kPissa; absent: until Σ does not
// change.
LowRankStart low_rank_start(LowRankInit init, const Tensor& weight, WeightOrder order, int64_t rank,
                            double scale, const std::optional<int64_t>& iterations, Philox& random);

}  // namespace lumen::nn
