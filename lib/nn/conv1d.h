// GPT-2's linear layers ("Conv1D"), whose weights lie [in, out] in Hugging Face's files and
// [out, in], as those of all others, in GGUF's.
#pragma once

#include <string_view>

#include "lib/io/json.h"
#include "lib/nn/layers.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::nn {

// Whether a model with this config (ModelFiles::config) has such layers.
bool has_conv1d(const io::Json& config);
// Whether `array`, the tensor `name` of a model, is the matrix of one.
bool is_conv1d_weight(const io::Json& config, std::string_view name, const Array& array);

// How they lie in the tensors of such a model: kOutIn where the config has Lumen's key
// "conv1d_out_in", true, as of GGUF files.
WeightOrder conv1d_order(const io::Json& config);

// A matrix the other way round, in float32.
Array turned(const Array& matrix);
// All such weights of the model.
void turn_conv1d_weights(const io::Json& config, NamedArrays& tensors);

// y = x · weight + bias, with a low-rank addition as Linear. A weight that lies [in, out] is
// float32; one that lies [out, in] has its stored type. Parameters: weight, bias [out].
class Conv1D {
 public:
  Conv1D(const Parameters& parameters, int64_t in, int64_t out, WeightOrder order);
  Tensor operator()(const Tensor& x) const;

 private:
  Tensor product(const Tensor& x, const Tensor& bias) const;

  Tensor weight_;
  std::optional<LowRank> addition_;
  Tensor bias_;
  WeightOrder order_;
};

}  // namespace lumen::nn
