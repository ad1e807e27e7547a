// A convolution of each channel over the last tokens, and what a cache keeps of them.
#pragma once

#include <vector>

#include "lib/nn/layers.h"

namespace lumen::nn {

struct Pass;

// y[t, c] = bias[c] + Σ_i weight[c, 0, i] · x[t − kernel + 1 + i, c], tokens before the first, and
// of other documents of a packed row, counting as 0. Parameters: weight [channels, 1, kernel], bias
// [channels] or none, as of a Conv1d with groups = channels. The cache has the last kernel − 1
// inputs as its past_inputs.
class CausalConvolution {
 public:
  // The weights of so many channels.
  struct Part {
    Parameters place;
    int64_t channels;
  };

  CausalConvolution(const Parameters& parameters, int64_t channels, int64_t kernel,
                    bool with_bias = false);
  // Of several without bias the channels of one behind those of the other.
  CausalConvolution(const std::vector<Part>& parts, int64_t kernel);
  // x [batch, tokens, channels] behind the inputs before them: [batch, kernel − 1 + tokens,
  // channels]. `layer` counts the layers with past inputs.
  Tensor with_past(const Tensor& x, const Pass& pass, int64_t layer) const;
  // Of such inputs y [batch, tokens, channels].
  Tensor operator()(const Tensor& inputs, const Pass& pass) const;
  // `out`, and the last of such inputs are in the cache, if there is one.
  Tensor keep_past(const Tensor& out, const Tensor& inputs, const Pass& pass, int64_t layer) const;

 private:
  int64_t channels_, kernel_;
  Tensor taps_, bias_;
};

// Whether a token at t and the one at t − distance are of one document: float32 [batch, tokens, 1]
// for segments [batch, tokens]. 0 where there is none.
Tensor of_one_document(const Tensor& segments, int64_t distance);

}  // namespace lumen::nn
