#include "lib/kernels/conv.h"

#include <algorithm>

#include "lib/kernels/convolution/depthwise_grad.h"
#include "lib/kernels/convolution/direct_conv.h"
#include "lib/kernels/convolution/patch_conv.h"
#include "lib/kernels/convolution/winograd.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/optimizer_step.h"

namespace lumen::kernels {
namespace {

// The same function computed in another way.
using Bytes = size_t(const ConvShape& shape, int threads);
using Conv = void(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
                  const float* bias, float* y, std::byte* workspace);
using Grad = void(ThreadPool& pool, const ConvShape& shape, const float* a, const float* b,
                  float* grad, std::byte* workspace);

bool is_empty(const ConvShape& s) {
  return s.batch == 0 || s.out_channels == 0 || s.out_height == 0 || s.out_width == 0;
}

int64_t input_floats(const ConvShape& s) {
  return s.batch * s.in_channels * s.in_height * s.in_width;
}
int64_t weight_floats(const ConvShape& s) {
  return s.out_channels * (s.in_channels / std::max<int64_t>(1, s.groups)) * s.kernel_height *
         s.kernel_width;
}

bool takes_winograd(const ConvShape& shape) {
  return winograd_pays(shape) && !ExactProductsScope::active();
}

// Whether products are to be exact is known when they are computed: room for either way.
size_t bytes_of(const ConvShape& shape, int threads, Bytes* winograd_bytes, Bytes* other_bytes) {
  const size_t other = other_bytes(shape, threads);
  return winograd_pays(shape) ? std::max(other, winograd_bytes(shape, threads)) : other;
}

}  // namespace

size_t conv2d_workspace_bytes(const ConvShape& shape, int threads) {
  if (is_empty(shape) || shape.in_channels == 0) return 0;
  return bytes_of(
      shape, threads, winograd_workspace_bytes,
      direct_conv_pays(shape) ? direct_conv_workspace_bytes : patch_conv_workspace_bytes);
}

size_t conv2d_input_grad_workspace_bytes(const ConvShape& shape, int threads) {
  if (is_empty(shape) || shape.in_channels == 0) return 0;
  return bytes_of(shape, threads, winograd_input_grad_workspace_bytes,
                  depthwise_input_grad_pays(shape) ? depthwise_input_grad_workspace_bytes
                  : direct_input_grad_pays(shape)  ? direct_input_grad_workspace_bytes
                                                   : patch_input_grad_workspace_bytes);
}

size_t conv2d_weight_grad_workspace_bytes(const ConvShape& shape, int threads) {
  if (is_empty(shape) || shape.in_channels == 0) return 0;
  const size_t fast = bytes_of(shape, threads, winograd_weight_grad_workspace_bytes,
                               direct_weight_grad_pays(shape) ? direct_weight_grad_workspace_bytes
                                                              : patch_weight_grad_workspace_bytes);
  return std::max(fast, patch_weight_grad_workspace_bytes(shape, threads));
}

void conv2d(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
            const float* bias, float* y, std::byte* workspace) {
  if (is_empty(shape)) return;
  if (shape.in_channels == 0) {
    const int64_t pixels = shape.out_height * shape.out_width;
    for (int64_t i = 0; i < shape.batch * shape.out_channels; ++i) {
      std::fill_n(y + i * pixels, pixels, bias ? bias[i % shape.out_channels] : 0.0f);
    }
    return;
  }
  Conv* conv = takes_winograd(shape)     ? winograd
               : direct_conv_pays(shape) ? direct_conv
                                         : patch_conv;
  conv(pool, shape, x, w, bias, y, workspace);
}

void conv2d_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                       float* dx, std::byte* workspace) {
  if (is_empty(shape) || shape.in_channels == 0) {
    std::fill_n(dx, input_floats(shape), 0.0f);
    return;
  }
  Grad* grad = takes_winograd(shape)              ? winograd_input_grad
               : depthwise_input_grad_pays(shape) ? depthwise_input_grad
               : direct_input_grad_pays(shape)    ? direct_input_grad
                                                  : patch_input_grad;
  grad(pool, shape, dy, w, dx, workspace);
}

void conv2d_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                        float* dw, std::byte* workspace) {
  if (is_empty(shape) || shape.in_channels == 0) {
    std::fill_n(dw, weight_floats(shape), 0.0f);
    return;
  }
  Grad* grad = takes_winograd(shape)            ? winograd_weight_grad
               : direct_weight_grad_pays(shape) ? direct_weight_grad
                                                : patch_weight_grad;
  grad(pool, shape, x, dy, dw, workspace);
  // The others add 0 · x for pixels that a weight does not meet.
  if (grad != patch_weight_grad && !all_finite(pool, dw, weight_floats(shape))) {
    patch_weight_grad(pool, shape, x, dy, dw, workspace);
  }
}

}  // namespace lumen::kernels
