// Convolutions. Names, shapes and initialisation of parameters are PyTorch's: weight and bias start
// uniform in ±1/√fan_in. They are float32, whatever the type that a checkpoint stores. An x without
// the batch axis gives a result without it.
#pragma once

#include <array>

#include "lib/nn/parameters.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

// x [batch, in, height, width] → [batch, out, …]; weight [out, in / groups, kernel…].
struct Conv2d {
  Conv2d(const Parameters& parameters, int64_t in, int64_t out, std::array<int64_t, 2> kernel,
         const ops::Conv2dOptions& options = {}, bool with_bias = true);
  Tensor operator()(const Tensor& x) const { return ops::conv2d(x, weight, bias, options); }

  ops::Conv2dOptions options;
  Tensor weight, bias;
};

// x [batch, in, length] → [batch, out, …]; weight [out, in / groups, kernel].
struct Conv1d {
  Conv1d(const Parameters& parameters, int64_t in, int64_t out, int64_t kernel,
         const ops::Conv1dOptions& options = {}, bool with_bias = true);
  Tensor operator()(const Tensor& x) const { return ops::conv1d(x, weight, bias, options); }

  ops::Conv1dOptions options;
  Tensor weight, bias;
};

// x [batch, in, height, width] → [batch, out, …]; weight [in, out / groups, kernel…].
struct ConvTranspose2d {
  ConvTranspose2d(const Parameters& parameters, int64_t in, int64_t out,
                  std::array<int64_t, 2> kernel, const ops::Conv2dOptions& options = {},
                  std::array<int64_t, 2> output_padding = {0, 0}, bool with_bias = true);
  Tensor operator()(const Tensor& x) const {
    return ops::conv_transpose2d(x, weight, bias, options, output_padding);
  }

  ops::Conv2dOptions options;
  std::array<int64_t, 2> output_padding;
  Tensor weight, bias;
};

}  // namespace lumen::nn
