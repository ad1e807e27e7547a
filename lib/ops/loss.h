// Losses, with the semantics of torch.nn.functional: values, reductions, special cases, gradients.
// They have the common type of their inputs, which are floats; float16 and bfloat16 are computed in
// float32 and rounded once. Class indices are int32 or int64. All throw Error(kMalformed) naming
// the operation and the shapes when they do not fit.
#pragma once

#include "lib/ops/ops.h"

namespace lumen::ops {

// What is made of the losses of elements or rows: nothing, their mean, their sum, or the sum
// divided by the extent of the first axis. The mean of nothing is NaN.
enum class Reduction { kNone, kMean, kSum, kBatchMean };

struct CrossEntropyOptions {
  Tensor class_weight = {};     // [classes], of floats; undefined: ones
  int64_t ignore_index = -100;  // of class indices: such a row's loss is 0 and it does not count
  double label_smoothing = 0;   // ε: the target becomes (1 − ε) target + ε / classes
  Reduction reduction = Reduction::kMean;
};

// −Σ_c w_c target_c ln softmax(logits)_c for each row of logits [rows, classes].
//
// With targets [rows], class indices (also [batch, …] for logits [batch, classes, …] and [] for
// [classes], and then the losses are so, too), the mean divides by Σ w_y over the rows that count:
// NaN if none does. An index that is no class makes the row's loss and gradient NaN. With targets
// [..., classes] of floats, probabilities, it divides by the number of rows, and the targets have a
// gradient. The class weights have none.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});

// −w_y x[y] for rows x of log-probabilities [rows, classes] and targets [rows]; shapes, reductions
// and special rows as cross_entropy. label_smoothing must be 0.
Tensor nll(const Tensor& log_probabilities, const Tensor& targets,
           const CrossEntropyOptions& options = {});

// Σ_i token_weights[i] · cross_entropy(soft_cap(hidden_i · weightᵀ, logit_cap), targets[i]) → [],
// for hidden [rows, dim], weight [classes, dim], targets [rows] and token_weights [rows] of floats.
// The logits are never stored whole; where a gradient is needed it is computed in the same sweep
// and cannot be differentiated again. A row of token weight 0 does not count, whatever its target.
// The token weights have no gradient.
Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                            const Tensor& token_weights, double logit_cap = 0);

// Element-wise losses; `input` and `target` broadcast.
// (input − target)².
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean);
// |input − target|.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean);
// d²/2 where d = |input − target| ≤ delta, beyond delta (d − delta/2). delta > 0.
Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
                  double delta = 1);
// d²/(2 beta) where d < beta, beyond d − beta/2; beta = 0: l1_loss.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      Reduction reduction = Reduction::kMean, double beta = 1);
// −(t ln p + (1 − t) ln(1 − p)) for probabilities p, logarithms not below −100; times `weight`.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                            Reduction reduction = Reduction::kMean);
// The same of p = sigmoid(input), stable for every input; `positive_weight` multiplies t's term.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const Tensor& weight = {},
                                        const Tensor& positive_weight = {},
                                        Reduction reduction = Reduction::kMean);
// t (ln t − input) where input is ln of the model's probability and t the target, 0 where t is 0;
// with log_target, exp(target) (target − input). kBatchMean divides by the input's first extent.
Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
              bool log_target = false);

// ln sigmoid(x).
Tensor log_sigmoid(const Tensor& x);

// The losses reduced over all axes → [] (kNone: as they are).
Tensor reduce(const Tensor& losses, Reduction reduction);

}  // namespace lumen::ops
