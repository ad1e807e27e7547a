// Embeddings of positions that are learned, one for each.
#pragma once

#include "lib/nn/layers.h"

namespace lumen::nn {

// Of position p the row p + `offset` of a table of `positions` + `offset` rows (Vaswani et al.
// 2017; GPT-2, and OPT, whose first 2 rows are of no position).
class LearnedPositions {
 public:
  LearnedPositions(const Parameters& parameters, int64_t positions, int64_t dim, int64_t offset = 0)
      : offset_(offset), table_(parameters, positions + offset, dim) {}

  // Of `tokens` positions from `first` (int32 [1] or [batch]) on, [1 or batch, tokens, dim], or of
  // positions of each token's `own` [batch, tokens].
  Tensor operator()(const Tensor& first, int64_t tokens, const Tensor& own = {}) const;

 private:
  int64_t offset_;
  Embedding table_;
};

}  // namespace lumen::nn
