// The gated short convolution of LFM2 (Liquid AI 2025), in place of attention in most layers.
#pragma once

#include "lib/nn/causal_convolution.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/layers.h"

namespace lumen::nn {

struct ShortConvolutionShape {
  int64_t hidden;
  int64_t kernel;     // at least 2 taps
  bool bias = false;  // of all three parts
};

// out_proj(c ∘ conv(b ∘ x')) with [b, c, x'] = in_proj(x), three parts of `hidden` numbers each,
// and conv a causal convolution of each channel. Parameters: in_proj, conv, out_proj.
class ShortConvolution {
 public:
  ShortConvolution(const Parameters& parameters, const ShortConvolutionShape& shape);
  // x [batch, tokens, hidden] → the same. `layer` counts the layers of this kind.
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

  // What the cache holds of `layers` of them: no matrices.
  static KvCacheShape::Recurrent cache_shape(const ShortConvolutionShape& shape, int64_t layers);

 private:
  int64_t hidden_;
  Linear in_proj_;
  CausalConvolution conv_;
  Linear out_proj_;
};

}  // namespace lumen::nn
