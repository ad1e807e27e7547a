// The vocabulary: every operation on tensors. Each is defined in one place, its family's file:
// shape rule, kernel, meaning in simpler operations and test cases (see graph/node.h, OpDef).
//
// Element-wise operations broadcast as NumPy does and give float32. Axes may be negative. All
// throw Error(kMalformed) naming the operation and the shapes when they do not fit.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "lib/graph/tensor.h"
#include "lib/graph/views.h"

namespace lumen::ops {

using graph::Tensor;

// --- Element-wise (ops/elementwise.cc) ---------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// C fmod: the sign of the dividend.
Tensor mod(const Tensor& a, const Tensor& b);
// 1 where a < b, else 0; NaN compares false.
Tensor less_than(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);
// NaN if either is.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
// condition ≠ 0 ? a : b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor recip(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor silu(const Tensor& x);       // x · sigmoid(x)
Tensor gelu_tanh(const Tensor& x);  // x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³)))
Tensor relu(const Tensor& x);

// --- Reductions (ops/reduce.cc) ----------------------------------------------------------------
// The reduced axis is kept with extent 1.
Tensor sum(const Tensor& x, int axis);
Tensor max(const Tensor& x, int axis);  // NaN if any element is
Tensor mean(const Tensor& x, int axis);

// --- Products (ops/product.cc) -----------------------------------------------------------------
// x [..., k] · w [n, k]ᵀ + b [n] → [..., n]. The weight keeps its stored type, quantised or not;
// `bias` may be undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// a [..., m, k] · b [..., k, n] → [..., m, n], leading axes broadcast; float32.
Tensor matmul(const Tensor& a, const Tensor& b);

// --- Convolutions (ops/conv.cc) ----------------------------------------------------------------
// y[n,o,i,j] = bias[o] + Σ_{c,u,v} weight[o,c,u,v] · x[n, c, i·stride + u·dilation − padding, …], x
// being zero outside: x [batch, in, height, width], weight [out, in / groups, height, width], bias
// [out] or undefined. Output channels of group g see only the g-th part of the input channels.
// Pairs are {vertical, horizontal}.
struct Conv2dOptions {
  std::array<int64_t, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int64_t groups = 1;
};
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});
// Its gradients for dy: with respect to an image of `size`, and to weights of `size`.
Tensor conv2d_input_grad(const Tensor& dy, const Tensor& weight, std::array<int64_t, 2> size,
                         const Conv2dOptions& options = {});
Tensor conv2d_weight_grad(const Tensor& x, const Tensor& dy, std::array<int64_t, 2> size,
                          const Conv2dOptions& options = {});
// The transposed convolution, x [batch, in, …], weight [in, out / groups, …]: extent (n − 1) ·
// stride − 2 padding + dilation · (kernel − 1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const Conv2dOptions& options = {},
                        std::array<int64_t, 2> output_padding = {0, 0});
// The same of signals [batch, channels, length].
struct Conv1dOptions {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const Conv1dOptions& options = {}, int64_t output_padding = 0);

// --- Pooling (ops/pooling.cc), of images [batch, channels, height, width] ----------------------
// Windows begin at i · stride − padding; what lies outside the image is no candidate for a maximum
// and counts as zero for an average. Output extents are rounded down.
struct PoolOptions {
  std::array<int64_t, 2> kernel = {1, 1};
  std::array<int64_t, 2> stride = {0, 0};  // {0, 0}: the kernel's
  std::array<int64_t, 2> padding = {0, 0}, dilation = {1, 1};
  bool count_include_pad = true;  // averages divide by the whole kernel
};
// The gradient goes to the first maximum of a window. NaN if any pixel is.
Tensor max_pool2d(const Tensor& x, const PoolOptions& options);
Tensor avg_pool2d(const Tensor& x, const PoolOptions& options);
// Averages over rows ⌊i · height / size⌋ … ⌈(i + 1) · height / size⌉ − 1, likewise columns.
Tensor adaptive_avg_pool2d(const Tensor& x, std::array<int64_t, 2> size);
// The same of signals [batch, channels, length].
struct Pool1dOptions {
  int64_t kernel = 1, stride = 0, padding = 0, dilation = 1;
  bool count_include_pad = true;
};
Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options);
Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options);
Tensor adaptive_avg_pool1d(const Tensor& x, int64_t size);

// --- Per channel (ops/batch_norm.cc), x [batch, channels, …] ------------------------------------
// y = (x − mean) / √(var + eps) · weight + bias with the batch's own mean and variance (biased) per
// channel; weight and bias [channels] both or neither. Throws if a channel has a single value.
struct BatchNormResult {
  Tensor y, mean, var;
};
BatchNormResult batch_norm_training(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                    double eps);
// The same with given statistics [channels].
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps);
// With the statistics of every sample's groups of channels (Wu & He 2018).
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps);
// state + weight · (value − state), in place: `state` must be a state with no other reader; weight
// is one number. For running statistics; no gradient. Returns the new state: make it an output.
Tensor lerp_state(const Tensor& state, const Tensor& value, const Tensor& weight);

