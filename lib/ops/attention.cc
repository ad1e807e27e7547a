// Attention with rotary positions and a KV cache.
#include "lib/kernels/attention.h"

#include "lib/base/error.h"
#include "lib/kernels/attention_backward.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/rope.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kRopeTable, kRope, kKvAppend, kAttention, kAttentionTraining,
    kAttentionBackward;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::Operand;
using graph::record;
using graph::reshape;
using graph::slice;
using Inputs = std::span<const Tensor>;

// `batch`: of the rows that the positions are for.
void require_position(const Node& node, const Node& position, int64_t batch) {
  if (position.dtype != DType::kI32 || position.shape.rank() != 1 ||
      (position.shape[0] != 1 && position.shape[0] != batch)) {
    shape_error(node, "the position must be int32 [1] or [batch]");
  }
}

// The slots, if given, are the last input.
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

// position + 0 … n−1 as float32 [1 or batch, n]; exact below 2^24.
Tensor positions_from(const Tensor& position, int64_t n) {
  const Tensor first = graph::contiguous(position, DType::kF32);
  return add(reshape(first, {position.dim(0), 1}), graph::iota(n));
}

// The rows of a cache [slots, heads, context, dim] that batch rows use, as float32.
Tensor cache_rows(const Tensor& cache, const Tensor& slots) {
  const Tensor rows = graph::contiguous(cache, DType::kF32);
  const int64_t row = cache.dim(1) * cache.dim(2) * cache.dim(3);
  return reshape(embedding(reshape(rows, {cache.dim(0), row}), slots),
                 {slots.dim(0), cache.dim(1), cache.dim(2), cache.dim(3)});
}

// For test cases.
Tensor int_pair(int32_t first, int32_t second) {
  const int32_t values[] = {first, second};
  return graph::constant(Array::from(std::span<const int32_t>(values), {2}));
}

void check_slots(const Operand& slots, int64_t rows) {
  for (int64_t b = 0; b < slots.shape[0]; ++b) {
    const int32_t slot = slots.as<const int32_t>()[b];
    LUMEN_CHECK(slot >= 0 && slot < rows);
  }
}

// --- rope_table --------------------------------------------------------------------------------

graph::TypedShape infer_rope_table(const Node& node) {
  const Node &position = *node.inputs[0], &frequencies = *node.inputs[1];
  require_position(node, position, position.shape.rank() == 1 ? position.shape[0] : 1);
  if (frequencies.dtype != DType::kF32 || frequencies.shape.rank() != 1) {
    shape_error(node, "frequencies must be float32 [half]");
  }
  const int64_t rows = position.shape[0] * node.attrs.integer("tokens");
  return {DType::kF32, {rows, 2, frequencies.shape[0]}};
}

void run_rope_table(const KernelCall& call) {
  const Operand &position = call.inputs[0], &frequencies = call.inputs[1];
  const int64_t tokens = call.node->attrs.integer("tokens"), half = frequencies.shape[0];
  for (int64_t b = 0; b < position.shape[0]; ++b) {
    kernels::rope_table(position.as<const int32_t>()[b], tokens, frequencies.as<const float>(),
                        half, static_cast<float>(call.node->attrs.real("factor")),
                        call.output.as<float>() + b * tokens * 2 * half);
  }
}

Tensor rope_table_meaning(const Node& node, Inputs in) {
  const int64_t rows = node.shape[0], half = in[1].dim(0);
  const Tensor positions = positions_from(in[0], node.attrs.integer("tokens"));
  const Tensor angles = mul(reshape(positions, {rows, 1}), in[1]);
  const Tensor parts[] = {reshape(cos(angles), {rows, 1, half}),
                          reshape(sin(angles), {rows, 1, half})};
  return mul(concat(parts, 1), graph::scalar(static_cast<float>(node.attrs.real("factor"))));
}

std::vector<OpCase> rope_table_cases() {
  auto build = [](Inputs in) { return rope_table(in[0], in[1], 5, 1.5); };
  return {{"half 4", {i32({1}), f32({4})}, build, 0, 1, 2e-6},
          {"half 33", {i32({1}), f32({33})}, build, 0, 1, 2e-6},
          {"a position per row", {i32({3}), f32({4})}, build, 0, 1, 2e-6}};
}

// --- rope --------------------------------------------------------------------------------------

