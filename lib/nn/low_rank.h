// Low-rank additions to linear layers: LoRA (Hu et al. 2021) and DoRA (Liu et al. 2024).
#pragma once

#include <cstdint>
#include <optional>

#include "lib/base/function_ref.h"
#include "lib/graph/tensor.h"

namespace lumen::nn {

using graph::Tensor;

// alpha / rank; rank-stabilised (Kalajdzievski 2023): alpha / √rank.
double lora_scale(double alpha, int64_t rank, bool rank_stabilized);

// How a layer's weight lies in memory: [out, in], or [in, out] as in GPT-2's layers ("Conv1D").
enum class WeightOrder { kOutIn, kInOut };

// Of DoRA, the length m [out] of what a layer computes each output with.
struct Magnitudes {
  Tensor m;
  // The frozen weight of the layer, and the squared lengths [out] of its rows, one of each output.
  Tensor weight, squares;
  WeightOrder order = WeightOrder::kOutIn;
};

// The addition to one layer: a [rank, in], b [out, rank]. It makes W x of the layer
//   LoRA: W x + scale · B (A x)
//   DoRA: (W x + scale · B (A x)) · m / ‖W + scale · B A‖
// where the lengths are those of rows and, as in PEFT, no gradient goes through them.
struct LowRank {
  Tensor a, b;
  double scale = 1, dropout = 0;
  std::optional<Magnitudes> magnitudes = {};  // without: LoRA
};

// A low-rank addition that a model has of its own, not an adapter: the one of this number, A and B
// of this rank.
struct OwnAddition {
  int64_t number = 0, rank = 0;
};

// `m` with what belongs to it for a layer of this weight, a constant. Computes the squares.
Magnitudes magnitudes_of(const Tensor& m, const Tensor& weight, WeightOrder order);
// The lengths [out] of the rows of `weight`: the m with which B = 0 changes nothing, not by a bit.
Array row_lengths(const Tensor& weight, WeightOrder order);

// x [..., in] → W x + bias [..., out]; without a defined bias W x.
using Product = FunctionRef<Tensor(const Tensor& x, const Tensor& bias)>;

// The layer with its addition. Dropout is on what the addition reads, of DoRA also in the part of
// W x by which its length differs from 1, as in PEFT:
//   W x + bias + (f − 1) · W d + f · scale · B (A d) with f = m / ‖…‖ and d = dropout(x).
Tensor with_addition(Product product, const Tensor& bias, const Tensor& x,
                     const std::optional<LowRank>& addition);

// The weight of a layer with its addition worked in, as PEFT's merge_and_unload has it: float32.
Tensor worked_in(const Tensor& weight, const LowRank& addition,
                 WeightOrder order = WeightOrder::kOutIn);
// The same, or `weight` itself without an addition.
inline Tensor worked_in(const Tensor& weight, const std::optional<LowRank>& addition) {
  return addition ? worked_in(weight, *addition) : weight;
}

}  // namespace lumen::nn
