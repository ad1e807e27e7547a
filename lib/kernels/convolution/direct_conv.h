// Convolutions without packed patches: the input's rows, padded, lie in one line, and a patch
// element of all pixels is that line shifted. With strides there is a line for each phase of rows
// and columns; the gradient of the input takes stride 1 only. Private to this room: what the three
// functions of conv.h do for the shapes that …_pays name.
//
// Sums are float32 chains over the patch, as exact as a matrix product's. In the gradient of the
// weights an infinity in x makes NaNs of all weights of its channel.
#pragma once

#include <cstddef>

#include "lib/kernels/conv.h"

namespace lumen::kernels {

// Whether these functions take the shape and are faster than the matrix product of patches.
bool direct_conv_pays(const ConvShape& shape);
bool direct_input_grad_pays(const ConvShape& shape);
bool direct_weight_grad_pays(const ConvShape& shape);

size_t direct_conv_workspace_bytes(const ConvShape& shape, int threads);
size_t direct_input_grad_workspace_bytes(const ConvShape& shape, int threads);
size_t direct_weight_grad_workspace_bytes(const ConvShape& shape, int threads);

// As conv2d, conv2d_input_grad and conv2d_weight_grad (conv.h).
void direct_conv(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
                 const float* bias, float* y, std::byte* workspace);
void direct_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                       float* dx, std::byte* workspace);
void direct_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                        float* dw, std::byte* workspace);

}  // namespace lumen::kernels
