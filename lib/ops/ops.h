// The vocabulary: every operation on tensors. Each is defined in one place, its family's file:
// shape rule, kernel, meaning in simpler operations and test cases (see graph/node.h, OpDef).
//
// Element-wise operations broadcast as NumPy does. Result types are PyTorch's: the common type of
// the inputs (result_type); scalars do not widen within a kind; division and functions such as exp
// make integers float32; comparisons give bool. Integers wrap; a division of integers by zero gives
// 0. f16 and bf16 are computed in float32 and rounded; inputs of other types are rounded to them
// first, but for a single number right of *, / and //, as in PyTorch. Only float32 is fast.
//
// Axes may be negative; a scalar has none, unlike in PyTorch, but for running totals and what
// orders its elements. All throw Error(kMalformed) naming the operation and the shapes when they do
// not fit. Gradients of float64 values are float64, all others float32; what is chosen by index or
// comparison has none.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "lib/graph/tensor.h"
#include "lib/graph/views.h"

namespace lumen::ops {

using graph::Tensor;

// A number among tensors: takes on their type; only a real one makes integers float32. An integer
// type must hold it (Error(kMalformed)), where a real one loses its fraction, and bool takes ≠ 0.
class Number {
 public:
  enum Kind { kBool, kInteger, kReal };
  Number(bool value) : kind_(kBool), integer_(value), real_(value) {}  // NOLINT: converts
  Number(int value) : Number(int64_t{value}) {}                        // NOLINT
  Number(int64_t value)                                                // NOLINT
      : kind_(kInteger), integer_(value), real_(static_cast<double>(value)) {}
  Number(double value) : kind_(kReal), real_(value) {}  // NOLINT

  Kind kind() const { return kind_; }
  int64_t integer() const { return integer_; }  // not of kReal
  double real() const { return real_; }

 private:
  Kind kind_;
  int64_t integer_ = 0;
  double real_;
};

// The type in which a and b are added (torch.result_type).
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, Number b);

// --- Arithmetic (ops/arithmetic.cc); operators: ops/operators.h --------------------------------
Tensor add(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, Number b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, Number b);
Tensor sub(Number a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, Number b);
// True division: of integers float32.
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, Number b);
Tensor div(Number a, const Tensor& b);
// C fmod: the sign of the dividend.
Tensor mod(const Tensor& a, const Tensor& b);
Tensor mod(const Tensor& a, Number b);
// Python's % and //: the sign of the divisor, and ⌊a / b⌋.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, Number b);
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Number b);
// NaN if either is. Of equal ones each gets half the gradient.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, Number b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, Number b);
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  // halves to even
Tensor trunc(const Tensor& x);
Tensor sign(const Tensor& x);  // (0 < x) − (x < 0)
Tensor square(const Tensor& x);
Tensor pow(const Tensor& x, const Tensor& y);
Tensor pow(const Tensor& x, Number y);
Tensor pow(Number x, const Tensor& y);

