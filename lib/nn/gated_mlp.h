// Dense feed-forward layers: gated ones and plain ones.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/nn/activation.h"
#include "lib/nn/layers.h"
#include "lib/nn/xielu.h"

namespace lumen::nn {

// Adds `own` to what `layer` gives: "NAME.NUMBER.0" and "NAME.NUMBER.1" of this place, A [rank, in]
// and B [out, rank] (Zamba2).
void give_own_addition(const Parameters& place, const std::string& name, const OwnAddition& own,
                       Linear& layer);

// The values of all layers for x, in parts of these widths along the last axis: a layer gives one
// part, or, if it is the only one, all of them.
std::vector<Tensor> parts_of(const std::vector<Linear>& layers, const Tensor& x,
                             std::span<const int64_t> widths);

struct GatedMlpShape {
  int64_t hidden, intermediate;
  Activation activation;
  bool bias = false;
  bool fused = false;        // one product for gate and up (Phi-3)
  std::string name = "mlp";  // of the layer, below which its parameters are
  // Names of its parts; the last in place of the first two.
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj", gate_up = "gate_up_proj";
  double gate_scale = 1, down_scale = 1;  // what gate and down give is multiplied by
  // Of what gate gives for a token, g, there is max(0, g − mean(g) − cutoff · deviation(g)) in
  // place of g, the mean and the standard deviation being of these numbers (Gemma 3n); none: g.
  std::optional<double> cutoff{};
  std::string down_norm = "";  // name of a norm of what down is given (BitNet); "": none
  NormShape norm{};            // the kind of that
  // Of the layer of gate and up, gate_up_proj_adapter_list; none: there is none.
  std::optional<OwnAddition> own_addition{};
};

// down_proj(activation(gate_proj(x)) · up_proj(x)), or with gate_up_proj, whose rows are those of
// the gate and then those of up: SwiGLU and GeGLU (Shazeer 2020).
class GatedMlp {
 public:
  GatedMlp(const Parameters& parameters, const GatedMlpShape& shape);
  Tensor operator()(const Tensor& x) const;

 private:
  GatedMlpShape shape_;
  std::vector<Linear> gate_up_;  // gate_proj, up_proj, or gate_up_proj alone
  std::optional<Norm> down_norm_;
  Linear down_proj_;
};

struct PlainMlpShape {
  int64_t hidden, intermediate;
  Activation activation;
  bool bias = false;
  std::string up = "up_proj", down = "down_proj";  // names of the two layers
  bool xielu = false;                              // a Xielu, act_fn, in place of the activation
  std::string name = "mlp";  // of the layer, below which they are; "": of the decoder's
};

// down(activation(up(x))) (Vaswani et al. 2017).
class PlainMlp {
 public:
  PlainMlp(const Parameters& parameters, const PlainMlpShape& shape);
  Tensor operator()(const Tensor& x) const;

 private:
  Activation activation_;
  std::optional<Xielu> act_fn_;
  Linear up_, down_;
};

}  // namespace lumen::nn