graph::TypedShape infer_rope(const Node& node) {
  const Node &x = *node.inputs[0], &table = *node.inputs[1];
  const bool fits = x.dtype == DType::kF32 && x.shape.rank() == 4 && table.shape.rank() == 3 &&
                    (table.shape[0] == x.shape[1] || table.shape[0] == x.shape[0] * x.shape[1]) &&
                    table.shape[1] == 2 && 2 * table.shape[2] <= x.shape[3];
  if (!fits) {
    shape_error(node, "needs [batch, tokens, heads, head_dim] and [tokens or all rows, 2, half]");
  }
  return {DType::kF32, x.shape};
}

void run_rope(const KernelCall& call) {
  const Operand &x = call.inputs[0], &table = call.inputs[1];
  const bool shared = table.shape[0] == x.shape[1];
  kernels::rope(*call.pool, {.batch = x.shape[0],
                             .tokens = x.shape[1],
                             .heads = x.shape[2],
                             .head_dim = x.shape[3],
                             .half_dim = table.shape[2],
                             .x = x.as<const float>(),
                             .batch_stride = x.strides[0],
                             .token_stride = x.strides[1],
                             .head_stride = x.strides[2],
                             .cos_sin = table.as<const float>(),
                             .interleaved = call.node->attrs.integer("interleaved") != 0,
                             .y = call.output.as<float>(),
                             .inverse = call.node->attrs.integer("inverse") != 0,
                             .cos_sin_batch_stride = shared ? 0 : x.shape[1] * 2 * table.shape[2]});
}

Tensor rope_meaning(const Node& node, Inputs in) {
  const Tensor &x = in[0], &table = in[1];
  const int64_t tokens = x.dim(1), half = table.dim(2), rest = x.dim(3) - 2 * half;
  const int64_t tables = table.dim(0) / tokens;
  const Tensor cosine = reshape(slice(table, 1, 0, 1), {tables, tokens, 1, half});
  Tensor sine = reshape(slice(table, 1, 1, 2), {tables, tokens, 1, half});
  if (node.attrs.integer("inverse")) sine = neg(sine);
  const bool interleaved = node.attrs.integer("interleaved") != 0;
  Tensor first, second;
  const Shape pairs = {x.dim(0), tokens, x.dim(2), half, 2};
  const Shape flat = {x.dim(0), tokens, x.dim(2), half};
  if (interleaved) {
    const Tensor paired = reshape(slice(x, 3, 0, 2 * half), pairs);
    first = reshape(slice(paired, 4, 0, 1), flat);
    second = reshape(slice(paired, 4, 1, 2), flat);
  } else {
    first = slice(x, 3, 0, half);
    second = slice(x, 3, half, 2 * half);
  }
  const Tensor a = sub(mul(first, cosine), mul(second, sine));
  const Tensor b = add(mul(second, cosine), mul(first, sine));
  std::vector<Tensor> parts;
  if (interleaved) {
    Shape column = flat;
    column.push_back(1);
    const Tensor columns[] = {reshape(a, column), reshape(b, column)};
    parts.push_back(reshape(concat(columns, 4), {x.dim(0), tokens, x.dim(2), 2 * half}));
  } else {
    parts = {a, b};
  }
  if (rest > 0) parts.push_back(slice(x, 3, 2 * half, x.dim(3)));
  return concat(parts, 3);
}

// A rotation's transpose is its inverse.
std::vector<Tensor> grad_rope(const graph::GradCall& call) {
  if (call.inputs[1].requires_grad()) {
    fail(ErrorKind::kUnsupported, "rope: the table of angles has no gradient");
  }
  const graph::Attrs& attrs = call.node.attrs;
  return {record(kRope, {call.dy, call.inputs[1]},
                 {{"interleaved", attrs.integer("interleaved")},
                  {"inverse", 1 - attrs.integer("inverse")}}),
          Tensor()};
}

std::vector<OpCase> rope_cases() {
  std::vector<OpCase> cases;
  for (bool interleaved : {false, true}) {
    auto build = [interleaved](Inputs in) { return rope(in[0], in[1], interleaved); };
    const char* layout = interleaved ? "interleaved" : "half-split";
    cases.push_back({layout, {f32({2, 3, 4, 16}), f32({3, 2, 8})}, build, -2, 2, 2e-6});
    cases.push_back(
        {str(layout, " odd"), {f32({1, 5, 1, 10}), f32({5, 2, 5})}, build, -2, 2, 2e-6});
    cases.push_back(
        {str(layout, " partial"), {f32({1, 2, 2, 12}), f32({2, 2, 4})}, build, -2, 2, 2e-6});
    cases.push_back(
        {str(layout, " table per row"), {f32({3, 2, 2, 8}), f32({6, 2, 4})}, build, -2, 2, 2e-6});
    cases.push_back({str(layout, " inverse"),
                     {f32({1, 2, 2, 12}), f32({2, 2, 5})},
                     [interleaved](Inputs in) {
                       return record(
                           kRope, in,
                           {{"interleaved", int64_t{interleaved}}, {"inverse", int64_t{1}}});
                     },
                     -2,
                     2,
                     2e-6});
    cases.push_back({str(layout, " slice of qkv"),
                     {f32({2, 3, 40}), f32({3, 2, 4})},
                     [build](Inputs in) {
                       const Tensor q = reshape(slice(in[0], 2, 8, 32), {2, 3, 3, 8});
                       const Tensor inputs[] = {q, in[1]};
                       return build(inputs);
                     },
                     -2,
                     2,
                     2e-6});
  }
  return cases;
}