// --- Exponentials, roots, trigonometry (ops/transcendental.cc) ---------------------------------
Tensor exp2(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor recip(const Tensor& x);
Tensor erf(const Tensor& x);

// --- Activations (ops/activation.cc) -----------------------------------------------------------
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor silu(const Tensor& x);                   // x · sigmoid(x)
Tensor gelu(const Tensor& x);                   // x/2 · (1 + erf(x/√2))
Tensor gelu_tanh(const Tensor& x);              // x/2 · (1 + tanh(√(2/π)(x + 0.044715 x³)))
Tensor relu(const Tensor& x);                   // gradient 0 where x is NaN (PyTorch: 1)
Tensor elu(const Tensor& x, double alpha = 1);  // x > 0 ? x : α(eˣ − 1)
Tensor leaky_relu(const Tensor& x, double slope = 0.01);  // x > 0 ? x : slope · x
// ln(1 + e^βx) / β; x where βx > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor hard_sigmoid(const Tensor& x);          // clamp(x + 3, 0, 6) / 6
Tensor hard_swish(const Tensor& x);            // x · hard_sigmoid(x)
Tensor mish(const Tensor& x);                  // x · tanh(softplus(x))
Tensor soft_cap(const Tensor& x, double cap);  // cap · tanh(x / cap); x if cap is 0

// --- Comparison, choice, logic (ops/compare.cc) ------------------------------------------------
// bool; false for NaN, but ne true.
Tensor lt(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, Number b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, Number b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, Number b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, Number b);
Tensor eq(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Number b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, Number b);
// lt and eq as 1 and 0 of the type that they compare in: masks to multiply by.
Tensor less_than(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);
// condition ≠ 0 ? a : b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Number b);
Tensor where(const Tensor& condition, Number a, const Tensor& b);
// mask ≠ 0 ? value : x, of the type of x.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);
// min(max(x, low), high); one bound may be absent (undefined). NaN stays. On a bound that is a
// number the gradient is 0, with a tensor it is shared, as of maximum and minimum.
Tensor clamp(const Tensor& x, std::optional<Number> low, std::optional<Number> high);
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);
Tensor to_bool(const Tensor& x);  // ≠ 0
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
// Whether |a − b| ≤ atol + rtol · |b| (or a = b) everywhere. Computes now.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);

// --- Reductions (ops/reduce.cc, ops/statistics.cc) ---------------------------------------------
// Over one axis, which is kept with extent 1.
Tensor sum(const Tensor& x, int axis);  // of integers and bool int64
Tensor max(const Tensor& x, int axis);  // NaN if any element is; throws for no elements
Tensor mean(const Tensor& x, int axis);

// Over several axes; `kAllAxes`: over all of them. An empty list: over none, also where PyTorch
// takes it for all.
struct Axes {
  Axes(std::initializer_list<int> list) : list(list) {}
  Axes(std::vector<int> list) : list(std::move(list)) {}  // NOLINT: converts
  Axes(int axis) : list{axis} {}                          // NOLINT
  explicit Axes(bool all) : all(all) {}
  std::vector<int> list;
  bool all = false;
};
inline const Axes kAllAxes(true);
Tensor sum(const Tensor& x, const Axes& axes, bool keepdim);
Tensor mean(const Tensor& x, const Axes& axes, bool keepdim);  // of integers float32
// Equal ones share the gradient. Throw for no elements.
Tensor amax(const Tensor& x, const Axes& axes, bool keepdim);
Tensor amin(const Tensor& x, const Axes& axes, bool keepdim);
Tensor prod(const Tensor& x, int axis, bool keepdim);
// Whether any, all elements are ≠ 0: bool, of uint8 uint8.
Tensor any(const Tensor& x, const Axes& axes = kAllAxes, bool keepdim = false);
Tensor all(const Tensor& x, const Axes& axes = kAllAxes, bool keepdim = false);
// Σ (x − mean)² / (n − correction), and its root, whose gradient is 0 where all x are equal. With n
// ≤ correction ∞, or NaN where all x are equal.
Tensor var(const Tensor& x, const Axes& axes, bool keepdim, double correction = 1);
Tensor stddev(const Tensor& x, const Axes& axes, bool keepdim, double correction = 1);
Tensor logsumexp(const Tensor& x, const Axes& axes, bool keepdim);
// (Σ |x|^p)^(1/p); p = ∞ and −∞: the largest and smallest |x|; p = 0: how many are not 0. Where the
// norm is 0 its gradient is, for p < 1 also that of an x = 0.
Tensor norm(const Tensor& x, double p, const Axes& axes, bool keepdim);
// Index (int64) of the first largest, smallest; NaN counts as both. Throw for no elements.
Tensor argmax(const Tensor& x, int axis, bool keepdim = false);
Tensor argmin(const Tensor& x, int axis, bool keepdim = false);
// The largest, smallest along an axis and where the first of them is; only it has the gradient.
struct Found {
  Tensor values, indices;
};
Found max_with_index(const Tensor& x, int axis, bool keepdim = false);
Found min_with_index(const Tensor& x, int axis, bool keepdim = false);

