// Convolutions with 3 × 3 kernels by Winograd's minimal filtering (winograd_transform.h): 16
// products per 2 × 2 pixels and pair of channels instead of 36. Private to this room: what the
// three functions of conv.h do for the shapes that winograd_pays names.
//
// Products are of sums of inputs and of weights, in float32 or, as conv.h says, rounded to
// bfloat16; sums are float32. ../measurements/convolutions.md has the errors.
#pragma once

#include <cstddef>

#include "lib/kernels/conv.h"

namespace lumen::kernels {

// Whether the shape is one that these functions take (3 × 3, stride and dilation 1, one group,
// padding at most 2) and it is large enough to gain from them.
bool winograd_pays(const ConvShape& shape);

size_t winograd_workspace_bytes(const ConvShape& shape, int threads);
size_t winograd_input_grad_workspace_bytes(const ConvShape& shape, int threads);
size_t winograd_weight_grad_workspace_bytes(const ConvShape& shape, int threads);

// As conv2d, conv2d_input_grad and conv2d_weight_grad (conv.h).
void winograd(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
              const float* bias, float* y, std::byte* workspace);
void winograd_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                         float* dx, std::byte* workspace);
void winograd_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                          float* dw, std::byte* workspace);

}  // namespace lumen::kernels