// --- kv_append ---------------------------------------------------------------------------------

graph::TypedShape infer_kv_append(const Node& node) {
  const Node &cache = *node.inputs[0], &x = *node.inputs[1];
  const bool fits = cache.shape.rank() == 4 && x.shape.rank() == 4 && x.dtype == DType::kF32 &&
                    cache.shape[1] == x.shape[2] && cache.shape[3] == x.shape[3] &&
                    x.shape[1] <= cache.shape[2];
  if (!fits) {
    shape_error(node, "needs [batch, heads, context, dim] and [batch, tokens, heads, dim]");
  }
  require_position(node, *node.inputs[2], x.shape[0]);
  require_cache_rows(node, 3, cache.shape[0], x.shape[0]);
  return {cache.dtype, cache.shape};
}

void run_kv_append(const KernelCall& call) {
  const Operand &cache = call.output, &x = call.inputs[1], &position = call.inputs[2];
  const Operand* slots = call.inputs.size() > 3 ? &call.inputs[3] : nullptr;
  if (slots) check_slots(*slots, cache.shape[0]);
  const int64_t tokens = x.shape[1], heads = x.shape[2], dim = x.shape[3];
  const int64_t row = row_bytes(cache.dtype, dim);
  auto append = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / heads, head = i % heads;
      const int64_t start = position.as<const int32_t>()[position.shape[0] == 1 ? 0 : batch];
      LUMEN_CHECK(start >= 0 && start + tokens <= cache.shape[2]);
      const int64_t slot = slots ? slots->as<const int32_t>()[batch] : batch;
      std::byte* to = cache.data + ((slot * heads + head) * cache.shape[2] + start) * row;
      for (int64_t t = 0; t < tokens; ++t) {
        const float* from =
            x.as<const float>() + batch * x.strides[0] + t * x.strides[1] + head * x.strides[2];
        kernels::from_float(cache.dtype, from, to + t * row, dim);
      }
    }
  };
  // A few rows are not worth waking a thread for.
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, tokens * dim));
  call.pool->parallel_for(x.shape[0] * heads, grain, append);
}

// Old rows are kept where no new one goes: cache·(1 − Σ one_hot) + one_hot · x, for the positions
// of each row and then, if there are slots, for the rows of the cache.
Tensor kv_append_meaning(const Node& node, Inputs in) {
  const int64_t context = node.shape[2], tokens = in[1].dim(1), batch = in[1].dim(0);
  const Tensor at = positions_from(in[2], tokens);
  const Tensor one_hot =
      equal(reshape(graph::iota(context), {context, 1}),
            reshape(at, {at.dim(0), 1, 1, tokens}));  // [1 or batch, 1, context, tokens]
  const Tensor added = matmul(one_hot, graph::permute(in[1], {0, 2, 1, 3}));
  const Tensor keep = sub(graph::scalar(1), sum(one_hot, -1));  // [1 or batch, 1, context, 1]
  const Tensor cache = graph::contiguous(in[0], DType::kF32);
  if (in.size() == 3) return graph::contiguous(add(mul(cache, keep), added), node.dtype);
  const Tensor rows = add(mul(cache_rows(cache, in[3]), keep), added);
  const Tensor slots = reshape(graph::contiguous(in[3], DType::kF32), {1, batch});
  const Tensor chosen = equal(reshape(graph::iota(node.shape[0]), {node.shape[0], 1}), slots);
  const Tensor kept = sub(graph::scalar(1), sum(chosen, 1));  // [slots, 1]
  const Tensor flat_cache = reshape(cache, {node.shape[0], -1});
  const Tensor moved = matmul(chosen, reshape(rows, {batch, -1}));
  return graph::contiguous(reshape(add(mul(flat_cache, kept), moved), node.shape), node.dtype);
}