// --- Running totals (ops/scan.cc) --------------------------------------------------------------
// y₀ = b₀, yᵢ = aᵢ yᵢ₋₁ + bᵢ along `axis`; a₀ is not read.
Tensor linear_scan(const Tensor& a, const Tensor& b, int axis);
Tensor cumsum(const Tensor& x, int axis);
Tensor cumprod(const Tensor& x, int axis);

// --- Products (ops/linear.cc, ops/matmul.cc) ---------------------------------------------------
// x [..., k] · w [n, k]ᵀ + b [n] → [..., n]. The weight keeps its stored type, quantised or not;
// `bias` may be undefined. The result is float32; of plain floats it has their common type, narrow
// ones being summed in float32 and rounded once.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
struct ExpertsOptions {
  int64_t used = 1;
  bool normalize = false;  // the probabilities of the chosen add up to 1
  // float32, added to the products with the matrices: [experts, n], [experts, n], [experts, k]. All
  // or none.
  Tensor gate_bias = {}, up_bias = {}, down_bias = {};
  // With a limit: of a gate's g and an up's u, g' = min(g, limit) and u' = clamp(u, ±limit), there
  // is (u' + 1) · g' · sigmoid(alpha · g') in place of silu(g) · u (gpt-oss).
  double alpha = 0, limit = 0;
  bool gelu = false;   // gelu_tanh in place of silu, without a limit
  Tensor scales = {};  // float32 [experts]: p_e is multiplied by that of e
};
// A sparse gated feed-forward layer (ops/experts.cc): of x [..., k] and a router's logits
// [..., experts], Σ_e p_e · down_e (silu(gate_e x) · up_e x) over the `used` experts e of each row
// that have the largest logits, of equal ones the first; p is the softmax over all logits. gate and
// up are [n, k], down is [k, n], in their stored types; without any gates relu(up_e x)² stands in
// place of silu(gate_e x) · up_e x, and there are no biases. Gradients go through the chosen
// experts alone unless one of the matrices has one, or there are biases or a limit: then through
// all, which takes experts / used times as long.
Tensor experts(const Tensor& x, const Tensor& logits, std::span<const Tensor> gate,
               std::span<const Tensor> up, std::span<const Tensor> down,
               const ExpertsOptions& options);
// Which experts these are, of a router's logits [..., experts]: 1 of the chosen, 0 of the others.
// float32, without a gradient.
Tensor chosen_experts(const Tensor& logits, int64_t used);
// a [..., m, k] · b [..., k, n] → [..., m, n], leading axes broadcast. A vector on the left is a
// row, on the right a column, and its axis is dropped from the result. float16 and bfloat16 are
// summed in float32 and rounded once; integers wrap.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);    // Σ aᵢ bᵢ of vectors
Tensor outer(const Tensor& a, const Tensor& b);  // aᵢ bⱼ

// --- Convolutions (ops/conv.cc), of floats ------------------------------------------------------
// In the common type of the inputs; float16 and bfloat16 in float32, rounded once. Only float32 is
// fast. An image or signal without the batch axis is convolved alone: its result has none either.
//
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

