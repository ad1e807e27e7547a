// Two-dimensional convolution (cross-correlation, as the field calls it) and its two gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// y[n,o,i,j] = Σ_{c,u,v} w[o,c,u,v] · x[n, g·C + c, i·stride_y + u·dilation_y − padding_y,
// j·stride_x + v·dilation_x − padding_x], x being zero outside, C = in_channels / groups and g the
// group of o. x is [batch, in_channels, in_height, in_width], y [batch, out_channels, out_height,
// out_width], w [out_channels, in_channels / groups, kernel_height, kernel_width]; all contiguous
// float32. Every output element must lie within the padded input.
struct ConvShape {
  int64_t batch;
  int64_t in_channels, in_height, in_width;
  int64_t out_channels, out_height, out_width;
  int64_t kernel_height, kernel_width;
  int64_t stride_y = 1, stride_x = 1;
  int64_t padding_y = 0, padding_x = 0;
  int64_t dilation_y = 1, dilation_x = 1;
  int64_t groups = 1;
  bool bf16 = false;  // operands of products may be rounded to bfloat16
};

// Bytes of workspace for each of the three.
size_t conv2d_workspace_bytes(const ConvShape& shape, int threads);
size_t conv2d_input_grad_workspace_bytes(const ConvShape& shape, int threads);
size_t conv2d_weight_grad_workspace_bytes(const ConvShape& shape, int threads);

// Which of three ways is taken depends on the shape. Kernels of 3 × 3 with stride and dilation 1,
// one group and 32 channels or more are multiplied by Winograd's minimal filtering, with 16
// products for 36 (winograd.h), unless an ExactProductsScope (matmul.h) lives: sums of inputs and
// of weights are rounded before they meet. The error stays that of float32, below 1e-6 · ‖y‖ with
// 512 channels; an infinity makes NaNs of outputs up to three pixels away. With `bf16` and a unit
// for it (bf16_unit, amx.h) these sums are rounded to bfloat16 before they meet: an error of
// 3.4e-3 to 4.2e-3 · ‖y‖; all other ways stay float32. Other kernels of stride
// 1 with few channels, or of any stride with one or two a group, are sums of shifted rows
// (direct_conv.h; the gradient of the input with strides only of single channels,
// depthwise_grad.h), the rest products of matrices of patches
// (patch_conv.h). Gradients of weights that come out infinite or NaN in another way are
// computed again by these: what no window covers has no part in them. Padding is zeros that are
// multiplied: where an infinite weight or dy meets them there is a NaN, which PyTorch has not; an
// infinite x meets none. Sums in float32; the result
// does not depend on the number of threads. Workspaces are 64-byte aligned, of any content. None
// allocates. noexcept.

// y as above plus bias[o]; `bias` may be null.
void conv2d(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
            const float* bias, float* y, std::byte* workspace);

// dx of the gradient dy of y: also the transposed convolution of dy.
void conv2d_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                       float* dx, std::byte* workspace);

// dw of the gradient dy of y.
void conv2d_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                        float* dw, std::byte* workspace);

// The three of float64, of shapes in which `bf16` means nothing: plain sums, which need no
// workspace and meet no padding.
void conv2d_f64(ThreadPool& pool, const ConvShape& shape, const double* x, const double* w,
                const double* bias, double* y);
void conv2d_input_grad_f64(ThreadPool& pool, const ConvShape& shape, const double* dy,
                           const double* w, double* dx);
void conv2d_weight_grad_f64(ThreadPool& pool, const ConvShape& shape, const double* x,
                            const double* dy, double* dw);

}  // namespace lumen::kernels
