#include "lib/nn/gated_delta_net.h"

#include <algorithm>
#include <cmath>

#include "lib/base/limits.h"
#include "lib/nn/decoder.h"

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

// Whether a token at t and the one at t − distance are of one document: float32 [batch, tokens, 1].
// 0 where there is none.
Tensor joined(const Tensor& segments, int64_t distance) {
  const int64_t batch = segments.dim(0), tokens = segments.dim(1);
  if (distance >= tokens) return ops::zeros({batch, tokens, 1});
  const Tensor own = graph::contiguous(segments, DType::kF32);
  const Tensor same = ops::equal(graph::slice(own, 1, distance, tokens),
                                 graph::slice(own, 1, 0, tokens - distance));
  return graph::reshape(graph::pad(same, 1, distance, 0), {batch, tokens, 1});
}

}  // namespace

GatedDeltaNet::GatedDeltaNet(const Parameters& parameters, const GatedDeltaNetShape& shape)
    : shape_(shape),
      channels_(channels_of(shape)),
      in_proj_qkv_(parameters / "in_proj_qkv", shape.hidden, channels_, false),
      in_proj_z_(parameters / "in_proj_z", shape.hidden, shape.heads * shape.value_dim, false),
      in_proj_b_(parameters / "in_proj_b", shape.hidden, shape.heads, false),
      in_proj_a_(parameters / "in_proj_a", shape.hidden, shape.heads, false),
      taps_((parameters / "conv1d")
                .get_f32("weight", {channels_, 1, shape.kernel}, Init::fan_in_uniform())),
      dt_bias_(parameters.get_f32("dt_bias", {shape.heads}, Init::ones())),
      norm_(parameters / "norm", shape.value_dim, shape.eps),
      out_proj_(parameters / "out_proj", shape.heads * shape.value_dim, shape.hidden, false) {
  if (parameters.has("A")) {
    a_ = parameters.get_f32("A", {shape.heads});
  } else {
    log_a_ = parameters.get_f32("A_log", {shape.heads}, Init::log_uniform(16));
  }
}

KvCacheShape::DeltaNets GatedDeltaNet::cache_shape(const GatedDeltaNetShape& shape,
                                                   int64_t layers) {
  return {layers,      shape.kernel - 1, channels_of(shape),
          shape.heads, shape.key_dim,    shape.value_dim};
}

Tensor GatedDeltaNet::past_inputs(const Pass& pass, int64_t layer, int64_t batch) const {
  const Shape past = {batch, shape_.kernel - 1, channels_};
  if (pass.cache == nullptr) return ops::zeros(past);
  const Tensor& memory = pass.cache->past_inputs(layer);
  const Tensor table = graph::reshape(memory, {memory.dim(0), past[1] * past[2]});
  const Tensor rows = pass.slots().defined() ? ops::embedding(table, pass.slots()) : table;
  // Rows that were never written may hold anything.
  const Tensor begun =
      ops::less_than(graph::scalar(0), graph::contiguous(pass.position, DType::kF32));
  return ops::where(graph::reshape(begun, {pass.position.dim(0), 1, 1}), graph::reshape(rows, past),
                    graph::scalar(0));
}

Tensor GatedDeltaNet::convolved(const Tensor& inputs, const Pass& pass) const {
  const int64_t past = shape_.kernel - 1, tokens = inputs.dim(1) - past;
  const Tensor taps = graph::contiguous(graph::permute(taps_, {2, 1, 0}));  // a row for each
  Tensor sum;
  for (int64_t tap = 0; tap < shape_.kernel; ++tap) {
    const Tensor weight = graph::reshape(graph::slice(taps, 0, tap, tap + 1), {channels_});
    Tensor term = ops::mul(graph::slice(inputs, 1, tap, tap + tokens), weight);
    if (pass.segments.defined() && tap < past) {
      term = ops::mul(term, joined(pass.segments, past - tap));
    }
    sum = sum.defined() ? ops::add(sum, term) : term;
  }
  return sum;
}

Tensor GatedDeltaNet::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const int64_t batch = x.dim(0), tokens = x.dim(1), past = shape_.kernel - 1;
  const Tensor qkv = in_proj_qkv_(x), z = in_proj_z_(x), b = in_proj_b_(x), a = in_proj_a_(x);
  const Tensor both[] = {past_inputs(pass, layer, batch), qkv};
  const Tensor inputs = ops::concat(both, 1);
  const Tensor mixed = ops::silu(convolved(inputs, pass));
  const int64_t keys = shape_.key_heads * shape_.key_dim;
  const auto in_heads = [&](int64_t first, int64_t heads, int64_t dim) {
    return graph::reshape(graph::slice(mixed, 2, first, first + heads * dim),
                          {batch, tokens, heads, dim});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(shape_.key_dim));
  const Tensor q = unit_rows(in_heads(0, shape_.key_heads, shape_.key_dim), scale);
  const Tensor k = unit_rows(in_heads(keys, shape_.key_heads, shape_.key_dim), 1);
  const Tensor v = in_heads(2 * keys, shape_.heads, shape_.value_dim);
  const Tensor rate = log_a_.defined() ? ops::neg(ops::exp(log_a_)) : a_;
  Tensor decay = ops::exp(ops::mul(ops::softplus(ops::add(a, dt_bias_)), rate));
  // A document begins with an empty state.
  if (pass.segments.defined()) decay = ops::mul(decay, joined(pass.segments, 1));

  ops::DeltaRuleOptions options = {.tiled = shape_.tiled};
  if (pass.cache) {
    options.before = pass.cache->matrices(layer);
    options.position = pass.position;
    options.slots = pass.slots();
  }
  const ops::DeltaRuleResult result =
      ops::gated_delta_rule(q, k, v, decay, ops::sigmoid(b), options);
  Tensor out = result.out;
  if (pass.cache) {
    const Tensor first = graph::constant(Array::zeros(DType::kI32, {1}));
    const auto keep = [&](const Tensor& memory, const Tensor& rows) {
      out = graph::after(out, ops::kv_append(memory, rows, first, pass.slots()));
    };
    keep(pass.cache->matrices(layer), graph::permute(result.state, {0, 2, 1, 3}));
    keep(pass.cache->past_inputs(layer),
         graph::reshape(graph::slice(inputs, 1, tokens, tokens + past),
                        {batch, past, 1, channels_}));
  }
  const Tensor gate = ops::silu(graph::reshape(z, {batch, tokens, shape_.heads, shape_.value_dim}));
  return out_proj_(
      graph::reshape(ops::mul(norm_(out), gate), {batch, tokens, shape_.heads * shape_.value_dim}));
}

bool has_tiled_heads(const io::Json& config) {
  return io::get_bool(config, "linear_heads_tiled", false);
}

namespace {

constexpr std::string_view kPlace = ".linear_attn.";

// What is behind ".linear_attn." in a name; "" of other tensors.
std::string_view part_of(std::string_view name) {
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
  if (part.starts_with("in_proj_")) return is_first ? HeadAxis::kNone : HeadAxis::kRows;
  return part == "A" || part == "A_log" || part == "dt_bias" ? HeadAxis::kRows : HeadAxis::kNone;
}

}  // namespace

bool has_value_heads(std::string_view name) {
  return head_axis(part_of(name)) != HeadAxis::kNone;
}

Array reorder_value_heads(const Array& tensor, std::string_view name, const io::Json& config,
                          bool to_tiled) {
  const auto size = [&](const char* key) { return io::get_int(config, key, 1, limits::kDim); };
  const int64_t heads = size("linear_num_value_heads"), key_heads = size("linear_num_key_heads");
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

}  // namespace lumen::nn