// --- Pooling (ops/pooling.cc), of images [batch, channels, height, width] -----------------------
// Floats, averages of float16 and bfloat16 rounded once; of images without the batch axis, too.
// Windows begin at i · stride − padding; what lies outside the image is no candidate for a maximum
// and counts as zero for an average. Every window must see a pixel.
struct PoolOptions {
  std::array<int64_t, 2> kernel = {1, 1};
  std::array<int64_t, 2> stride = {0, 0};    // {0, 0}: the kernel's
  std::array<int64_t, 2> padding = {0, 0};   // at most half the kernel
  std::array<int64_t, 2> dilation = {1, 1};  // of maxima only: averages refuse it
  bool count_include_pad = true;             // averages divide by the pixels with the padding's
  // Extents are rounded up: there may be a last window that reaches beyond the padding, by less
  // than the stride, though not one that begins there. What is beyond the padding never counts.
  bool ceil_mode = false;
  int64_t divisor_override = 0;  // averages divide by it, if not 0
};
// The gradient goes to the first maximum of a window. NaN if any pixel is.
Tensor max_pool2d(const Tensor& x, const PoolOptions& options);
// And where the maxima are: int64, row · width + column in their image, of the first of several.
Found max_pool2d_with_indices(const Tensor& x, const PoolOptions& options);
Tensor avg_pool2d(const Tensor& x, const PoolOptions& options);
// Averages over rows ⌊i · height / size⌋ … ⌈(i + 1) · height / size⌉ − 1, likewise columns.
Tensor adaptive_avg_pool2d(const Tensor& x, std::array<int64_t, 2> size);
// The same of signals [batch, channels, length].
struct Pool1dOptions {
  int64_t kernel = 1, stride = 0, padding = 0, dilation = 1;
  bool count_include_pad = true, ceil_mode = false;
};
Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options);
Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options);
Tensor adaptive_avg_pool1d(const Tensor& x, int64_t size);

// --- Per channel (ops/batch_norm.cc, group_norm.cc), x [batch, channels, …] ---------------------
// y = (x − mean) / √(var + eps) · weight + bias with the batch's own mean and variance (biased) per
// channel; weight and bias [channels] both or neither. Throws if a channel has a single value.
// Floats of any type, in float64 if one is; y of a narrower x is rounded to its type, once, while
// mean and var are float32. So is group_norm.
struct BatchNormResult {
  Tensor y, mean, var;
};
BatchNormResult batch_norm_training(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                    double eps);
// The same with given statistics [channels].
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps);
// With the statistics of every sample's groups of channels (Wu & He 2018); weight and bias both or
// neither.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps);
// (1 − weight) · state + weight · value, in place: `state` must be a state with no other reader;
// weight is one number. For running statistics; no gradient. Returns the new state: make it an
// output.
Tensor lerp_state(const Tensor& state, const Tensor& value, const Tensor& weight);
// state + value in place, of int64 of one shape: for counters. Otherwise as lerp_state.
Tensor add_state(const Tensor& state, const Tensor& value);

// --- Rows (ops/norm.cc), over the last axis ----------------------------------------------------
// Of any float type; narrow ones are computed in float32 and rounded once to the type of x. A
// weight undefined stands for ones, a bias for zeros.
Tensor softmax(const Tensor& x, int axis = -1);
Tensor log_softmax(const Tensor& x, int axis = -1);
// x / √(mean(x²) + eps) · weight [dim] (Zhang & Sennrich 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
// (x − mean) / √(var + eps) · weight + bias (Ba et al. 2016).
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);

// --- Random numbers (ops/random.cc) ------------------------------------------------------------
// Functions of key (int32 [2]: seed, step) and `stream`: use a stream of its own for each place
// that draws. The same numbers for any number of threads and on every machine:
// kernels/random_fill.h.
Tensor uniform(const Tensor& key, int64_t stream, const Shape& shape, double low = 0,
               double high = 1);
Tensor normal(const Tensor& key, int64_t stream, const Shape& shape, double mean = 0,
              double stddev = 1);
// Zero with probability p, else x / (1 − p).
Tensor dropout(const Tensor& x, double p, const Tensor& key, int64_t stream);

