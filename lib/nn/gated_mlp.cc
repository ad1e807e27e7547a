#include "lib/nn/gated_mlp.h"

namespace lumen::nn {
namespace {

std::vector<Linear> gate_and_up(const Parameters& parameters, const GatedMlpShape& s) {
  std::vector<Linear> result;
  if (s.fused) {
    result.emplace_back(parameters / s.gate_up, s.hidden, 2 * s.intermediate, s.bias);
    return result;
  }
  result.emplace_back(parameters / s.gate, s.hidden, s.intermediate, s.bias);
  result.emplace_back(parameters / s.up, s.hidden, s.intermediate, s.bias);
  return result;
}

// Only what lies so many deviations above the mean of a row, less that.
Tensor above_cutoff(const Tensor& x, double cutoff) {
  const Tensor deviation = ops::stddev(x, -1, /*keepdim=*/true, /*correction=*/0);
  return ops::relu(ops::sub(x, ops::add(ops::mean(x, -1), ops::mul(deviation, cutoff))));
}

}  // namespace

void give_own_addition(const Parameters& place, const std::string& name, const OwnAddition& own,
                       Linear& layer) {
  const Parameters pair = place / name / str(own.number);
  const int64_t out = layer.weight.dim(0), in = layer.weight.dim(1);
  layer.addition =
      LowRank{.a = (pair / "0").get_f32("weight", {own.rank, in}, Init::fan_in_uniform()),
              .b = (pair / "1").get_f32("weight", {out, own.rank}, Init::fan_in_uniform())};
}

std::vector<Tensor> parts_of(const std::vector<Linear>& layers, const Tensor& x,
                             std::span<const int64_t> widths) {
  std::vector<Tensor> parts;
  if (layers.size() > 1) {
    for (const Linear& layer : layers) parts.push_back(layer(x));
    return parts;
  }
  const Tensor whole = layers[0](x);
  int64_t column = 0;
  for (const int64_t width : widths) {
    parts.push_back(graph::slice(whole, -1, column, column + width));
    column += width;
  }
  return parts;
}

GatedMlp::GatedMlp(const Parameters& parameters, const GatedMlpShape& shape)
    : shape_(shape),
      gate_up_(gate_and_up(parameters, shape)),
      down_proj_(parameters / shape.down, shape.intermediate, shape.hidden, shape.bias) {
  if (shape.own_addition) {
    const std::string name = shape.gate_up + "_adapter_list";
    give_own_addition(parameters, name, *shape.own_addition, gate_up_[0]);
  }
  if (!shape.down_norm.empty()) {
    down_norm_.emplace(parameters / shape.down_norm, shape.intermediate, shape.norm);
  }
}

Tensor GatedMlp::operator()(const Tensor& x) const {
  const int64_t widths[] = {shape_.intermediate, shape_.intermediate};
  const std::vector<Tensor> parts = parts_of(gate_up_, x, widths);
  Tensor gate = scaled(parts[0], shape_.gate_scale);
  if (shape_.cutoff) gate = above_cutoff(gate, *shape_.cutoff);
  gate = shape_.activation(gate);
  Tensor gated = ops::mul(gate, parts[1]);
  if (down_norm_) gated = (*down_norm_)(gated);
  return scaled(down_proj_(gated), shape_.down_scale);
}

PlainMlp::PlainMlp(const Parameters& parameters, const PlainMlpShape& shape)
    : activation_(shape.activation),
      up_(parameters / shape.up, shape.hidden, shape.intermediate, shape.bias),
      down_(parameters / shape.down, shape.intermediate, shape.hidden, shape.bias) {
  if (shape.xielu) act_fn_.emplace(parameters / "act_fn");
}

Tensor PlainMlp::operator()(const Tensor& x) const {
  const Tensor h = up_(x);
  return down_(act_fn_ ? (*act_fn_)(h) : activation_(h));
}

}  // namespace lumen::nn
