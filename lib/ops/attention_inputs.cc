#include "lib/ops/attention_inputs.h"

#include "lib/base/check.h"
#include "lib/base/strings.h"
#include "lib/graph/mixed_precision.h"
#include "lib/kernels/linear_bias.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

using graph::Node;
using graph::Operand;
using graph::reshape;

void require_position(const Node& node, const Node& position, int64_t batch) {
  if (position.dtype != DType::kI32 || position.shape.rank() != 1 ||
      (position.shape[0] != 1 && position.shape[0] != batch)) {
    shape_error(node, "the position must be int32 [1] or [batch]");
  }
}

void require_cache_rows(const Node& node, size_t inputs, int64_t cache_rows, int64_t batch) {
  if (node.inputs.size() == inputs) {
    if (cache_rows != batch) shape_error(node, "the cache has another batch");
    return;
  }
  const Node& slots = *node.inputs[inputs];
  if (slots.dtype != DType::kI32 || !(slots.shape == Shape{batch})) {
    shape_error(node, "the slots must be int32 [batch]");
  }
}

Tensor positions_from(const Tensor& position, int64_t n) {
  const Tensor first = graph::contiguous(position, DType::kF32);
  return add(reshape(first, {position.dim(0), 1}), graph::iota(n));
}

Tensor cache_rows(const Tensor& cache, const Tensor& slots) {
  const Tensor rows = graph::contiguous(cache, DType::kF32);
  const int64_t row = cache.dim(1) * cache.dim(2) * cache.dim(3);
  return reshape(embedding(reshape(rows, {cache.dim(0), row}), slots),
                 {slots.dim(0), cache.dim(1), cache.dim(2), cache.dim(3)});
}

Tensor int_pair(int32_t first, int32_t second) {
  const int32_t values[] = {first, second};
  return graph::constant(Array::from(std::span<const int32_t>(values), {2}));
}

void require_states(const Node& node, size_t first, const Shape& of_row, const char* names,
                    int64_t batch) {
  const Node& before = *node.inputs[first];
  Shape wanted = {before.shape.rank() > 0 ? before.shape[0] : 0};
  for (int axis = 0; axis < of_row.rank(); ++axis) wanted.push_back(of_row[axis]);
  if (before.dtype != DType::kF32 || !(before.shape == wanted)) {
    shape_error(node, str("the states must be float32 [rows, ", names, "]"));
  }
  require_position(node, *node.inputs[first + 1], batch);
  require_cache_rows(node, first + 2, before.shape[0], batch);
}

void check_slots(const Operand& slots, int64_t rows) {
  for (int64_t b = 0; b < slots.shape[0]; ++b) {
    const int32_t slot = slots.as<const int32_t>()[b];
    LUMEN_CHECK(slot >= 0 && slot < rows);
  }
}

graph::TypedShape attention_type(const Node& node) {
  const Node &q = *node.inputs[0], &k = *node.inputs[1], &v = *node.inputs[2];
  // Attention for training looks at what is narrow there itself.
  const bool types = (q.dtype == DType::kF32 && k.dtype == v.dtype) || graph::in_bf16(node);
  const bool fits = types && q.shape.rank() == 4 && k.shape.rank() == 4 && k.shape == v.shape &&
                    k.shape[3] == q.shape[3] && k.shape[1] > 0 && q.shape[2] % k.shape[1] == 0;
  if (!fits) {
    shape_error(node,
                "needs q [batch, tokens, heads, dim] and k, v [batch, kv_heads, positions, "
                "dim] with kv_heads dividing heads");
  }
  require_position(node, *node.inputs[3], q.shape[0]);
  require_cap(node, node.attrs.real("cap"));
  const double bias = node.attrs.real("max_bias");
  if (!(bias >= 0 && bias <= 1e3) || (bias > 0 && node.attrs.real("cap") > 0)) {
    shape_error(node,
                str("max_bias ", bias, " must be from 0 to 1000, and 0 where there is a cap"));
  }
  return {DType::kF32, q.shape};
}

graph::Cost attention_cost(const Node& node) {
  const Node &q = *node.inputs[0], &k = *node.inputs[1];
  const double pairs = static_cast<double>(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]);
  return {4 * pairs * static_cast<double>(q.shape[3]),
          2 * static_cast<double>(row_bytes(k.dtype, k.shape.elements()))};
}

Tensor grouped(const Tensor& x, int64_t kv_heads) {
  const Shape shape = {x.dim(0), x.dim(1), kv_heads, x.dim(2) / kv_heads, x.dim(3)};
  return graph::permute(reshape(x, shape), {0, 2, 3, 1, 4});
}

Tensor grouped_keys(const Tensor& x) {
  return reshape(graph::contiguous(x, DType::kF32), {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)});
}

Tensor attention_scores(const graph::Attrs& attrs, const Tensor& q, const Tensor& k) {
  const Tensor scale = graph::scalar(static_cast<float>(attrs.real("scale")));
  const Tensor keys = graph::transpose(grouped_keys(k), -1, -2);
  return soft_cap(mul(matmul(grouped(q, k.dim(1)), keys), scale), attrs.real("cap"));
}

namespace {

// slope(h) · (p − position of the query), [1 or batch, kv_heads, group, tokens, positions].
Tensor linear_bias(double max_bias, const Tensor& q, const Tensor& k, const Tensor& at) {
  const int64_t heads = q.dim(2), kv_heads = k.dim(1);
  std::vector<float> slopes;
  for (int64_t h = 0; h < heads; ++h) {
    slopes.push_back(kernels::bias_slope(heads, static_cast<float>(max_bias), h));
  }
  const Tensor slope = graph::constant(slopes, {1, kv_heads, heads / kv_heads, 1, 1});
  return mul(slope, sub(graph::iota(k.dim(2)), at));
}

}  // namespace

Tensor visible_scores(const graph::Attrs& attrs, const Tensor& q, const Tensor& k,
                      const Tensor& position, const Tensor& segments) {
  const int64_t batch = q.dim(0), tokens = q.dim(1), positions = k.dim(2);
  const Tensor at = reshape(positions_from(position, tokens), {position.dim(0), 1, 1, tokens, 1});
  Tensor scores = attention_scores(attrs, q, k), visible;
  if (const double max_bias = attrs.real("max_bias"); max_bias != 0) {
    scores = add(scores, linear_bias(max_bias, q, k, at));
  }
  if (attrs.integer("causal")) {
    const Tensor key = graph::iota(positions);
    visible = sub(graph::scalar(1), less_than(at, key));
    if (const int64_t window = attrs.integer("window")) {
      visible = mul(visible, less_than(sub(at, graph::scalar(static_cast<float>(window))), key));
    }
    if (const int64_t chunk = attrs.integer("chunk")) {
      const Tensor first = sub(at, mod(at, static_cast<double>(chunk)));
      visible = mul(visible, sub(graph::scalar(1), less_than(key, first)));
    }
  }
  if (segments.defined()) {
    const Tensor own = graph::contiguous(segments, DType::kF32);
    const Tensor same =
        equal(reshape(own, {batch, 1, 1, tokens, 1}), reshape(own, {batch, 1, 1, 1, positions}));
    visible = visible.defined() ? mul(visible, same) : same;
  }
  if (!visible.defined()) return scores;
  const Tensor hidden = mul(sub(visible, graph::scalar(1)), graph::scalar(1e30f));
  return add(mul(scores, visible), hidden);
}

}  // namespace lumen::ops
