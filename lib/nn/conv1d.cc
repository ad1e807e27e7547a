#include "lib/nn/conv1d.h"

#include <array>

namespace lumen::nn {

bool has_conv1d(const io::Json& config) {
  return io::get_string(config, "model_type", "") == "gpt2";
}

bool is_conv1d_weight(const io::Json& config, std::string_view name, const Array& array) {
  constexpr std::array<std::string_view, 3> kLayers = {".c_attn.weight", ".c_proj.weight",
                                                       ".c_fc.weight"};
  if (!has_conv1d(config) || array.shape().rank() != 2) return false;
  for (const std::string_view layer : kLayers) {
    if (name.ends_with(layer)) return true;
  }
  return false;
}

WeightOrder conv1d_order(const io::Json& config) {
  return io::get_bool(config, "conv1d_out_in", false) ? WeightOrder::kOutIn : WeightOrder::kInOut;
}

Array turned(const Array& matrix) {
  return graph::permute(graph::constant(float32_copy(matrix)), {1, 0}).eval();
}

void turn_conv1d_weights(const io::Json& config, NamedArrays& tensors) {
  for (auto& [name, array] : tensors) {
    if (is_conv1d_weight(config, name, array)) array = turned(array);
  }
}

Conv1D::Conv1D(const Parameters& parameters, int64_t in, int64_t out, WeightOrder order)
    : weight_(order == WeightOrder::kOutIn ? parameters.get("weight", {out, in})
                                           : parameters.get_f32("weight", {in, out})),
      addition_(parameters.low_rank(weight_, order)),
      bias_(parameters.get_f32("bias", {out}, Init::zeros())),
      order_(order) {}

Tensor Conv1D::product(const Tensor& x, const Tensor& bias) const {
  if (order_ == WeightOrder::kOutIn) return ops::linear(x, weight_, bias);
  const Tensor rows = graph::reshape(x, {-1, weight_.dim(0)});
  Shape shape = x.shape();
  shape[-1] = weight_.dim(1);
  const Tensor y = ops::matmul(rows, weight_);
  return graph::reshape(bias.defined() ? ops::add(y, bias) : y, shape);
}

Tensor Conv1D::operator()(const Tensor& x) const {
  const auto whole = [&](const Tensor& given, const Tensor& bias) { return product(given, bias); };
  return with_addition(whole, bias_, x, addition_);
}

}  // namespace lumen::nn
