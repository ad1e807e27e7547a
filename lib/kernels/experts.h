// Sparse feed-forward layers: of many gated ones, the experts, each token goes through a few that a
// router chooses for it (Shazeer et al. 2017, "Outrageously Large Neural Networks").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/pool.h"
#include "lib/kernels/clamped_swiglu.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// The `used` largest of a token's logits [experts], of equal ones the first, and their
// probabilities: the softmax over all logits, divided by the sum of the chosen if `normalize` says
// so. The chosen are in ascending order. A NaN among the logits, or an infinite one, makes all
// probabilities NaN. noexcept.
void choose_experts(const float* logits, int64_t experts, int64_t used, bool normalize,
                    int32_t* chosen, float* probability);

// What is added to the products with a matrix: of each expert a row, `stride` floats apart.
struct ExpertBias {
  const float* data = nullptr;  // null: none
  int64_t stride = 0;
};

// y[t] = Σ_e p[t][e] · down_e (silu(gate_e x[t]) · up_e x[t]) over the experts e that
// choose_experts gives for the token t, in ascending order; with biases, and with clamped_swiglu or
// gelu_tanh(g) · u in place of silu(g) · u, if they are there; without gates with relu(u)². With
// scales p[t][e] · scales[e] stands in place of p[t][e].
struct ExpertsArgs {
  const float* x;  // [m, hidden], rows x_stride floats apart
  int64_t x_stride;
  const float* logits;  // [m, experts], rows logits_stride floats apart
  int64_t logits_stride;
  int64_t m, used;  // used ≤ experts
  bool normalize;
  std::span<const Weight> gate, up;  // of each expert [intermediate, hidden]; gate may be empty
  std::span<const Weight> down;      // of each expert [hidden, intermediate]
  ExpertBias gate_bias = {}, up_bias = {}, down_bias = {};  // all or none
  ClampedSwiglu clamped = {};                               // limit 0: not
  bool gelu = false;                                        // without a limit
  const float* scales = nullptr;                            // [experts]; null: none
  float* y;              // [m, hidden], without gaps; does not overlap x
  std::byte* workspace;  // experts_workspace_bytes(...), 64-byte aligned
};

struct ExpertsShape {
  int64_t m, hidden, intermediate, experts, used;
};

// Bytes of workspace on `threads` threads.
size_t experts_workspace_bytes(const ExpertsShape& shape, int threads);

// Reads the weights of chosen experts only, and each of them once for all tokens that chose it.
// Their products are those of `linear` (matmul.h): up to as many tokens as are few there, a token
// gets the bits that it gets alone; the result never depends on the number of threads. Does not
// allocate. noexcept.
void experts(ThreadPool& pool, const ExpertsArgs& args);

// The gradients of x and of the probabilities of the chosen (0 for the others) where the gradient
// of y is dy [m, hidden], without gaps. Of `forward`, whose matrices are in rows, y is not read and
// the workspace is experts_backward_bytes(...). Products are those of `linear` and `gemm`. As
// `experts` otherwise.
struct ExpertsBackwardArgs {
  const ExpertsArgs& forward;
  const float* dy;
  float* dx;            // [m, hidden]
  float* dprobability;  // [m, experts]
};
size_t experts_backward_bytes(const ExpertsShape& shape, int threads);
void experts_backward(ThreadPool& pool, const ExpertsBackwardArgs& args);

}  // namespace lumen::kernels
