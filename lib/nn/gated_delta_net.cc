#include "lib/nn/gated_delta_net.h"

#include <cmath>
#include <initializer_list>
#include <span>

#include "lib/nn/decoder.h"
#include "lib/nn/fused_layers.h"

namespace lumen::nn {
namespace {

int64_t channels_of(const GatedDeltaNetShape& s) {
  return 2 * s.key_heads * s.key_dim + s.heads * s.value_dim;
}

CausalConvolution convolution(const Parameters& parameters, const GatedDeltaNetShape& s) {
  if (!s.separate) return {parameters / "conv1d", channels_of(s), s.kernel};
  const int64_t keys = s.key_heads * s.key_dim;
  return {{{parameters / "q_conv1d", keys},
           {parameters / "k_conv1d", keys},
           {parameters / "v_conv1d", s.heads * s.value_dim}},
          s.kernel};
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const Parameters& parameters, const GatedDeltaNetShape& shape)
    : shape_(shape),
      channels_(channels_of(shape)),
      convolution_(convolution(parameters, shape)),
      dt_bias_(parameters.get_f32("dt_bias", {shape.heads}, Init::ones())),
      rates_(parameters, shape.heads),
      norm_(parameters / (shape.separate ? "o_norm" : "norm"), shape.value_dim, shape.eps),
      out_proj_(parameters / (shape.separate ? "o_proj" : "out_proj"),
                shape.heads * shape.value_dim, shape.hidden, false) {
  const int64_t values = shape.heads * shape.value_dim;
  const auto add = [&](std::vector<Linear>& linears, const char* name, int64_t rows) {
    linears.emplace_back(parameters / name, shape.hidden, rows, false);
  };
  if (shape.separate) {
    for (const char* name : {"q_proj", "k_proj"}) add(qkvz_, name, shape.key_heads * shape.key_dim);
    for (const char* name : {"v_proj", "g_proj"}) add(qkvz_, name, values);
    for (const char* name : {"b_proj", "a_proj"}) add(ba_, name, shape.heads);
    return;
  }
  if (shape.fused && !shape.apart) {
    add(qkvz_, "in_proj_qkvz", channels_ + values);
  } else {
    add(qkvz_, "in_proj_qkv", channels_);
    add(qkvz_, "in_proj_z", values);
  }
  if (shape.fused) {
    add(ba_, "in_proj_ba", 2 * shape.heads);
  } else {
    add(ba_, "in_proj_b", shape.heads);
    add(ba_, "in_proj_a", shape.heads);
  }
}

KvCacheShape::Recurrent GatedDeltaNet::cache_shape(const GatedDeltaNetShape& shape,
                                                   int64_t layers) {
  return {layers,      shape.kernel - 1, channels_of(shape),
          shape.heads, shape.key_dim,    shape.value_dim};
}

GatedDeltaNet::Inputs GatedDeltaNet::inputs_of(const Tensor& x) const {
  // The parts, of these sizes for each key head, of what it has one behind the other.
  const auto parts = [&](const Tensor& fused, std::initializer_list<int64_t> sizes) {
    const int64_t batch = fused.dim(0), tokens = fused.dim(1);
    const Tensor of_heads =
        graph::reshape(fused, {batch, tokens, shape_.key_heads, fused.dim(2) / shape_.key_heads});
    std::vector<Tensor> result;
    int64_t first = 0;
    for (const int64_t size : sizes) {
      result.push_back(graph::reshape(graph::slice(of_heads, 3, first, first + size),
                                      {batch, tokens, shape_.key_heads * size}));
      first += size;
    }
    return result;
  };
  const int64_t group = shape_.heads / shape_.key_heads, values = group * shape_.value_dim;
  Inputs inputs;
  if (qkvz_.size() == 1) {
    const auto qkvz = parts(qkvz_[0](x), {shape_.key_dim, shape_.key_dim, values, values});
    inputs.qkv = ops::concat(std::span(qkvz).first(3), 2);
    inputs.z = qkvz[3];
  } else if (shape_.separate) {
    const Tensor qkv[] = {qkvz_[0](x), qkvz_[1](x), qkvz_[2](x)};
    inputs.qkv = ops::concat(qkv, 2);
    inputs.z = qkvz_[3](x);
  } else {
    inputs.qkv = qkvz_[0](x);
    inputs.z = qkvz_[1](x);
  }
  if (ba_.size() == 1) {
    const auto ba = parts(ba_[0](x), {group, group});
    inputs.b = ba[0];
    inputs.a = ba[1];
  } else {
    inputs.b = ba_[0](x);
    inputs.a = ba_[1](x);
  }
  return inputs;
}

Tensor GatedDeltaNet::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const int64_t batch = x.dim(0), tokens = x.dim(1);
  const Inputs given = inputs_of(x);
  const Tensor inputs = convolution_.with_past(given.qkv, pass, layer);
  const Tensor mixed = ops::silu(convolution_(inputs, pass));
  const int64_t keys = shape_.key_heads * shape_.key_dim;
  const auto in_heads = [&](int64_t first, int64_t heads, int64_t dim) {
    return graph::reshape(graph::slice(mixed, 2, first, first + heads * dim),
                          {batch, tokens, heads, dim});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(shape_.key_dim));
  const Tensor q = unit_rows(in_heads(0, shape_.key_heads, shape_.key_dim), scale);
  const Tensor k = unit_rows(in_heads(keys, shape_.key_heads, shape_.key_dim), 1);
  const Tensor v = in_heads(2 * keys, shape_.heads, shape_.value_dim);
  const Tensor decay = ops::exp(ops::mul(ops::softplus(ops::add(given.a, dt_bias_)), rates_()));
  const Tensor beta = scaled(ops::sigmoid(given.b), shape_.beta_scale);
  const Tensor read = with_states(q, k, v, decay, beta, {.tiled = shape_.tiled}, pass, layer);
  const Tensor out = convolution_.keep_past(read, inputs, pass, layer);
  const Tensor gate =
      ops::silu(graph::reshape(given.z, {batch, tokens, shape_.heads, shape_.value_dim}));
  return out_proj_(
      graph::reshape(ops::mul(norm_(out), gate), {batch, tokens, shape_.heads * shape_.value_dim}));
}

}  // namespace lumen::nn