// The old memory stays as it is: the meaning is computed from it.
Tensor copied_state(const Tensor& memory) {
  Array copy = Array::zeros(memory.dtype(), memory.shape());
  std::copy_n(memory.eval().data(), copy.bytes(), copy.mutable_data());
  return graph::state(copy, "cache");
}

std::vector<OpCase> kv_append_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    cases.push_back({std::string(name(dtype)),
                     {{dtype, {2, 3, 9, 32}}, f32({2, 4, 3, 32}), i32({1})},
                     [](Inputs in) { return kv_append(copied_state(in[0]), in[1], in[2]); },
                     -2,
                     2,
                     dtype == DType::kQ8_0 ? 1e-2 : 1e-6});
  }
  cases.push_back({"a position per row",
                   {f32({2, 3, 9, 8}), f32({2, 4, 3, 8})},
                   [](Inputs in) {
                     const Tensor at = int_pair(5, 0);
                     return kv_append(copied_state(in[0]), in[1], at);
                   },
                   -2,
                   2,
                   1e-6});
  cases.push_back({"slots",
                   {f32({4, 3, 9, 8}), f32({2, 2, 3, 8})},
                   [](Inputs in) {
                     const Tensor at = int_pair(5, 0);
                     const Tensor slots = int_pair(3, 1);
                     return kv_append(copied_state(in[0]), in[1], at, slots);
                   },
                   -2,
                   2,
                   1e-6});
  return cases;
}

// --- attention ---------------------------------------------------------------------------------

graph::TypedShape infer_attention(const Node& node) {
  const Node &q = *node.inputs[0], &k = *node.inputs[1], &v = *node.inputs[2];
  const bool fits = q.dtype == DType::kF32 && q.shape.rank() == 4 && k.shape.rank() == 4 &&
                    k.shape == v.shape && k.dtype == v.dtype && k.shape[3] == q.shape[3] &&
                    k.shape[1] > 0 && q.shape[2] % k.shape[1] == 0;
  if (!fits) {
    shape_error(node,
                "needs q [batch, tokens, heads, dim] and k, v [batch, kv_heads, positions, "
                "dim] with kv_heads dividing heads");
  }
  require_position(node, *node.inputs[3], q.shape[0]);
  return {DType::kF32, q.shape};
}

graph::TypedShape infer_cached_attention(const Node& node) {
  const graph::TypedShape result = infer_attention(node);
  require_cache_rows(node, 4, node.inputs[1]->shape[0], result.shape[0]);
  return result;
}

kernels::KvView kv_view(const Operand& x) {
  auto bytes = [&](int axis) { return row_bytes(x.dtype, x.strides[axis]); };
  return {x.data, x.dtype, bytes(0), bytes(1), bytes(2)};
}

// Sizes and constants, as AttentionArgs or AttentionShape; what these point to is not set.
template <class Args>
Args attention_sizes(const Node& node) {
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
  return args;
}

void run_attention(const KernelCall& call) {
  const Operand &q = call.inputs[0], &position = call.inputs[3];
  auto args = attention_sizes<kernels::AttentionArgs>(*call.node);
  args.start = position.as<const int32_t>();
  args.start_stride = position.shape[0] == 1 ? 0 : 1;
  if (call.inputs.size() > 4) {
    check_slots(call.inputs[4], call.inputs[1].shape[0]);
    args.slots = call.inputs[4].as<const int32_t>();
  }
  args.q = q.as<const float>();
  args.q_batch_stride = q.strides[0];
  args.q_token_stride = q.strides[1];
  args.q_head_stride = q.strides[2];
  args.k = kv_view(call.inputs[1]);
  args.v = kv_view(call.inputs[2]);
  args.out = call.output.as<float>();
  args.workspace = call.workspace;
  kernels::attention(*call.pool, args);
}

size_t attention_workspace(const Node& node, int threads) {
  return kernels::attention_workspace_bytes(attention_sizes<kernels::AttentionArgs>(node), threads);
}

// q or its like [batch, tokens, heads, dim] as [batch, kv_heads, group, tokens, dim].
Tensor grouped(const Tensor& x, int64_t kv_heads) {
  const Shape shape = {x.dim(0), x.dim(1), kv_heads, x.dim(2) / kv_heads, x.dim(3)};
  return graph::permute(reshape(x, shape), {0, 2, 3, 1, 4});
}

// k or v as float32 [batch, kv_heads, 1, positions, dim].
Tensor grouped_keys(const Tensor& x) {
  return reshape(graph::contiguous(x, DType::kF32), {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)});
}

