#include "lib/nn/gated_delta_net.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>

#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/nn/decoder.h"
#include "lib/nn/fused_layers.h"

namespace lumen::nn {
namespace {

constexpr double kLengthEps = 1e-6;  // added to the square of the length of q and k

int64_t channels_of(const GatedDeltaNetShape& s) {
  return 2 * s.key_heads * s.key_dim + s.heads * s.value_dim;
}

// x / √(Σ x² + eps) · scale over the last axis.
Tensor unit_rows(const Tensor& x, double scale) {
  const auto dim = static_cast<double>(x.dim(-1));
  const Tensor weight = ops::full({x.dim(-1)}, scale / std::sqrt(dim));
  return ops::rms_norm(x, weight, kLengthEps / dim);
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const Parameters& parameters, const GatedDeltaNetShape& shape)
    : shape_(shape),
      channels_(channels_of(shape)),
      convolution_(parameters / "conv1d", channels_, shape.kernel),
      dt_bias_(parameters.get_f32("dt_bias", {shape.heads}, Init::ones())),
      rates_(parameters, shape.heads),
      norm_(parameters / "norm", shape.value_dim, shape.eps),
      out_proj_(parameters / "out_proj", shape.heads * shape.value_dim, shape.hidden, false) {
  const int64_t values = shape.heads * shape.value_dim;
  const auto add = [&](std::vector<Linear>& linears, const char* name, int64_t rows) {
    linears.emplace_back(parameters / name, shape.hidden, rows, false);
  };
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
  const Tensor read =
      with_states(q, k, v, decay, ops::sigmoid(given.b), {.tiled = shape_.tiled}, pass, layer);
  const Tensor out = convolution_.keep_past(read, inputs, pass, layer);
  const Tensor gate =
      ops::silu(graph::reshape(given.z, {batch, tokens, shape_.heads, shape_.value_dim}));
  return out_proj_(
      graph::reshape(ops::mul(norm_(out), gate), {batch, tokens, shape_.heads * shape_.value_dim}));
}

bool has_tiled_heads(const io::Json& config) {
  return io::get_bool(config, "linear_heads_tiled", false);
}

namespace {

constexpr std::string_view kPlace = ".linear_attn.", kFusedHeads = ".query_key_value.";

// What is behind ".linear_attn." in a name, or "query_key_value.…"; "" of other tensors.
std::string_view part_of(std::string_view name) {
  if (const size_t at = name.find(kFusedHeads); at != name.npos) return name.substr(at + 1);
  const size_t at = name.find(kPlace);
  return at == name.npos ? "" : name.substr(at + kPlace.size());
}

enum class HeadAxis { kNone, kRows, kLastRows, kColumns };

HeadAxis head_axis(std::string_view part) {
  const bool is_first = part.ends_with(".lora_A.weight");  // [rank, in]
  if (part.starts_with("out_proj.")) {
    return part.ends_with(".lora_B.weight") ? HeadAxis::kNone : HeadAxis::kColumns;
  }
  if (part.starts_with("conv1d.")) return HeadAxis::kLastRows;
  if (part.starts_with("in_proj_qkv.")) return is_first ? HeadAxis::kNone : HeadAxis::kLastRows;
  if (part.starts_with("in_proj_") || part.starts_with(kFusedHeads.substr(1)))
    return is_first ? HeadAxis::kNone : HeadAxis::kRows;
  return part == "A" || part == "A_log" || part == "dt_bias" ? HeadAxis::kRows : HeadAxis::kNone;
}

}  // namespace

bool has_value_heads(std::string_view name) {
  return head_axis(part_of(name)) != HeadAxis::kNone;
}

Array reorder_value_heads(const Array& tensor, std::string_view name, const io::Json& config,
                          bool to_tiled) {
  const auto size = [&](const char* key) { return io::get_int(config, key, 1, limits::kDim); };
  const bool fused = part_of(name).starts_with(kFusedHeads.substr(1));
  const int64_t key_heads = size(fused ? "num_attention_heads" : "linear_num_key_heads");
  const int64_t heads = fused ? 3 * key_heads : size("linear_num_value_heads");
  const int64_t group = heads / key_heads;
  // What does not fit is named by the model and by Parameters::check.
  if (group == 1 || heads % key_heads != 0 || tensor.elements() == 0) return tensor;
  const HeadAxis axis = head_axis(part_of(name));
  const bool by_columns = axis == HeadAxis::kColumns;
  const int64_t rows = tensor.shape()[0], columns = tensor.elements() / rows;
  const int64_t key_rows =
      axis == HeadAxis::kLastRows ? 2 * key_heads * size("linear_key_head_dim") : 0;
  const int64_t each = ((by_columns ? columns : rows) - key_rows) / heads;  // of a head
  if (each * heads + key_rows != (by_columns ? columns : rows)) return tensor;
  if (by_columns && each % info(tensor.dtype()).block_elements != 0) {
    return reorder_value_heads(float32_copy(tensor), name, config, to_tiled);
  }
  Array moved = Array::zeros(tensor.dtype(), tensor.shape());
  const auto row = static_cast<int64_t>(tensor.bytes()) / rows;
  const int64_t piece = by_columns ? row / heads : each * row, first = key_rows * row;
  std::copy_n(tensor.data(), first, moved.mutable_data());
  for (int64_t line = 0; line < (by_columns ? rows : 1); ++line) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t tiled = head % group * key_heads + head / group;
      const int64_t from = to_tiled ? head : tiled, to = to_tiled ? tiled : head;
      const int64_t start = first + line * row;
      std::copy_n(tensor.data() + start + from * piece, piece,
                  moved.mutable_data() + start + to * piece);
    }
  }
  return moved;
}

bool may_tile_heads(const io::Json& config) {
  return !has_fused_inputs(config);
}

}  // namespace lumen::nn
