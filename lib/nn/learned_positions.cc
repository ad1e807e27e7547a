#include "lib/nn/learned_positions.h"

namespace lumen::nn {

Tensor LearnedPositions::operator()(const Tensor& first, int64_t tokens, const Tensor& own) const {
  Tensor rows = own;
  if (!rows.defined()) {
    const Tensor begin = graph::reshape(graph::contiguous(first, DType::kF32), {first.dim(0), 1});
    rows = graph::contiguous(ops::add(graph::iota(tokens), begin), DType::kI32);
  }
  return table_(offset_ == 0 ? rows : ops::add(rows, offset_));
}

}  // namespace lumen::nn