// scale · q kᵀ [batch, kv_heads, group, tokens, positions], hidden positions at −1e30.
Tensor visible_scores(const graph::Attrs& attrs, const Tensor& q, const Tensor& k,
                      const Tensor& position, const Tensor& segments) {
  const int64_t batch = q.dim(0), tokens = q.dim(1), positions = k.dim(2);
  const Tensor scale = graph::scalar(static_cast<float>(attrs.real("scale")));
  const Tensor keys = graph::transpose(grouped_keys(k), -1, -2);
  const Tensor scores = mul(matmul(grouped(q, k.dim(1)), keys), scale);
  Tensor visible;
  if (attrs.integer("causal")) {
    const Tensor at = reshape(positions_from(position, tokens), {position.dim(0), 1, 1, tokens, 1});
    const Tensor key = graph::iota(positions);
    visible = sub(graph::scalar(1), less_than(at, key));
    if (const int64_t window = attrs.integer("window")) {
      visible = mul(visible, less_than(sub(at, graph::scalar(static_cast<float>(window))), key));
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

Tensor attention_meaning(const Node& node, Inputs in) {
  const bool slots = in.size() > 4;
  const Tensor k = slots ? cache_rows(in[1], in[4]) : in[1];
  const Tensor v = slots ? cache_rows(in[2], in[4]) : in[2];
  const Tensor scores = visible_scores(node.attrs, in[0], k, in[3], {});
  const Tensor out = matmul(softmax(scores), grouped_keys(v));
  return reshape(graph::permute(out, {0, 3, 1, 2, 4}), node.shape);
}

graph::Cost attention_cost(const Node& node) {
  const Node &q = *node.inputs[0], &k = *node.inputs[1];
  const double pairs = static_cast<double>(q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]);
  return {4 * pairs * static_cast<double>(q.shape[3]),
          2 * static_cast<double>(row_bytes(k.dtype, k.shape.elements()))};
}

// Five products instead of two.
graph::Cost attention_backward_cost(const Node& node) {
  const graph::Cost forward = attention_cost(node);
  return {2.5 * forward.flops, 3 * forward.bytes};
}

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  auto add_case = [&](std::string label, Shape q, graph::TypedShape kv, AttentionOptions options,
                      double tolerance) {
    options.scale = 0.3;
    cases.push_back(
        {std::move(label),
         {{DType::kF32, q}, kv, kv, i32({1})},
         [options](Inputs in) { return attention(in[0], in[1], in[2], in[3], options); },
         -1,
         1,
         tolerance});
  };
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    add_case(str(name(dtype), " decode"), {2, 1, 6, 32}, {dtype, {2, 2, 9, 32}}, {}, 5e-6);
    add_case(str(name(dtype), " prefill"), {1, 5, 4, 32}, {dtype, {1, 4, 9, 32}}, {}, 5e-6);
  }
  add_case("window", {1, 6, 2, 8}, f32({1, 1, 9, 8}), {.window = 3}, 5e-6);
  add_case("not causal", {1, 3, 2, 8}, f32({1, 2, 7, 8}), {.causal = false}, 5e-6);
  add_case("odd head_dim", {1, 4, 3, 7}, f32({1, 3, 8, 7}), {}, 5e-6);
  for (const int64_t tokens : {1, 3}) {
    cases.push_back({str("slots, ", tokens, " tokens"),
                     {f32({2, tokens, 4, 8}), f32({3, 2, 9, 8}), f32({3, 2, 9, 8})},
                     [](Inputs in) {
                       const Tensor at = int_pair(5, 0);
                       AttentionOptions options;
                       options.slots = int_pair(2, 1);
                       return attention(in[0], in[1], in[2], at, options);
                     },
                     -1,
                     1,
                     5e-6});
  }
  cases.push_back({"keys as a view",
                   {f32({1, 4, 2, 8}), f32({1, 4, 2, 8}), f32({1, 4, 2, 8})},
                   [](Inputs in) {
                     const Tensor zero = graph::constant(Array::zeros(DType::kI32, {1}));
                     return attention(in[0], graph::permute(in[1], {0, 2, 1, 3}),
                                      graph::permute(in[2], {0, 2, 1, 3}), zero, {});
                   },
                   -1,
                   1,
                   5e-6});
  return cases;
}

// --- attention_training: q, k, v, position, segments or not → [out | lse] ----------------------

