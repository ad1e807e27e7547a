// The gradient of the input of a strided convolution of each channel by itself, without matrix
// products. Private to this room.
#pragma once

#include <cstddef>

#include "lib/kernels/conv.h"

namespace lumen::kernels {

// Whether the function below takes the shape and is faster than others. No extent may be 0.
bool depthwise_input_grad_pays(const ConvShape& shape);

size_t depthwise_input_grad_workspace_bytes(const ConvShape& shape, int threads);

// As conv2d_input_grad (conv.h), with the bits of patch_input_grad.
void depthwise_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                          float* dx, std::byte* workspace);

}  // namespace lumen::kernels
