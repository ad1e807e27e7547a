#include "lib/nn/short_convolution.h"

namespace lumen::nn {

ShortConvolution::ShortConvolution(const Parameters& parameters, const ShortConvolutionShape& shape)
    : hidden_(shape.hidden),
      in_proj_(parameters / "in_proj", shape.hidden, 3 * shape.hidden, shape.bias),
      conv_(parameters / "conv", shape.hidden, shape.kernel, shape.bias),
      out_proj_(parameters / "out_proj", shape.hidden, shape.hidden, shape.bias) {}

Tensor ShortConvolution::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const Tensor parts = in_proj_(x);
  const auto part = [&](int64_t i) {
    return graph::slice(parts, 2, i * hidden_, (i + 1) * hidden_);
  };
  const Tensor inputs = conv_.with_past(ops::mul(part(0), part(2)), pass, layer);
  const Tensor gated = ops::mul(part(1), conv_(inputs, pass));
  return out_proj_(conv_.keep_past(gated, inputs, pass, layer));
}

KvCacheShape::Recurrent ShortConvolution::cache_shape(const ShortConvolutionShape& shape,
                                                      int64_t layers) {
  return {.layers = layers, .past_inputs = shape.kernel - 1, .channels = shape.hidden};
}

}  // namespace lumen::nn