// Of attention_training and, whose first four inputs are the same, attention_backward.
void require_training_inputs(const Node& node) {
  infer_attention(node);
  const Shape &q = node.inputs[0]->shape, &k = node.inputs[1]->shape;
  if (k[0] != q[0] || !(node.inputs[3]->shape == Shape{1})) {
    shape_error(node, "needs as many batch rows of keys as of queries, and position [1]");
  }
  if (node.inputs[1]->dtype != DType::kF32) shape_error(node, "keys and values must be float32");
  if (!node.attrs.integer("segments")) return;
  const Node& segments = *node.inputs.back();
  if (segments.dtype != DType::kI32 || !(segments.shape == Shape{q[0], q[1]}) || q[1] != k[2]) {
    shape_error(node, "segments must be int32 [batch, tokens], with as many keys as tokens");
  }
}

Shape lse_shape(const Shape& q) {
  return {q[0], q[2], q[1]};
}
Shape transposed_keys(const Shape& k) {
  return {k[0], k[2], k[1], k[3]};
}

graph::TypedShape infer_attention_training(const Node& node) {
  require_training_inputs(node);
  const Shape& q = node.inputs[0]->shape;
  return {DType::kF32, {q.elements() + lse_shape(q).elements()}};
}

kernels::HeadRows rows_of(const Operand& x) {
  return {x.as<const float>(), x.strides[0], x.strides[1], x.strides[2]};
}
kernels::HeadRows keys_of(const Operand& x) {
  return {x.as<const float>(), x.strides[0], x.strides[2], x.strides[1]};
}

kernels::AttentionShape training_shape(const KernelCall& call) {
  auto shape = attention_sizes<kernels::AttentionShape>(*call.node);
  shape.start = call.inputs[3].as<const int32_t>()[0];
  shape.q = rows_of(call.inputs[0]);
  shape.k = keys_of(call.inputs[1]);
  shape.v = keys_of(call.inputs[2]);
  if (call.node->attrs.integer("segments")) {
    shape.segments = call.inputs.back().as<const int32_t>();
    shape.segment_stride = call.inputs.back().strides[0];
  }
  return shape;
}

void run_attention_training(const KernelCall& call) {
  float* out = call.output.as<float>();
  kernels::attention_forward(*call.pool, training_shape(call), out,
                             out + call.inputs[0].shape.elements(), call.workspace);
}

size_t attention_training_workspace(const Node& node, int threads) {
  return kernels::attention_training_workspace_bytes(attention_sizes<kernels::AttentionShape>(node),
                                                     threads);
}

Tensor attention_training_meaning(const Node& node, Inputs in) {
  const Tensor segments = node.attrs.integer("segments") ? in[4] : Tensor();
  const Tensor scores = visible_scores(node.attrs, in[0], in[1], in[3], segments);
  const Tensor top = max(scores, -1), weights = exp(sub(scores, top)), total = sum(weights, -1);
  const Tensor out = matmul(div(weights, total), grouped_keys(in[2]));
  const Tensor parts[] = {flatten(graph::permute(out, {0, 3, 1, 2, 4})),
                          flatten(add(top, log(total)))};
  return concat(parts, 0);
}

std::vector<Tensor> grad_attention_training(const graph::GradCall& call) {
  const Shape &q = call.inputs[0].shape(), &k = call.inputs[1].shape();
  const auto d = graph::unpack(call.dy, {q, lse_shape(q)});
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.begin() + 4);
  inputs.insert(inputs.end(), {call.output, d[0], d[1]});
  if (call.inputs.size() > 4) inputs.push_back(call.inputs[4]);
  const Tensor all = record(kAttentionBackward, inputs, call.node.attrs);
  const auto parts = graph::unpack(all, {q, transposed_keys(k), transposed_keys(k)});
  std::vector<Tensor> gradients(call.inputs.size());
  gradients[0] = parts[0];
  for (int i : {1, 2}) gradients[i] = graph::permute(parts[i], {0, 2, 1, 3});
  return gradients;
}

// --- attention_backward: q, k, v, position, [out | lse], dout, dlse, segments or not →
// [dq | dk | dv], the last two as [batch, positions, kv_heads, dim] ----------------------------

graph::TypedShape infer_attention_backward(const Node& node) {
  require_training_inputs(node);
  const Shape &q = node.inputs[0]->shape, &k = node.inputs[1]->shape;
  if (!(node.inputs[5]->shape == q) || !(node.inputs[6]->shape == lse_shape(q)) ||
      node.inputs[4]->shape.elements() != q.elements() + lse_shape(q).elements()) {
    shape_error(node, "the gradients do not fit the results");
  }
  return {DType::kF32, {q.elements() + 2 * k.elements()}};
}

