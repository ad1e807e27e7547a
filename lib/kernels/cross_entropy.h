// Cross-entropy of rows of logits with class indices, and what linear_cross_entropy makes of it.
#pragma once

#include <cstddef>

#include "lib/kernels/norm.h"

namespace lumen::kernels {

// With p = softmax(x), w the class weights (null: ones), y the target and ε the smoothing:
// loss = −(1 − ε) w_y ln p_y − ε/classes · Σ_c w_c ln p_c. A row whose target is `ignore_index` has
// loss 0; one whose target is neither that nor a class has loss NaN.
struct CrossEntropy {
  Rows logits;
  const int32_t* targets;               // [rows]
  const float* class_weight = nullptr;  // [dim], float32 whatever the logits are
  int64_t ignore_index = -100;
  float smoothing = 0;
};

// What is known of each row, arrays of `rows`: its loss, the weight w_y that counts in a mean (0 if
// ignored), and for the gradient max x and 1 / Σ exp(x − max).
struct CrossEntropyRows {
  float *loss, *weight, *maximum, *scale;
};

void cross_entropy(ThreadPool& pool, const CrossEntropy& args, const CrossEntropyRows& out);

// dx = drow · d loss / d logits, contiguous rows of float32; may be the logits, if those are.
// `drow` is [rows].
void cross_entropy_backward(ThreadPool& pool, const CrossEntropy& args, const float* maximum,
                            const float* scale, const float* drow, float* dx);

// The loss of each row and drow · d loss / d logits in place of `logits`, the data of args.logits
// (contiguous rows of float32), while they lie in the cache. Rows with drow 0 do not count: loss 0,
// zeros. With a cap (soft_cap.h; 0: none), which goes without smoothing, the loss is that of the
// capped logits.
void cross_entropy_in_place(ThreadPool& pool, const CrossEntropy& args, const float* drow,
                            float cap, float* loss, float* logits);

// loss = −w_y x[y] for rows of log-probabilities x (NLL), ignored rows as above; weight as above.
// args.smoothing is not used.
void nll(ThreadPool& pool, const CrossEntropy& args, float* loss, float* weight);
// dx = drow · d loss / d x: zero but for −w_y in column y.
void nll_backward(ThreadPool& pool, const CrossEntropy& args, const float* drow, float* dx);

// Σ_i token_weights[i] · cross_entropy(c(hidden_i · weightᵀ), targets[i]) and its gradients,
// without ever storing all logits: they are made, differentiated and used up in chunks of rows.
// c(x) = x or, with a logit_cap, logit_cap · tanh(x / logit_cap). A row of token weight 0 does not
// count, whatever its target.
struct LinearCrossEntropy {
  int64_t rows, dim, classes;
  const float* hidden;         // [rows, dim]
  const float* weight;         // [classes, dim]
  const int32_t* targets;      // [rows]
  const float* token_weights;  // [rows]
  float* loss;                 // [1]
  float* dhidden = nullptr;    // [rows, dim]; null if not wanted
  float* dweight = nullptr;    // [classes, dim]; null if not wanted
  std::byte* workspace;        // 64-byte aligned
  bool bf16 = false;           // products as of GemmArgs (matmul.h)
  float logit_cap = 0;         // 0: none
};
size_t linear_cross_entropy_workspace_bytes(int64_t rows, int64_t dim, int64_t classes, int threads,
                                            bool bf16);
void linear_cross_entropy(ThreadPool& pool, const LinearCrossEntropy& args);

}  // namespace lumen::kernels