// --- Rows by index, joining (ops/gather.cc) ----------------------------------------------------
// Rows ids[...] (int32 or int64) of table [rows, dim], any stored type → float32 [..., dim], of
// float64 float64.
// Running throws Error(kMalformed) for an id that is no row.
Tensor embedding(const Tensor& table, const Tensor& ids);
// Its gradient: [rows, dim] with the rows of dy [..., dim] added up by their ids, in their order.
Tensor embedding_grad(const Tensor& dy, const Tensor& ids, int64_t rows);
// Side by side along `axis`, in the common type. Parts of shape [0] fit beside any others, as
// PyTorch's empty tensors of old; they count for the type only.
Tensor concat(std::span<const Tensor> parts, int axis);
Tensor stack(std::span<const Tensor> parts, int axis);  // along a new axis

// --- Elements by index (ops/select.cc) ---------------------------------------------------------
// Indices are int32 or int64 and must be in range: running throws Error(kMalformed) if one is not
// (a result without elements is not run).
// y[.., i, ..] = x[.., index[.., i, ..], ..] (torch.gather); other extents at most those of x.
Tensor take_along(const Tensor& x, const Tensor& index, int axis);
// x with x[.., index[.., i, ..], ..] = src[.., i, ..]; of several the last, though
// the gradient of the element goes to each of them, as in PyTorch.
Tensor scatter(const Tensor& x, int axis, const Tensor& index, const Tensor& src);
// The same, but adding, in order; of bool "or".
Tensor scatter_add(const Tensor& x, int axis, const Tensor& index, const Tensor& src);
// Slices index[i] (1-D) of `axis`.
Tensor index_select(const Tensor& x, int axis, const Tensor& index);
// 1 at ids[...] of a new last axis of extent n: int64. As scatter of ones.
Tensor one_hot(const Tensor& ids, int64_t n);

// --- Indexing as in Python (ops/indexing.cc) ----------------------------------------------------
// x[begin:end:step] along `axis`: an absent bound is the end of the axis, negative ones count from
// its end, and what is beyond it is cut. A negative step goes backwards (PyTorch refuses it).
Tensor strided_slice(const Tensor& x, int axis, std::optional<int64_t> begin,
                     std::optional<int64_t> end, int64_t step = 1);
// x[i₀, i₁, …]: the indices (int32 or int64) of the first axes broadcast, and their axes take the
// place of those; negative ones count from the end. Out of range as above.
Tensor index(const Tensor& x, std::span<const Tensor> indices);
// x with x[i₀, i₁, …] = values, which are of its type and broadcast; of several at one place the
// last, or, with `accumulate`, the sum of all and what was there.
Tensor index_put(const Tensor& x, std::span<const Tensor> indices, const Tensor& values,
                 bool accumulate = false);
// The elements of x where `mask` ≠ 0, both broadcast: [count]. Computes the mask now. To set them:
// where, masked_fill.
Tensor masked_select(const Tensor& x, const Tensor& mask);

// --- Order (ops/sort.cc) -----------------------------------------------------------------------
// Stable; NaN is largest. Indices are int64.
Tensor argsort(const Tensor& x, int axis = -1, bool descending = false);
Found sort(const Tensor& x, int axis = -1, bool descending = false);
// The k largest (or smallest), in order; of a scalar itself.
Found topk(const Tensor& x, int64_t k, int axis = -1, bool largest = true);
// These compute now: their shape depends on values.
Tensor nonzero(const Tensor& x);                           // int64 [count, rank]
Tensor bincount(const Tensor& x, int64_t min_length = 0);  // int64 [max(x) + 1]