// --- Rows (ops/norm.cc), over the last axis ----------------------------------------------------
Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
// x / √(mean(x²) + eps) · weight [dim] (Zhang & Sennrich 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
// (x − mean) / √(var + eps) · weight + bias (Ba et al. 2016).
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

// --- Random numbers (ops/random.cc), functions of key (int32 [2]: seed, step) and `stream`
// -------- Use a stream of its own for each place that draws. The same numbers for any number of
// threads and on every machine: kernels/random_fill.h.
Tensor uniform(const Tensor& key, int64_t stream, const Shape& shape, double low = 0,
               double high = 1);
Tensor normal(const Tensor& key, int64_t stream, const Shape& shape, double mean = 0,
              double stddev = 1);
// Zero with probability p, else x / (1 − p).
Tensor dropout(const Tensor& x, double p, const Tensor& key, int64_t stream);

// --- Rows by index, joining (ops/gather.cc) ----------------------------------------------------
// Rows ids[...] (int32) of table [rows, dim], any stored type → float32 [..., dim].
Tensor embedding(const Tensor& table, const Tensor& ids);
// Side by side along `axis`.
Tensor concat(std::span<const Tensor> parts, int axis);

// --- Attention (ops/attention.cc) --------------------------------------------------------------
// Rotation angles for positions position[0] … position[0] + tokens − 1 (position: int32 [1]):
// cos and sin of position · frequencies[i], times `factor` → [tokens, 2, half].
Tensor rope_table(const Tensor& position, const Tensor& frequencies, int64_t tokens,
                  double factor = 1);
// Rotates the first 2·half of the last axis of x [batch, tokens, heads, head_dim] (Su et al. 2021);
// `interleaved` pairs (2i, 2i+1), otherwise (i, i + half).
Tensor rope(const Tensor& x, const Tensor& table, bool interleaved);
// Writes x [batch, tokens, heads, head_dim] into cache [batch, heads, context, head_dim] at
// position[0], in place: `cache` must be a state with no other reader. Returns the new cache.
// position[0] + tokens ≤ context is the caller's to ensure.
Tensor kv_append(const Tensor& cache, const Tensor& x, const Tensor& position);
struct AttentionOptions {
  double scale = 1;
  bool causal = true;
  int64_t window = 0;  // see only the last `window` positions; 0: all
  // int32 [batch, tokens]: a query sees only keys of its own segment; undefined: all are one.
  Tensor segments = {};
};
// q [batch, tokens, heads, head_dim] against k, v [batch, kv_heads, positions, head_dim]; query t
// stands at position[0] + t. Causal: sees positions ≤ its own → [batch, tokens, heads, head_dim].
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position,
                 const AttentionOptions& options);

// --- Recurrent layers (ops/recurrent.cc), PyTorch's formulas, whole sequences -------------------
// input [gates · hidden, features], hidden [gates · hidden, hidden], biases [gates · hidden] or
// undefined. Gates: LSTM i f g o, GRU r z n (the hidden bias of n inside r ∘ (…)), otherwise one.
struct RecurrentWeights {
  Tensor input, hidden, input_bias, hidden_bias;
};
struct RecurrentOptions {
  // int32 [batch], each in [0, steps]: only so many steps of a sample exist. The last state is that
  // after the last of them, outputs beyond are 0. Undefined: all.
  Tensor lengths = {};
  bool reverse = false;  // from the last step to the first
};
struct RecurrentResult {
  Tensor out;   // [batch, steps, hidden], in the order of x
  Tensor h, c;  // the last states [batch, hidden]; c of an LSTM only
};
// x [batch, steps, features]; first states [batch, hidden], undefined: zeros.
RecurrentResult lstm(const Tensor& x, const RecurrentWeights& weights, const Tensor& h0 = {},
                     const Tensor& c0 = {}, const RecurrentOptions& options = {});
RecurrentResult gru(const Tensor& x, const RecurrentWeights& weights, const Tensor& h0 = {},
                    const RecurrentOptions& options = {});
// h' = tanh(…), or max(0, …).
RecurrentResult rnn(const Tensor& x, const RecurrentWeights& weights, const Tensor& h0 = {},
                    bool use_relu = false, const RecurrentOptions& options = {});

// Every operation that has a definition, for the tests and `lumen-bench ops`: ops/op_list.cc.
std::span<const graph::OpDef* const> op_list();

}  // namespace lumen::ops
