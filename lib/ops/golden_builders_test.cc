#include "lib/ops/golden_builders.h"

#include <algorithm>
#include <array>
#include <limits>

#include "lib/autograd/autograd.h"
#include "lib/ops/loss.h"
#include "lib/ops/operators.h"

namespace lumen::ops {
namespace {

using In = std::span<const Tensor>;
using Out = std::vector<Tensor>;
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor first_position() {
  return zeros({1}, DType::kI32);
}

// Inputs: x, the router's logits, the matrices of all experts.
Out two_experts(In in, bool normalize) {
  const size_t count = (in.size() - 2) / 3;
  return {
      experts(in[0], in[1], in.subspan(2, count), in.subspan(2 + count, count),
              in.subspan(2 + 2 * count, count),
              {.used = std::min<int64_t>(2, static_cast<int64_t>(count)), .normalize = normalize})};
}

// The same with the biases of all behind the matrices, gated as gpt-oss does it.
Out two_clamped_experts(In in) {
  const In matrices = in.subspan(2, in.size() - 5), biases = in.last(3);
  const size_t count = matrices.size() / 3;
  return {experts(in[0], in[1], matrices.first(count), matrices.subspan(count, count),
                  matrices.last(count),
                  {.used = std::min<int64_t>(2, static_cast<int64_t>(count)),
                   .normalize = true,
                   .gate_bias = biases[0],
                   .up_bias = biases[1],
                   .down_bias = biases[2],
                   .alpha = 1.7,
                   .limit = 0.6})};
}

// The same with scales behind the matrices, by GELU.
Out two_scaled_experts(In in) {
  const In matrices = in.subspan(2, in.size() - 3);
  const size_t count = matrices.size() / 3;
  return {experts(in[0], in[1], matrices.first(count), matrices.subspan(count, count),
                  matrices.last(count),
                  {.used = std::min<int64_t>(2, static_cast<int64_t>(count)),
                   .normalize = true,
                   .gelu = true,
                   .scales = in.back()})};
}

Out frozen_matrices(In in) {
  Out inputs(in.begin(), in.end());
  for (size_t i = 2; i < inputs.size(); ++i) inputs[i] = autograd::detach(inputs[i]);
  return inputs;
}

Out both(const Found& found) {
  return {found.values, found.indices};
}

// Slices of axis 1 between all of some bounds, side by side.
Tensor all_slices(const Tensor& x, std::initializer_list<int64_t> steps) {
  constexpr std::optional<int64_t> kBounds[] = {{}, 0, 2, 7, -1, -3, -9};
  std::vector<Tensor> slices;
  for (const auto& begin : kBounds) {
    for (const auto& end : kBounds) {
      for (int64_t step : steps) slices.push_back(strided_slice(x, 1, begin, end, step));
    }
  }
  return concat(slices, 1);
}

Out all_three(const BatchNormResult& result) {
  return {result.y, result.mean, result.var};
}

}  // namespace

const std::map<std::string, GoldenBuild>& golden_builders() {
  static const std::map<std::string, GoldenBuild> builders = {
      {"abs", [](In in) { return Out{abs(in[0])}; }},
      {"adaptive_avg_pool2d",
       [](In in) {
         return Out{adaptive_avg_pool2d(in[0], {2, 3})};
       }},
      {"add", [](In in) { return Out{add(in[0], in[1])}; }},
      {"add_number", [](In in) { return Out{in[0] + 1.5}; }},
      {"add_state",
       [](In in) {
         return Out{add_state(graph::state(graph::contiguous(in[0]).eval(), "count"), in[1])};
       }},
      {"all_everything", [](In in) { return Out{all(in[0])}; }},
      {"all_keep", [](In in) { return Out{all(in[0], 0, true)}; }},
      {"all_last", [](In in) { return Out{all(in[0], -1)}; }},
      {"amax_all", [](In in) { return Out{amax(in[0], kAllAxes, false)}; }},
      {"amax_axes",
       [](In in) {
         return Out{amax(in[0], {0, -1}, false)};
       }},
      {"amax_axes_keep",
       [](In in) {
         return Out{amax(in[0], {2, 0}, true)};
       }},
      {"amax_axis_1", [](In in) { return Out{amax(in[0], 1, false)}; }},
      {"amax_keep", [](In in) { return Out{amax(in[0], -1, true)}; }},
      {"amin_all", [](In in) { return Out{amin(in[0], kAllAxes, false)}; }},
      {"amin_axes",
       [](In in) {
         return Out{amin(in[0], {0, -1}, false)};
       }},
      {"amin_axes_keep",
       [](In in) {
         return Out{amin(in[0], {2, 0}, true)};
       }},
      {"amin_axis_1", [](In in) { return Out{amin(in[0], 1, false)}; }},
      {"amin_keep", [](In in) { return Out{amin(in[0], -1, true)}; }},
      {"any_everything", [](In in) { return Out{any(in[0])}; }},
      {"any_keep", [](In in) { return Out{any(in[0], 0, true)}; }},
      {"any_last", [](In in) { return Out{any(in[0], -1)}; }},
      {"arange",
       [](In) {
         return Out{arange(0, 5), arange(7, 1, -2), arange(0.5, 2.6, 0.25), arange(3, 3)};
       }},
      {"argmax", [](In in) { return Out{argmax(in[0], -1)}; }},
      {"argmax_keep", [](In in) { return Out{argmax(in[0], 0, true)}; }},
      {"argmin", [](In in) { return Out{argmin(in[0], -1)}; }},
      {"argsort", [](In in) { return Out{argsort(in[0])}; }},
      {"attention_causal",
       [](In in) { return Out{attention(in[0], in[1], in[2], first_position(), {.scale = 0.4})}; }},
      {"attention_full",
       [](In in) {
         return Out{
             attention(in[0], in[1], in[2], first_position(), {.scale = 0.4, .causal = false})};
       }},
      {"avg_pool2d",
       [](In in) {
         return Out{avg_pool2d(in[0], {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}})};
       }},
      {"batch_norm",
       [](In in) { return Out{batch_norm(in[0], in[1], in[2], in[3], in[4], 1e-5)}; }},
      {"batch_norm_training",
       [](In in) { return all_three(batch_norm_training(in[0], in[1], in[2], 1e-5)); }},
      {"bce", [](In in) { return Out{binary_cross_entropy(in[0], autograd::detach(in[1]))}; }},
      {"bincount", [](In in) { return Out{bincount(in[0])}; }},
      {"bincount_8", [](In in) { return Out{bincount(in[0], 8)}; }},
      {"ceil", [](In in) { return Out{ceil(in[0])}; }},
      {"chunk", [](In in) { return chunk(in[0], 3, 1); }},
      {"clamp_both", [](In in) { return Out{clamp(in[0], -0.5, 0.5)}; }},
      {"clamp_high", [](In in) { return Out{clamp(in[0], std::nullopt, 0.5)}; }},
      {"clamp_int", [](In in) { return Out{clamp(in[0], -2, 3)}; }},
      {"clamp_low", [](In in) { return Out{clamp(in[0], -0.5, std::nullopt)}; }},
      {"clamp_swapped", [](In in) { return Out{clamp(in[0], 0.5, -0.5)}; }},
      {"clamp_tensors", [](In in) { return Out{clamp(in[0], in[1], in[2])}; }},
      {"concat_0", [](In in) { return Out{concat(in, 0)}; }},
      {"concat_1", [](In in) { return Out{concat(in, 1)}; }},
      {"concat_last", [](In in) { return Out{concat(in, -1)}; }},
      {"conv2d", [](In in) { return Out{conv2d(in[0], in[1], in[2])}; }},
      {"conv2d_options",
       [](In in) {
         return Out{conv2d(in[0], in[1], {},
                           {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2})};
       }},
      {"conv_transpose2d",
       [](In in) {
         return Out{
             conv_transpose2d(in[0], in[1], {}, {.stride = {2, 2}, .padding = {1, 1}}, {1, 1})};
       }},
      {"cos", [](In in) { return Out{cos(in[0])}; }},
      {"cross_entropy", [](In in) { return Out{cross_entropy(in[0], in[1])}; }},
      {"cumprod_1", [](In in) { return Out{cumprod(in[0], 1)}; }},
      {"cumprod_last", [](In in) { return Out{cumprod(in[0], -1)}; }},
      {"cumsum_1", [](In in) { return Out{cumsum(in[0], 1)}; }},
      {"cumsum_last", [](In in) { return Out{cumsum(in[0], -1)}; }},
      {"div", [](In in) { return Out{div(in[0], in[1])}; }},
      {"div_number", [](In in) { return Out{in[0] / 3}; }},
      {"dot", [](In in) { return Out{dot(in[0], in[1])}; }},
      {"elu", [](In in) { return Out{elu(in[0], 0.7)}; }},
      {"embedding", [](In in) { return Out{embedding(in[0], in[1])}; }},
      {"eq", [](In in) { return Out{eq(in[0], in[1])}; }},
      {"eq_number", [](In in) { return Out{eq(in[0], 1.5)}; }},
      {"erf", [](In in) { return Out{erf(in[0])}; }},
      {"experts", [](In in) { return two_experts(in, false); }},
      {"experts_clamped", [](In in) { return two_clamped_experts(in); }},
      {"experts_clamped_frozen", [](In in) { return two_clamped_experts(frozen_matrices(in)); }},
      {"experts_frozen", [](In in) { return two_experts(frozen_matrices(in), false); }},
      {"experts_normalized_frozen", [](In in) { return two_experts(frozen_matrices(in), true); }},
      {"experts_normalized", [](In in) { return two_experts(in, true); }},
      {"experts_scaled", [](In in) { return two_scaled_experts(in); }},
      {"experts_scaled_frozen", [](In in) { return two_scaled_experts(frozen_matrices(in)); }},
      {"exp", [](In in) { return Out{exp(in[0])}; }},
      {"exp2", [](In in) { return Out{exp2(in[0])}; }},
      {"expand",
       [](In in) {
         return Out{graph::expand(in[0], {2, 3, 4})};
       }},
      {"expand_kept",
       [](In in) {
         return Out{graph::expand(in[0], {2, -1, 4, -1})};
       }},
      {"expm1", [](In in) { return Out{expm1(in[0])}; }},
      {"eye",
       [](In) {
         return Out{eye(3), eye(2, 4)};
       }},
      {"flatten", [](In in) { return Out{flatten(in[0], 1)}; }},
      {"flatten_all", [](In in) { return Out{flatten(in[0])}; }},
      {"flatten_last", [](In in) { return Out{flatten(in[0], -1)}; }},
      {"flip",
       [](In in) {
         return Out{flip(in[0], {0, -1})};
       }},
      {"floor", [](In in) { return Out{floor(in[0])}; }},
      {"floor_divide", [](In in) { return Out{floor_divide(in[0], in[1])}; }},
      {"floor_divide_number", [](In in) { return Out{floor_divide(in[0], 2)}; }},
      {"full",
       [](In) {
         return Out{full({2, 3}, 1.5)};
       }},
      {"ge", [](In in) { return Out{ge(in[0], in[1])}; }},
      {"gelu", [](In in) { return Out{gelu(in[0])}; }},
      {"gelu_tanh", [](In in) { return Out{gelu_tanh(in[0])}; }},
      {"gt", [](In in) { return Out{gt(in[0], in[1])}; }},
      {"gt_number", [](In in) { return Out{gt(in[0], 1)}; }},
      {"hard_sigmoid", [](In in) { return Out{hard_sigmoid(in[0])}; }},
      {"hard_swish", [](In in) { return Out{hard_swish(in[0])}; }},
      {"huber_0_3", [](In in) { return Out{huber_loss(in[0], in[1], Reduction::kMean, 0.3)}; }},
      {"index_1", [](In in) { return Out{index(in[0], in.subspan(1))}; }},
      {"index_2", [](In in) { return Out{index(in[0], in.subspan(1))}; }},
      {"index_add", [](In in) { return Out{index_put(in[0], in.subspan(1, 2), in[3], true)}; }},
      {"index_put", [](In in) { return Out{index_put(in[0], in.subspan(1, 2), in[3])}; }},
      {"index_select_1", [](In in) { return Out{index_select(in[0], 1, in[1])}; }},
      {"isfinite", [](In in) { return Out{isfinite(in[0])}; }},
      {"isinf", [](In in) { return Out{isinf(in[0])}; }},
      {"isnan", [](In in) { return Out{isnan(in[0])}; }},
      {"kv_append",
       [](In in) {
         return Out{
             kv_append(graph::state(graph::contiguous(in[0]).eval(), "cache"), in[1], in[2])};
       }},
      {"layer_norm", [](In in) { return Out{layer_norm(in[0], in[1], in[2], 1e-5)}; }},
      {"le", [](In in) { return Out{le(in[0], in[1])}; }},
      {"leaky_relu", [](In in) { return Out{leaky_relu(in[0], 0.2)}; }},
      {"lerp_state",
       [](In in) {
         return Out{lerp_state(graph::state(graph::contiguous(in[0]).eval(), "average"), in[1],
                               graph::scalar(0.25f))};
       }},
      {"like",
       [](In in) {
         return Out{full_like(in[0], 7), zeros_like(in[0]), ones_like(in[0])};
       }},
      {"linear", [](In in) { return Out{linear(in[0], in[1])}; }},
      {"linear_bias", [](In in) { return Out{linear(in[0], in[1], in[2])}; }},
      {"linear_cross_entropy",
       [](In in) {
         return Out{linear_cross_entropy(in[0], in[1], in[2], autograd::detach(in[3]))};
       }},
      {"linear_cross_entropy_cap",
       [](In in) {
         return Out{linear_cross_entropy(in[0], in[1], in[2], autograd::detach(in[3]), 2)};
       }},
      {"linspace",
       [](In) {
         return Out{linspace(-1, 2, 7), linspace(3, 1, 1), linspace(0, 1, 0)};
       }},
      {"log", [](In in) { return Out{log(in[0])}; }},
      {"log1p", [](In in) { return Out{log1p(in[0])}; }},
      {"log2", [](In in) { return Out{log2(in[0])}; }},
      {"log_sigmoid", [](In in) { return Out{log_sigmoid(in[0])}; }},
      {"log_softmax", [](In in) { return Out{log_softmax(in[0])}; }},
      {"log_softmax_1", [](In in) { return Out{log_softmax(in[0], 1)}; }},
      {"logical_and", [](In in) { return Out{logical_and(in[0], in[1])}; }},
      {"logical_not", [](In in) { return Out{logical_not(in[0])}; }},
      {"logical_or", [](In in) { return Out{logical_or(in[0], in[1])}; }},
      {"logical_xor", [](In in) { return Out{logical_xor(in[0], in[1])}; }},
      {"logsumexp_all", [](In in) { return Out{logsumexp(in[0], kAllAxes, false)}; }},
      {"logsumexp_axes",
       [](In in) {
         return Out{logsumexp(in[0], {0, -1}, false)};
       }},
      {"logsumexp_axes_keep",
       [](In in) {
         return Out{logsumexp(in[0], {2, 0}, true)};
       }},
      {"logsumexp_axis_1", [](In in) { return Out{logsumexp(in[0], 1, false)}; }},
      {"logsumexp_keep", [](In in) { return Out{logsumexp(in[0], -1, true)}; }},
      {"lt", [](In in) { return Out{lt(in[0], in[1])}; }},
      {"masked_fill", [](In in) { return Out{masked_fill(in[0], in[1], -kInf)}; }},
      {"masked_fill_7", [](In in) { return Out{masked_fill(in[0], in[1], 7)}; }},
      {"masked_select", [](In in) { return Out{masked_select(in[0], in[1])}; }},
      {"matmul", [](In in) { return Out{matmul(in[0], in[1])}; }},
      {"max_pool2d",
       [](In in) {
         return Out{max_pool2d(in[0], {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}})};
       }},
      {"max_pool2d_dilated",
       [](In in) {
         return Out{max_pool2d(in[0], {.kernel = {2, 2}, .stride = {1, 1}, .dilation = {2, 2}})};
       }},
      {"max_with_index", [](In in) { return both(max_with_index(in[0], 1)); }},
      {"maximum", [](In in) { return Out{maximum(in[0], in[1])}; }},
      {"maximum_number", [](In in) { return Out{clamp(in[0], 2, std::nullopt)}; }},
      {"mean_all", [](In in) { return Out{mean(in[0], kAllAxes, false)}; }},
      {"mean_axes", [](In in) { return Out{mean(in[0], {0, -1}, false)}; }},
      {"mean_axes_keep", [](In in) { return Out{mean(in[0], {2, 0}, true)}; }},
      {"mean_axis_1", [](In in) { return Out{mean(in[0], 1, false)}; }},
      {"mean_keep", [](In in) { return Out{mean(in[0], -1, true)}; }},
      {"min_with_index", [](In in) { return both(min_with_index(in[0], 0, true)); }},
      {"minimum", [](In in) { return Out{minimum(in[0], in[1])}; }},
      {"mish", [](In in) { return Out{mish(in[0])}; }},
      {"soft_cap", [](In in) { return Out{soft_cap(in[0], 3)}; }},
      {"mod", [](In in) { return Out{mod(in[0], in[1])}; }},
      {"mod_number", [](In in) { return Out{mod(in[0], 2)}; }},
      {"movedim", [](In in) { return Out{movedim(in[0], 0, -1)}; }},
      {"mul", [](In in) { return Out{mul(in[0], in[1])}; }},
      {"mul_number", [](In in) { return Out{in[0] * 3}; }},
      {"ne", [](In in) { return Out{ne(in[0], in[1])}; }},
      {"neg", [](In in) { return Out{neg(in[0])}; }},
      {"nll", [](In in) { return Out{nll(in[0], in[1])}; }},
      {"nonzero", [](In in) { return Out{nonzero(in[0])}; }},
      {"norm_0", [](In in) { return Out{norm(in[0], 0, {0, 2}, false)}; }},
      {"norm_0_5", [](In in) { return Out{norm(in[0], 0.5, {0, 2}, false)}; }},
      {"norm_1", [](In in) { return Out{norm(in[0], 1, {0, 2}, false)}; }},
      {"norm_1_5", [](In in) { return Out{norm(in[0], 1.5, {0, 2}, false)}; }},
      {"norm_2", [](In in) { return Out{norm(in[0], 2, {0, 2}, false)}; }},
      {"norm_3", [](In in) { return Out{norm(in[0], 3, {0, 2}, false)}; }},
      {"norm_inf", [](In in) { return Out{norm(in[0], kInf, {0, 2}, false)}; }},
      {"norm_minus_1", [](In in) { return Out{norm(in[0], -1, {0, 2}, false)}; }},
      {"norm_minus_inf", [](In in) { return Out{norm(in[0], -kInf, {0, 2}, false)}; }},
      {"one_hot_5", [](In in) { return Out{one_hot(in[0], 5)}; }},
      {"outer", [](In in) { return Out{outer(in[0], in[1])}; }},
      {"pad", [](In in) { return Out{graph::pad(in[0], 1, 2, 1)}; }},
      {"permute", [](In in) { return Out{graph::permute(in[0], {2, 0, -2})}; }},
      {"plus_2", [](In in) { return Out{in[0] + 2}; }},
      {"plus_half", [](In in) { return Out{in[0] + 0.5}; }},
      {"plus_true", [](In in) { return Out{in[0] + true}; }},
      {"pow", [](In in) { return Out{pow(in[0], in[1])}; }},
      {"pow_2", [](In in) { return Out{pow(in[0], 2)}; }},
      {"pow_2_real", [](In in) { return Out{pow(in[0], 2.0)}; }},
      {"pow_3", [](In in) { return Out{pow(in[0], 3)}; }},
      {"pow_3_real", [](In in) { return Out{pow(in[0], 3.0)}; }},
      {"pow_half", [](In in) { return Out{pow(in[0], 0.5)}; }},
      {"pow_minus_1", [](In in) { return Out{pow(in[0], -1.0)}; }},
      {"pow_number", [](In in) { return Out{pow(in[0], 2.5)}; }},
      {"prod_axis_1", [](In in) { return Out{prod(in[0], 1, false)}; }},
      {"prod_keep", [](In in) { return Out{prod(in[0], -1, true)}; }},
      {"rdiv_number", [](In in) { return Out{2.0 / in[0]}; }},
      {"recip", [](In in) { return Out{recip(in[0])}; }},
      {"relu", [](In in) { return Out{relu(in[0])}; }},
      {"remainder", [](In in) { return Out{remainder(in[0], in[1])}; }},
      {"remainder_number", [](In in) { return Out{remainder(in[0], 3)}; }},
      {"remainder_real", [](In in) { return Out{remainder(in[0], 1.5)}; }},
      {"repeat_interleave", [](In in) { return Out{repeat_interleave(in[0], 3, -1)}; }},
      {"reshape", [](In in) { return Out{graph::reshape(in[0], {4, -1})}; }},
      {"rms_norm", [](In in) { return Out{rms_norm(in[0], in[1], 1e-5)}; }},
      {"roll", [](In in) { return Out{roll(in[0], 2, 1)}; }},
      {"roll_back", [](In in) { return Out{roll(in[0], -7, 1)}; }},
      {"rope_half", [](In in) { return Out{rope(in[0], autograd::detach(in[1]), false)}; }},
      {"rope_pairs", [](In in) { return Out{rope(in[0], autograd::detach(in[1]), true)}; }},
      {"rope_table", [](In in) { return Out{rope_table(in[0], in[1], 4)}; }},
      {"round", [](In in) { return Out{round(in[0])}; }},
      {"rpow_number", [](In in) { return Out{pow(2.0, in[0])}; }},
      {"rsqrt", [](In in) { return Out{rsqrt(in[0])}; }},
      {"scatter_0", [](In in) { return Out{scatter(in[0], 0, in[1], in[2])}; }},
      {"scatter_1", [](In in) { return Out{scatter(in[0], 1, in[1], in[2])}; }},
      {"scatter_add_0", [](In in) { return Out{scatter_add(in[0], 0, in[1], in[2])}; }},
      {"scatter_add_1", [](In in) { return Out{scatter_add(in[0], 1, in[1], in[2])}; }},
      {"sigmoid", [](In in) { return Out{sigmoid(in[0])}; }},
      {"sign", [](In in) { return Out{sign(in[0])}; }},
      {"silu", [](In in) { return Out{silu(in[0])}; }},
      {"sin", [](In in) { return Out{sin(in[0])}; }},
      {"slice", [](In in) { return Out{graph::slice(in[0], 1, 1, 3)}; }},
      {"slice_none", [](In in) { return Out{graph::slice(in[0], 1, 2, 2)}; }},
      {"smooth_l1_0_3",
       [](In in) { return Out{smooth_l1_loss(in[0], in[1], Reduction::kMean, 0.3)}; }},
      {"softmax", [](In in) { return Out{softmax(in[0])}; }},
      {"softmax_0", [](In in) { return Out{softmax(in[0], 0)}; }},
      {"softplus", [](In in) { return Out{softplus(in[0])}; }},
      {"softplus_beta", [](In in) { return Out{softplus(in[0], 2, 3)}; }},
      {"sort", [](In in) { return both(sort(in[0])); }},
      {"sort_0", [](In in) { return both(sort(in[0], 0)); }},
      {"sort_down", [](In in) { return both(sort(in[0], -1, true)); }},
      {"split", [](In in) { return split(in[0], std::array<int64_t, 3>{2, 0, 5}, 1); }},
      {"split_even", [](In in) { return split(in[0], 3, -1); }},
      {"sqrt", [](In in) { return Out{sqrt(in[0])}; }},
      {"square", [](In in) { return Out{square(in[0])}; }},
      {"squeeze", [](In in) { return Out{squeeze(in[0])}; }},
      {"squeeze_axis", [](In in) { return Out{squeeze(in[0], -2)}; }},
      {"stack", [](In in) { return Out{stack(in, -1)}; }},
      {"std_all", [](In in) { return Out{stddev(in[0], kAllAxes, false)}; }},
      {"std_axes", [](In in) { return Out{stddev(in[0], {0, -1}, false)}; }},
      {"std_axes_keep", [](In in) { return Out{stddev(in[0], {2, 0}, true)}; }},
      {"std_axis_1", [](In in) { return Out{stddev(in[0], 1, false)}; }},
      {"std_keep", [](In in) { return Out{stddev(in[0], -1, true)}; }},
      {"std_population", [](In in) { return Out{stddev(in[0], 1, false, 0)}; }},
      {"strided_slice_down", [](In in) { return Out{all_slices(in[0], {-1, -2, -9})}; }},
      {"strided_slice_up", [](In in) { return Out{all_slices(in[0], {1, 2, 3, 9})}; }},
      {"sub", [](In in) { return Out{sub(in[0], in[1])}; }},
      {"sub_number", [](In in) { return Out{2 - in[0]}; }},
      {"sum_all", [](In in) { return Out{sum(in[0], kAllAxes, false)}; }},
      {"sum_axes", [](In in) { return Out{sum(in[0], {0, -1}, false)}; }},
      {"sum_axes_keep", [](In in) { return Out{sum(in[0], {2, 0}, true)}; }},
      {"sum_axis_1", [](In in) { return Out{sum(in[0], 1, false)}; }},
      {"sum_keep", [](In in) { return Out{sum(in[0], -1, true)}; }},
      {"take_along_0", [](In in) { return Out{take_along(in[0], in[1], 0)}; }},
      {"take_along_1", [](In in) { return Out{take_along(in[0], in[1], 1)}; }},
      {"tanh", [](In in) { return Out{tanh(in[0])}; }},
      {"tile", [](In in) { return Out{tile(in[0], std::array<int64_t, 3>{2, 3, 1})}; }},
      {"tile_many",
       [](In in) { return Out{tile(in[0], std::array<int64_t, 8>{2, 1, 3, 2, 1, 2, 1, 2})}; }},
      {"to_bf16", [](In in) { return Out{graph::contiguous(in[0], DType::kBF16)}; }},
      {"to_bool", [](In in) { return Out{graph::contiguous(in[0], DType::kBool)}; }},
      {"to_f16", [](In in) { return Out{graph::contiguous(in[0], DType::kF16)}; }},
      {"to_f32", [](In in) { return Out{graph::contiguous(in[0], DType::kF32)}; }},
      {"to_f64", [](In in) { return Out{graph::contiguous(in[0], DType::kF64)}; }},
      {"to_i32", [](In in) { return Out{graph::contiguous(in[0], DType::kI32)}; }},
      {"to_i64", [](In in) { return Out{graph::contiguous(in[0], DType::kI64)}; }},
      {"to_i8", [](In in) { return Out{graph::contiguous(in[0], DType::kI8)}; }},
      {"to_u8", [](In in) { return Out{graph::contiguous(in[0], DType::kU8)}; }},
      {"topk_3", [](In in) { return both(topk(in[0], 3)); }},
      {"topk_small", [](In in) { return both(topk(in[0], 2, -1, false)); }},
      {"transpose", [](In in) { return Out{graph::transpose(in[0], -1, 0)}; }},
      {"tril_0", [](In in) { return Out{tril(in[0], 0)}; }},
      {"tril_1", [](In in) { return Out{tril(in[0], 1)}; }},
      {"tril_minus_2", [](In in) { return Out{tril(in[0], -2)}; }},
      {"triu_0", [](In in) { return Out{triu(in[0], 0)}; }},
      {"triu_1", [](In in) { return Out{triu(in[0], 1)}; }},
      {"triu_minus_2", [](In in) { return Out{triu(in[0], -2)}; }},
      {"trunc", [](In in) { return Out{trunc(in[0])}; }},
      {"unsqueeze", [](In in) { return Out{unsqueeze(unsqueeze(in[0], -1), 0)}; }},
      {"var_all", [](In in) { return Out{var(in[0], kAllAxes, false)}; }},
      {"var_axes", [](In in) { return Out{var(in[0], {0, -1}, false)}; }},
      {"var_axes_keep", [](In in) { return Out{var(in[0], {2, 0}, true)}; }},
      {"var_axis_1", [](In in) { return Out{var(in[0], 1, false)}; }},
      {"var_keep", [](In in) { return Out{var(in[0], -1, true)}; }},
      {"var_one", [](In in) { return Out{var(in[0], 1, false)}; }},
      {"var_population", [](In in) { return Out{var(in[0], 1, false, 0)}; }},
      {"where", [](In in) { return Out{where(in[0], in[1], in[2])}; }},
      {"where_lt", [](In in) { return Out{where(lt(in[0], in[1]), in[0] * 2, in[1])}; }},
      {"zeros_ones", [](In) { return Out{zeros({2, 3}), ones({3}, DType::kI64)}; }},
  };
  return builders;
}

}  // namespace lumen::ops