// --- Shape (ops/shape.cc) ----------------------------------------------------------------------
// Parts of `sizes` along an axis; they add up to it.
std::vector<Tensor> split(const Tensor& x, std::span<const int64_t> sizes, int axis);
// Parts of `size`, the last one smaller.
std::vector<Tensor> split(const Tensor& x, int64_t size, int axis);
// At most `count` parts of equal size, the last one smaller; of no elements `count` empty ones.
std::vector<Tensor> chunk(const Tensor& x, int64_t count, int axis);
Tensor squeeze(const Tensor& x);  // all axes of extent 1
Tensor squeeze(const Tensor& x, int axis);
Tensor unsqueeze(const Tensor& x, int axis);
Tensor flatten(const Tensor& x, int first = 0, int last = -1);
Tensor movedim(const Tensor& x, int from, int to);
Tensor flip(const Tensor& x, const Axes& axes);
Tensor roll(const Tensor& x, int64_t shift, int axis);
Tensor repeat_interleave(const Tensor& x, int64_t count, int axis);
Tensor tile(const Tensor& x, std::span<const int64_t> counts);  // torch.repeat
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);

// --- New tensors (ops/create.cc) ---------------------------------------------------------------
Tensor full(const Shape& shape, Number value, DType dtype = DType::kF32);
Tensor zeros(const Shape& shape, DType dtype = DType::kF32);
Tensor ones(const Shape& shape, DType dtype = DType::kF32);
Tensor full_like(const Tensor& x, Number value);
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
// begin, begin + step, … before end; int64 if all are integers, else float32.
Tensor arange(Number begin, Number end, Number step = 1);
Tensor linspace(double begin, double end, int64_t count);  // float32, both ends included
Tensor eye(int64_t rows, int64_t columns = -1);            // −1: square

// --- Attention (ops/rope.cc, kv_append.cc, attention.cc, attention_training.cc) ----------------
// Positions are int32: [1], the first token's of all batch rows, or [batch], of each. Slots, if
// given, are int32 [batch], all different: the batch row of the cache that each batch row uses;
// without, the cache has as many rows as the batch.
//
// Rotation angles for `tokens` positions from position[b] on: cos and sin of position ·
// frequencies[i], times `factor` → [tokens, 2, half], for [batch] positions [batch · tokens, …].
Tensor rope_table(const Tensor& position, const Tensor& frequencies, int64_t tokens,
                  double factor = 1);
// Rotates the first 2·half of the last axis of x [batch, tokens, heads, head_dim] (Su et al. 2021);
// `interleaved` pairs (2i, 2i+1), otherwise (i, i + half).
Tensor rope(const Tensor& x, const Tensor& table, bool interleaved);
// Writes x [batch, tokens, heads, head_dim] into cache [slots, heads, context, head_dim] at
// position[b], in place: `cache` must be a state with no other reader. Returns the new cache.
// position[b] + tokens ≤ context is the caller's to ensure.
Tensor kv_append(const Tensor& cache, const Tensor& x, const Tensor& position,
                 const Tensor& slots = {});
// Dropout of the weights that the softmax gives: zero with probability p, else divided by 1 − p.
// Key and stream as of ops::dropout; unused if p is 0. Which weights are dropped does not depend on
// how the attention is computed (kernels/attention_backward.h).
struct AttentionDropout {
  double p = 0;
  Tensor key = {};
  int64_t stream = 0;
};
struct AttentionOptions {
  double scale = 1;
  double cap = 0;  // scores are soft_cap(scale · q · k, cap)
  // Not 0: the score of position p gets slope · (p − t) of a query at t, with the slopes of heads
  // that kernels/linear_bias.h says (ALiBi, Press et al. 2022); not with a cap.
  double max_bias = 0;
  bool causal = true;
  int64_t window = 0;  // see only the last `window` positions; 0: all
  // See only those from the last multiple of this on, the own chunk (Llama 4); 0: all. Not for
  // training, where chunks are segments.
  int64_t chunk = 0;
  // int32 [batch, tokens]: a query sees only keys of its own segment; undefined: all are one.
  Tensor segments = {};
  // float32 [heads]: a score beside those of the positions, which has no value: weights add up to
  // less than 1 (gpt-oss).
  Tensor sinks = {};
  Tensor slots = {};  // not for training
  AttentionDropout dropout = {};
  // For prompts: the model's products with weights round activations to bfloat16 where that is fast
  // (quantised and bfloat16 weights, kernels/matmul.h), so attention may round likewise.
  bool bf16 = false;
};
// q [batch, tokens, heads, head_dim] against k, v [slots, kv_heads, positions, head_dim]; query t
// stands at position[b] + t. Causal: sees positions ≤ its own → [batch, tokens, heads, head_dim].
// Up to kernels::kFewTokens tokens, each gets the bits that it would get alone.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position,
                 const AttentionOptions& options);