void run_attention_backward(const KernelCall& call) {
  const int64_t queries = call.inputs[0].shape.elements(), keys = call.inputs[1].shape.elements();
  const float* out = call.inputs[4].as<const float>();
  float* dq = call.output.as<float>();
  const Operand& dlse = call.inputs[6];
  kernels::attention_backward(*call.pool, training_shape(call),
                              {.out = out,
                               .lse = out + queries,
                               .dout = rows_of(call.inputs[5]),
                               .dlse = dlse.as<const float>(),
                               .dlse_batch_stride = dlse.strides[0],
                               .dlse_head_stride = dlse.strides[1],
                               .dq = dq,
                               .dk = dq + queries,
                               .dv = dq + queries + keys},
                              call.workspace);
}

// Of the softmax p = softmax(s), out = p v: ds = p · (dout vᵀ − dout · out + dlse).
Tensor attention_backward_meaning(const Node& node, Inputs in) {
  const Tensor segments = node.attrs.integer("segments") ? in[7] : Tensor();
  const int64_t batch = in[0].dim(0), tokens = in[0].dim(1), kv_heads = in[1].dim(1);
  const Tensor scale = graph::scalar(static_cast<float>(node.attrs.real("scale")));
  const Tensor p = softmax(visible_scores(node.attrs, in[0], in[1], in[3], segments));
  const Tensor q = grouped(in[0], kv_heads), dout = grouped(in[5], kv_heads);
  const Tensor k = grouped_keys(in[1]), v = grouped_keys(in[2]);
  const Tensor dp = matmul(dout, graph::transpose(v, -1, -2));
  const Tensor dlse = reshape(in[6], {batch, kv_heads, in[0].dim(2) / kv_heads, tokens, 1});
  const Tensor delta = sub(sum(mul(dout, matmul(p, v)), -1), dlse);
  const Tensor ds = mul(mul(p, sub(dp, delta)), scale);
  const Tensor dk = sum(matmul(graph::transpose(ds, -1, -2), q), 2);
  const Tensor dv = sum(matmul(graph::transpose(p, -1, -2), dout), 2);
  const Tensor parts[] = {flatten(graph::permute(matmul(ds, k), {0, 3, 1, 2, 4})),
                          flatten(graph::permute(dk, {0, 3, 1, 2, 4})),
                          flatten(graph::permute(dv, {0, 3, 1, 2, 4}))};
  return concat(parts, 0);
}

struct TrainingCase {
  const char* label;
  Shape q, k;
  AttentionOptions options;
  bool segments;
};

const std::vector<TrainingCase>& training_cases() {
  static const std::vector<TrainingCase> cases = {
      {"causal", {2, 7, 2, 8}, {2, 2, 7, 8}, {.scale = 0.3}, false},
      {"not causal", {1, 5, 3, 6}, {1, 3, 9, 6}, {.scale = 0.3, .causal = false}, false},
      {"grouped", {1, 9, 6, 5}, {1, 2, 12, 5}, {.scale = 0.3}, false},
      {"window", {1, 12, 2, 8}, {1, 1, 12, 8}, {.scale = 0.3, .window = 4}, false},
      {"segments", {2, 11, 4, 4}, {2, 2, 11, 4}, {.scale = 0.3}, true},
      {"segments, not causal", {2, 11, 2, 4}, {2, 2, 11, 4}, {.scale = 0.3, .causal = false}, true},
      {"several tiles", {1, 150, 1, 3}, {1, 1, 150, 3}, {.scale = 0.7}, false},
      {"segments in several tiles", {1, 140, 2, 3}, {1, 1, 140, 3}, {.scale = 0.7}, true},
      {"window over tiles", {1, 140, 1, 3}, {1, 1, 140, 3}, {.scale = 0.7, .window = 5}, false},
  };
  return cases;
}

graph::Attrs training_attrs(const AttentionOptions& options, bool segments) {
  return {{"scale", options.scale},
          {"causal", int64_t{options.causal}},
          {"window", options.window},
          {"segments", int64_t{segments}}};
}

std::vector<OpCase> attention_training_cases() {
  std::vector<OpCase> cases;
  for (const TrainingCase& test : training_cases()) {
    const graph::TypedShape kv = {DType::kF32, test.k};
    OpCase made = {test.label, {{DType::kF32, test.q}, kv, kv, i32({1})}, {}, -1, 1, 5e-6};
    if (test.segments) made.inputs.push_back(i32({test.q[0], test.q[1]}));
    made.build = [&](Inputs in) {
      return record(kAttentionTraining, in, training_attrs(test.options, test.segments));
    };
    cases.push_back(std::move(made));
  }
  return cases;
}

