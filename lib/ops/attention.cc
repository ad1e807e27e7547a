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

void require_position(const Node& node, const Node& position) {
  if (position.dtype != DType::kI32 || !(position.shape == Shape{1})) {
    shape_error(node, "the position must be int32 [1]");
  }
}

// position[0] + 0 … n−1 as float32 [n]; exact below 2^24.
Tensor positions_from(const Tensor& position, int64_t n) {
  return add(graph::contiguous(position, DType::kF32), graph::iota(n));
}

// --- rope_table --------------------------------------------------------------------------------

graph::TypedShape infer_rope_table(const Node& node) {
  require_position(node, *node.inputs[0]);
  const Node& frequencies = *node.inputs[1];
  if (frequencies.dtype != DType::kF32 || frequencies.shape.rank() != 1) {
    shape_error(node, "frequencies must be float32 [half]");
  }
  return {DType::kF32, {node.attrs.integer("tokens"), 2, frequencies.shape[0]}};
}

void run_rope_table(const KernelCall& call) {
  const Node& node = *call.node;
  kernels::rope_table(call.inputs[0].as<const int32_t>()[0], node.attrs.integer("tokens"),
                      call.inputs[1].as<const float>(), call.inputs[1].shape[0],
                      static_cast<float>(node.attrs.real("factor")), call.output.as<float>());
}

Tensor rope_table_meaning(const Node& node, Inputs in) {
  const int64_t tokens = node.attrs.integer("tokens"), half = in[1].dim(0);
  const Tensor angles = mul(reshape(positions_from(in[0], tokens), {tokens, 1}), in[1]);
  const Tensor rows[] = {reshape(cos(angles), {tokens, 1, half}),
                         reshape(sin(angles), {tokens, 1, half})};
  return mul(concat(rows, 1), graph::scalar(static_cast<float>(node.attrs.real("factor"))));
}

std::vector<OpCase> rope_table_cases() {
  auto build = [](Inputs in) { return rope_table(in[0], in[1], 5, 1.5); };
  return {{"half 4", {i32({1}), f32({4})}, build, 0, 1, 2e-6},
          {"half 33", {i32({1}), f32({33})}, build, 0, 1, 2e-6}};
}

// --- rope --------------------------------------------------------------------------------------

graph::TypedShape infer_rope(const Node& node) {
  const Node &x = *node.inputs[0], &table = *node.inputs[1];
  const bool fits = x.dtype == DType::kF32 && x.shape.rank() == 4 && table.shape.rank() == 3 &&
                    table.shape[0] == x.shape[1] && table.shape[1] == 2 &&
                    2 * table.shape[2] <= x.shape[3];
  if (!fits) shape_error(node, "needs [batch, tokens, heads, head_dim] and [tokens, 2, half]");
  return {DType::kF32, x.shape};
}

void run_rope(const KernelCall& call) {
  const Operand &x = call.inputs[0], &table = call.inputs[1];
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
                             .inverse = call.node->attrs.integer("inverse") != 0});
}

Tensor rope_meaning(const Node& node, Inputs in) {
  const Tensor &x = in[0], &table = in[1];
  const int64_t tokens = x.dim(1), half = table.dim(2), rest = x.dim(3) - 2 * half;
  const Tensor cosine = reshape(slice(table, 1, 0, 1), {tokens, 1, half});
  Tensor sine = reshape(slice(table, 1, 1, 2), {tokens, 1, half});
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
  require_position(node, *node.inputs[2]);
  const bool fits = cache.shape.rank() == 4 && x.shape.rank() == 4 && x.dtype == DType::kF32 &&
                    cache.shape[0] == x.shape[0] && cache.shape[1] == x.shape[2] &&
                    cache.shape[3] == x.shape[3] && x.shape[1] <= cache.shape[2];
  if (!fits) {
    shape_error(node, "needs [batch, heads, context, dim] and [batch, tokens, heads, dim]");
  }
  return {cache.dtype, cache.shape};
}

void run_kv_append(const KernelCall& call) {
  const Operand &cache = call.output, &x = call.inputs[1];
  const int64_t start = call.inputs[2].as<const int32_t>()[0];
  const int64_t tokens = x.shape[1], heads = x.shape[2], dim = x.shape[3];
  LUMEN_CHECK(start >= 0 && start + tokens <= cache.shape[2]);
  const int64_t row = row_bytes(cache.dtype, dim);
  auto append = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / heads, head = i % heads;
      for (int64_t t = 0; t < tokens; ++t) {
        const float* from =
            x.as<const float>() + batch * x.strides[0] + t * x.strides[1] + head * x.strides[2];
        kernels::from_float(cache.dtype, from, cache.data + (i * cache.shape[2] + start + t) * row,
                            dim);
      }
    }
  };
  // A few rows are not worth waking a thread for.
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, tokens * dim));
  call.pool->parallel_for(x.shape[0] * heads, grain, append);
}

// Old rows are kept where no new one goes: cache·(1 − Σ one_hot) + one_hot · x.
Tensor kv_append_meaning(const Node& node, Inputs in) {
  const int64_t context = node.shape[2], tokens = in[1].dim(1);
  const Tensor one_hot = equal(reshape(graph::iota(context), {context, 1}),
                               positions_from(in[2], tokens));  // [context, tokens]
  const Tensor added = matmul(one_hot, graph::permute(in[1], {0, 2, 1, 3}));
  const Tensor keep = sub(graph::scalar(1), sum(one_hot, 1));  // [context, 1]
  return graph::contiguous(add(mul(graph::contiguous(in[0], DType::kF32), keep), added),
                           node.dtype);
}

