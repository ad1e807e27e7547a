// The inputs that rope, kv_append, the attention operations and recurrences share: how they are
// checked, and what meanings make of them. Private to this room.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/graph/node.h"
#include "lib/graph/tensor.h"

namespace lumen::ops {

struct AttentionOptions;

// Throw the error of shape_error (cases.h) unless the position is int32 [1] or [batch], `batch`
// being that of the rows that the positions are for …
void require_position(const graph::Node& node, const graph::Node& position, int64_t batch);
// … and unless the slots, the last input if there are more than `inputs`, are int32 [batch];
// without slots, unless the cache has as many rows as the batch.
void require_cache_rows(const graph::Node& node, size_t inputs, int64_t cache_rows, int64_t batch);

// Aborts unless all slots are in [0, rows).
void check_slots(const graph::Operand& slots, int64_t rows);

// Of a recurrence that goes on the inputs from `first` on are the states before it, float32 [rows,
// …] with a last part as in `of_row`, the position, and slots or not. Throws the error of
// shape_error otherwise, which calls the extents `names`.
void require_states(const graph::Node& node, size_t first, const Shape& of_row, const char* names,
                    int64_t batch);

// Those inputs in the form of kernels, and from the options of an operation.
template <class Args>
void read_states(const graph::KernelCall& call, size_t first, Args& args) {
  const graph::Operand &before = call.inputs[first], &position = call.inputs[first + 1];
  args.before = before.as<const float>();
  args.position = position.as<const int32_t>();
  args.position_stride = position.shape[0] == 1 ? 0 : 1;
  if (call.inputs.size() == first + 2) return;
  check_slots(call.inputs.back(), before.shape[0]);
  args.slots = call.inputs.back().as<const int32_t>();
}
template <class Options>
void append_states(const Options& options, std::vector<graph::Tensor>& inputs) {
  if (!options.before.defined() && !options.position.defined()) return;
  inputs.push_back(options.before);
  inputs.push_back(options.position);
  if (options.slots.defined()) inputs.push_back(options.slots);
}

// Of a node whose inputs begin with q [batch, tokens, heads, dim], k and v [batch, kv_heads,
// positions, dim] and the position: checks these, and gives the type of q.
graph::TypedShape attention_type(const graph::Node& node);

// Its two products, and reading the keys and values.
graph::Cost attention_cost(const graph::Node& node);

// Its sizes and constants, as kernels::AttentionArgs or AttentionShape; what these point to is not
// set.
template <class Args>
Args attention_sizes(const graph::Node& node) {
  const Shape &q = node.inputs[0]->shape, &k = node.inputs[1]->shape;
  Args args{};
  args.batch = q[0];
  args.tokens = q[1];
  args.heads = q[2];
  args.kv_heads = k[1];
  args.head_dim = q[3];
  args.positions = k[2];
  args.causal = node.attrs.integer("causal") != 0;
  args.window = node.attrs.integer("window");
  args.scale = static_cast<float>(node.attrs.real("scale"));
  args.cap = static_cast<float>(node.attrs.real("cap"));
  args.max_bias = static_cast<float>(node.attrs.real("max_bias"));
  return args;
}

// position + 0 … n−1 as float32 [1 or batch, n]; exact below 2^24.
graph::Tensor positions_from(const graph::Tensor& position, int64_t n);

// The rows of a cache [slots, heads, context, dim] that batch rows use, as float32.
graph::Tensor cache_rows(const graph::Tensor& cache, const graph::Tensor& slots);

// q or its like [batch, tokens, heads, dim] as [batch, kv_heads, group, tokens, dim].
graph::Tensor grouped(const graph::Tensor& x, int64_t kv_heads);

// k or v as float32 [batch, kv_heads, 1, positions, dim].
graph::Tensor grouped_keys(const graph::Tensor& x);

// scale · q kᵀ, capped, [batch, kv_heads, group, tokens, positions].
graph::Tensor attention_scores(const graph::Attrs& attrs, const graph::Tensor& q,
                               const graph::Tensor& k);

// The same with linear biases, and with hidden positions at −1e30. `segments` may be undefined.
graph::Tensor visible_scores(const graph::Attrs& attrs, const graph::Tensor& q,
                             const graph::Tensor& k, const graph::Tensor& position,
                             const graph::Tensor& segments);

// What ops::attention is where a gradient is wanted, segments are given or weights are dropped.
graph::Tensor attention_for_training(const graph::Tensor& q, const graph::Tensor& k,
                                     const graph::Tensor& v, const graph::Tensor& position,
                                     const AttentionOptions& options);

// An int32 [2] for test cases.
graph::Tensor int_pair(int32_t first, int32_t second);

}  // namespace lumen::ops