std::vector<OpCase> attention_backward_cases() {
  std::vector<OpCase> cases;
  for (const TrainingCase& test : training_cases()) {
    const graph::TypedShape q = {DType::kF32, test.q}, kv = {DType::kF32, test.k};
    OpCase made = {
        test.label, {q, kv, kv, i32({1}), q, {DType::kF32, lse_shape(test.q)}}, {}, -1, 1, 2e-5};
    if (test.segments) made.inputs.push_back(i32({test.q[0], test.q[1]}));
    made.build = [&](Inputs in) {
      const graph::Attrs attrs = training_attrs(test.options, test.segments);
      std::vector<Tensor> forward(in.begin(), in.begin() + 4);
      if (test.segments) forward.push_back(in[6]);
      std::vector<Tensor> inputs(in.begin(), in.begin() + 4);
      inputs.push_back(record(kAttentionTraining, forward, attrs));
      inputs.insert(inputs.end(), in.begin() + 4, in.end());
      return record(kAttentionBackward, inputs, attrs);
    };
    cases.push_back(std::move(made));
  }
  return cases;
}

}  // namespace

const OpDef kRopeTable = {.name = "rope_table",
                          .infer = infer_rope_table,
                          .kernel = run_rope_table,
                          .meaning = rope_table_meaning,
                          .cases = rope_table_cases};
const OpDef kRope = {.name = "rope",
                     .infer = infer_rope,
                     .kernel = run_rope,
                     .layout = graph::InputLayout::kInner,
                     .meaning = rope_meaning,
                     .grad = grad_rope,
                     .cases = rope_cases};
const OpDef kKvAppend = {.name = "kv_append",
                         .infer = infer_kv_append,
                         .kernel = run_kv_append,
                         .layout = graph::InputLayout::kInner,
                         .overwrites = 0,
                         .meaning = kv_append_meaning,
                         .cases = kv_append_cases};
const OpDef kAttention = {.name = "attention",
                          .infer = infer_cached_attention,
                          .kernel = run_attention,
                          .workspace = attention_workspace,
                          .layout = graph::InputLayout::kInner,
                          .meaning = attention_meaning,
                          .cost = attention_cost,
                          .cases = attention_cases};

const OpDef kAttentionTraining = {.name = "attention_training",
                                  .infer = infer_attention_training,
                                  .kernel = run_attention_training,
                                  .workspace = attention_training_workspace,
                                  .layout = graph::InputLayout::kInner,
                                  .meaning = attention_training_meaning,
                                  .grad = grad_attention_training,
                                  .cost = attention_cost,
                                  .cases = attention_training_cases};
const OpDef kAttentionBackward = {.name = "attention_backward",
                                  .infer = infer_attention_backward,
                                  .kernel = run_attention_backward,
                                  .workspace = attention_training_workspace,
                                  .layout = graph::InputLayout::kInner,
                                  .meaning = attention_backward_meaning,
                                  .cost = attention_backward_cost,
                                  .cases = attention_backward_cases};

Tensor rope_table(const Tensor& position, const Tensor& frequencies, int64_t tokens,
                  double factor) {
  return record(kRopeTable, {position, frequencies}, {{"tokens", tokens}, {"factor", factor}});
}

Tensor rope(const Tensor& x, const Tensor& table, bool interleaved) {
  return record(kRope, {x, table},
                {{"interleaved", int64_t{interleaved}}, {"inverse", int64_t{0}}});
}

Tensor kv_append(const Tensor& cache, const Tensor& x, const Tensor& position,
                 const Tensor& slots) {
  std::vector<Tensor> inputs = {cache, x, position};
  if (slots.defined()) inputs.push_back(slots);
  return record(kKvAppend, inputs);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position,
                 const AttentionOptions& options) {
  const bool segments = options.segments.defined();
  if (segments || graph::needs_grad({q, k, v})) {
    std::vector<Tensor> inputs = {q, k, v, position};
    if (segments) inputs.push_back(options.segments);
    const Tensor all = record(kAttentionTraining, inputs, training_attrs(options, segments));
    return graph::unpack(all, {q.shape(), lse_shape(q.shape())})[0];
  }
  std::vector<Tensor> inputs = {q, k, v, position};
  if (options.slots.defined()) inputs.push_back(options.slots);
  return record(
      kAttention, inputs,
      {{"scale", options.scale}, {"causal", int64_t{options.causal}}, {"window", options.window}});
}

}  // namespace lumen::ops