std::vector<OpCase> kv_append_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    cases.push_back({std::string(name(dtype)),
                     {{dtype, {2, 3, 9, 32}}, f32({2, 4, 3, 32}), i32({1})},
                     [](Inputs in) {
                       // The old memory stays as it is: the meaning is computed from it.
                       Array copy = Array::zeros(in[0].dtype(), in[0].shape());
                       std::copy_n(in[0].eval().data(), copy.bytes(), copy.mutable_data());
                       return kv_append(graph::state(copy, "cache"), in[1], in[2]);
                     },
                     -2,
                     2,
                     dtype == DType::kQ8_0 ? 1e-2 : 1e-6});
  }
  return cases;
}

// --- attention ---------------------------------------------------------------------------------

graph::TypedShape infer_attention(const Node& node) {
  const Node &q = *node.inputs[0], &k = *node.inputs[1], &v = *node.inputs[2];
  require_position(node, *node.inputs[3]);
  const bool fits = q.dtype == DType::kF32 && q.shape.rank() == 4 && k.shape.rank() == 4 &&
                    k.shape == v.shape && k.dtype == v.dtype && k.shape[0] == q.shape[0] &&
                    k.shape[3] == q.shape[3] && k.shape[1] > 0 && q.shape[2] % k.shape[1] == 0;
  if (!fits) {
    shape_error(node,
                "needs q [batch, tokens, heads, dim] and k, v [batch, kv_heads, positions, "
                "dim] with kv_heads dividing heads");
  }
  return {DType::kF32, q.shape};
}

kernels::KvView kv_view(const Operand& x) {
  auto bytes = [&](int axis) { return row_bytes(x.dtype, x.strides[axis]); };
  return {x.data, x.dtype, bytes(0), bytes(1), bytes(2)};
}

void run_attention(const KernelCall& call) {
  const Operand &q = call.inputs[0], &k = call.inputs[1];
  const graph::Attrs& attrs = call.node->attrs;
  const int64_t start = call.inputs[3].as<const int32_t>()[0], tokens = q.shape[1];
  const bool causal = attrs.integer("causal") != 0;
  kernels::attention(*call.pool,
                     {.batch = q.shape[0],
                      .tokens = tokens,
                      .heads = q.shape[2],
                      .kv_heads = k.shape[1],
                      .head_dim = q.shape[3],
                      .positions = causal ? std::min(start + tokens, k.shape[2]) : k.shape[2],
                      .start = start,
                      .causal = causal,
                      .window = attrs.integer("window"),
                      .scale = static_cast<float>(attrs.real("scale")),
                      .q = q.as<const float>(),
                      .q_batch_stride = q.strides[0],
                      .q_token_stride = q.strides[1],
                      .q_head_stride = q.strides[2],
                      .k = kv_view(k),
                      .v = kv_view(call.inputs[2]),
                      .out = call.output.as<float>(),
                      .workspace = call.workspace});
}

size_t attention_workspace(const Node& node, int threads) {
  return kernels::attention_workspace_bytes(node.shape[1], node.shape[2], node.shape[3], threads);
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
    const Tensor at = reshape(positions_from(position, tokens), {tokens, 1});
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
  const Tensor scores = visible_scores(node.attrs, in[0], in[1], in[3], {});
  const Tensor out = matmul(softmax(scores), grouped_keys(in[2]));
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

// Sizes and constants; what `shape` points to is not set.
kernels::AttentionShape training_shape(const Node& node) {
  const Shape &q = node.inputs[0]->shape, &k = node.inputs[1]->shape;
  kernels::AttentionShape shape{};
  shape.batch = q[0];
  shape.tokens = q[1];
  shape.positions = k[2];
  shape.heads = q[2];
  shape.kv_heads = k[1];
  shape.head_dim = q[3];
  shape.causal = node.attrs.integer("causal") != 0;
  shape.window = node.attrs.integer("window");
  shape.scale = static_cast<float>(node.attrs.real("scale"));
  return shape;
}

kernels::AttentionShape training_shape(const KernelCall& call) {
  kernels::AttentionShape shape = training_shape(*call.node);
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
  return kernels::attention_training_workspace_bytes(training_shape(node), threads);
}

Tensor flat(const Tensor& x) {
  return reshape(x, {x.shape().elements()});
}

Tensor attention_training_meaning(const Node& node, Inputs in) {
  const Tensor segments = node.attrs.integer("segments") ? in[4] : Tensor();
  const Tensor scores = visible_scores(node.attrs, in[0], in[1], in[3], segments);
  const Tensor top = max(scores, -1), weights = exp(sub(scores, top)), total = sum(weights, -1);
  const Tensor out = matmul(div(weights, total), grouped_keys(in[2]));
  const Tensor parts[] = {flat(graph::permute(out, {0, 3, 1, 2, 4})), flat(add(top, log(total)))};
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
  const Tensor parts[] = {flat(graph::permute(matmul(ds, k), {0, 3, 1, 2, 4})),
                          flat(graph::permute(dk, {0, 3, 1, 2, 4})),
                          flat(graph::permute(dv, {0, 3, 1, 2, 4}))};
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
                          .infer = infer_attention,
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

Tensor kv_append(const Tensor& cache, const Tensor& x, const Tensor& position) {
  return record(kKvAppend, {cache, x, position});
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
  return record(
      kAttention, {q, k, v, position},
      {{"scale", options.scale}, {"causal", int64_t{options.causal}}, {"window", options.window}});
}

}  // namespace lumen::ops
