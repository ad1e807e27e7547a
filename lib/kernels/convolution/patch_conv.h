// Convolutions as matrix products with patches of the input, which are packed tile by tile into the
// panels of the product (im2col that never leaves the cache). Private to this room: what the three
// functions of conv.h do for every shape that no other way is faster for.
#pragma once

#include <cstddef>

#include "lib/kernels/conv.h"

namespace lumen::kernels {

// Columns are the output pixels of all samples, one after another; so many are packed at a time. In
// the gradient of the input a pixel adds up what each tile brings it, in the order of the weights.
inline constexpr int64_t kPatchTileColumns = 128;

// No extent may be 0, but for in_channels in patch_conv and its workspace.
size_t patch_conv_workspace_bytes(const ConvShape& shape, int threads);
size_t patch_input_grad_workspace_bytes(const ConvShape& shape, int threads);
size_t patch_weight_grad_workspace_bytes(const ConvShape& shape, int threads);

// As conv2d, conv2d_input_grad and conv2d_weight_grad (conv.h).
void patch_conv(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
                const float* bias, float* y, std::byte* workspace);
void patch_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                      float* dx, std::byte* workspace);
void patch_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                       float* dw, std::byte* workspace);

}  // namespace lumen::kernels