// --- The gated delta rule (ops/delta_rule.cc) --------------------------------------------------
// Attention whose memory is a matrix S [key_dim, value_dim] per head (Yang et al. 2024). Of each
// token: P = decay · S, S' = P + k (beta · (v − Pᵀ k))ᵀ, out = S'ᵀ q. float32. q, k [batch, tokens,
// key_heads, key_dim], v [batch, tokens, heads, value_dim], decay and beta [batch, tokens, heads],
// or a decay for each row of S, [..., heads, key_dim] (Kimi Team 2025); head h reads the key head
// h / (heads / key_heads). Gradients are of what begins without states only.
struct DeltaRuleOptions {
  bool tiled = false;  // head h reads the key head h % key_heads
  bool corrects = true;  // false: S' = P + k (beta · v)ᵀ, the recurrence of Mamba-2 (Dao & Gu 2024)
  // Where the states begin: [rows, heads, key_dim, value_dim], of which batch row b reads the row
  // slots[b] (undefined: b), or zeros where its position is 0. Undefined: zeros.
  Tensor before = {};
  Tensor position = {};  // int32 [1] or [batch]
  Tensor slots = {};     // int32 [batch]
};
struct DeltaRuleResult {
  Tensor out;    // [batch, tokens, heads, value_dim]
  Tensor state;  // after the last token [batch, heads, key_dim, value_dim]
};
DeltaRuleResult gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& decay, const Tensor& beta,
                                 const DeltaRuleOptions& options = {});

// --- Selective state spaces (ops/selective_scan.cc) ---------------------------------------------
// Each channel d keeps s [state] (Gu & Dao 2023, "Mamba"). Of each token: s'_n = exp(time_d ·
// rates_nd) · s_n + u_d · b_n, out_d = Σ_n c_n s'_n; no product of time and rates is above 0.
// float32. u and time [batch, tokens, channels], rates [state, channels], b and c [batch, tokens,
// state].
struct SelectiveScanOptions {
  // Where the states begin, as of DeltaRuleOptions: [rows, 1, state, channels].
  Tensor before = {};
  Tensor position = {};
  Tensor slots = {};
};
struct SelectiveScanResult {
  Tensor out;    // [batch, tokens, channels]
  Tensor state;  // after the last token [batch, 1, state, channels]
};
SelectiveScanResult selective_scan(const Tensor& u, const Tensor& time, const Tensor& rates,
                                   const Tensor& b, const Tensor& c,
                                   const SelectiveScanOptions& options = {});

// --- Recurrent layers (ops/recurrent.cc), PyTorch's formulas, whole sequences -------------------
// Results have the common type of x, states, hidden weights and biases; narrow floats are computed
// in float32 and rounded once, float64 step by step from other operations, which is slow and does
// not check the values of lengths. input [gates · hidden, features], hidden [gates · hidden,
// hidden], biases [gates · hidden] or undefined. Gates: LSTM i f g o, GRU r z n (the hidden bias of
// n inside r ∘ (…)), otherwise one.
struct RecurrentWeights {
  Tensor input, hidden, input_bias, hidden_bias;
};
struct RecurrentOptions {
  // int32 or int64 [batch], each in [0, steps] (else Error(kMalformed) when it is evaluated): only
  // so many steps of a sample exist. The last state is that after the last of them, outputs beyond
  // are 0. Undefined: all.
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
