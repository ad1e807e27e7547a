// Attention with a KV cache, without a gradient.
#include "lib/kernels/attention.h"

#include "lib/graph/mixed_precision.h"
#include "lib/ops/attention_inputs.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kAttention;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::Operand;
using graph::record;
using graph::reshape;
using Inputs = std::span<const Tensor>;

// Inputs: q, k, v, position, sinks or not, slots or not.
bool has_sinks(const Node& node) {
  return node.attrs.integer("sinks") != 0;
}

template <class Input>
const Input* slots_of(const Node& node, std::span<const Input> inputs) {
  return inputs.size() > (has_sinks(node) ? 5 : 4) ? &inputs.back() : nullptr;
}

graph::TypedShape infer_attention(const Node& node) {
  const graph::TypedShape result = attention_type(node);
  const Node &q = *node.inputs[0], &k = *node.inputs[1], &v = *node.inputs[2];
  if (q.dtype != DType::kF32 || k.dtype != v.dtype) {
    shape_error(node, "needs float32 queries, and keys and values of one type");
  }
  require_cache_rows(node, has_sinks(node) ? 5 : 4, k.shape[0], result.shape[0]);
  if (has_sinks(node)) {
    const Node& sinks = *node.inputs[4];
    if (sinks.dtype != DType::kF32 || sinks.shape != Shape{q.shape[2]}) {
      shape_error(node, "the sinks must be float32 [heads]");
    }
  }
  return result;
}

kernels::KvView kv_view(const Operand& x) {
  auto bytes = [&](int axis) { return row_bytes(x.dtype, x.strides[axis]); };
  return {x.data, x.dtype, bytes(0), bytes(1), bytes(2)};
}

void run_attention(const KernelCall& call) {
  const Operand &q = call.inputs[0], &position = call.inputs[3];
  auto args = attention_sizes<kernels::AttentionArgs>(*call.node);
  args.start = position.as<const int32_t>();
  args.start_stride = position.shape[0] == 1 ? 0 : 1;
  args.chunk = call.node->attrs.integer("chunk");
  if (has_sinks(*call.node)) args.sinks = call.inputs[4].as<const float>();
  if (const Operand* slots = slots_of<Operand>(*call.node, call.inputs)) {
    check_slots(*slots, call.inputs[1].shape[0]);
    args.slots = slots->as<const int32_t>();
  }
  args.q = q.as<const float>();
  args.q_batch_stride = q.strides[0];
  args.q_token_stride = q.strides[1];
  args.q_head_stride = q.strides[2];
  args.k = kv_view(call.inputs[1]);
  args.v = kv_view(call.inputs[2]);
  args.bf16 = graph::in_bf16(*call.node);
  args.out = call.output.as<float>();
  args.workspace = call.workspace;
  kernels::attention(*call.pool, args);
}

size_t attention_workspace(const Node& node, int threads) {
  auto args = attention_sizes<kernels::AttentionArgs>(node);
  args.bf16 = graph::in_bf16(node);
  return kernels::attention_workspace_bytes(args, threads);
}

Tensor attention_meaning(const Node& node, Inputs in) {
  const Tensor* slots = slots_of<Tensor>(node, in);
  const Tensor k = slots ? cache_rows(in[1], *slots) : in[1];
  const Tensor v = slots ? cache_rows(in[2], *slots) : in[2];
  const Tensor scores = visible_scores(node.attrs, in[0], k, in[3], {});
  Tensor weights = softmax(scores);
  if (has_sinks(node)) {
    const int64_t kv_heads = k.dim(1);
    const Tensor sinks = reshape(in[4], {1, kv_heads, in[0].dim(2) / kv_heads, 1, 1});
    const Tensor top = max(scores, -1), total = sum(exp(sub(scores, top)), -1);
    weights = mul(weights, sigmoid(sub(add(top, log(total)), sinks)));
  }
  const Tensor out = matmul(weights, grouped_keys(v));
  return reshape(graph::permute(out, {0, 3, 1, 2, 4}), node.shape);
}

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  auto add_case = [&](std::string label, Shape q, graph::TypedShape kv, AttentionOptions options,
                      double tolerance) {
    if (options.cap == 0) options.scale = 0.3;
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
  add_case("chunks", {1, 6, 2, 32}, {DType::kF16, {1, 1, 9, 32}}, {.window = 3, .chunk = 4}, 1e-3);
  add_case("chunks, 40 tokens", {1, 40, 2, 32}, {DType::kF16, {1, 1, 50, 32}}, {.chunk = 7}, 1e-3);
  add_case("not causal", {1, 3, 2, 8}, f32({1, 2, 7, 8}), {.causal = false}, 5e-6);
  for (const int64_t tokens : {1, 40}) {
    add_case(str("cap, ", tokens, " tokens"), {1, tokens, 4, 32}, {DType::kF16, {1, 2, 50, 32}},
             {.scale = 2, .cap = 1.5}, 1e-3);
  }
  for (const int64_t tokens : {1, 40}) {
    add_case(str("linear bias, ", tokens, " tokens"), {2, tokens, 6, 32},
             {DType::kF16, {2, 2, 50, 32}}, {.max_bias = 8}, 1e-5);
  }
  add_case("odd head_dim", {1, 4, 3, 7}, f32({1, 3, 8, 7}), {}, 5e-6);
  for (const int64_t tokens : {1, 40}) {
    cases.push_back(
        {str("sinks, ", tokens, " tokens"),
         {f32({2, tokens, 4, 32}), f32({2, 2, 50, 32}), f32({2, 2, 50, 32}), i32({1}), f32({4})},
         [](Inputs in) {
           return attention(in[0], in[1], in[2], in[3],
                            {.scale = 0.3, .window = 9, .sinks = in[4]});
         },
         -1,
         1,
         5e-6});
  }
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

}  // namespace

const OpDef kAttention = {.name = "attention",
                          .infer = infer_attention,
                          .kernel = run_attention,
                          .workspace = attention_workspace,
                          .layout = graph::InputLayout::kInner,
                          .meaning = attention_meaning,
                          .cost = attention_cost,
                          .cases = attention_cases};

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& position,
                 const AttentionOptions& options) {
  if (options.segments.defined() || options.dropout.p != 0 || graph::needs_grad({q, k, v}) ||
      (options.sinks.defined() && graph::needs_grad({options.sinks}))) {
    return attention_for_training(q, k, v, position, options);
  }
  std::vector<Tensor> inputs = {q, k, v, position};
  if (options.sinks.defined()) inputs.push_back(options.sinks);
  if (options.slots.defined()) inputs.push_back(options.slots);
  graph::Attrs attrs = {{"scale", options.scale},
                        {"cap", options.cap},
                        {"max_bias", options.max_bias},
                        {"causal", int64_t{options.causal}},
                        {"window", options.window},
                        {"chunk", options.chunk},
                        {"sinks", int64_t{options.sinks.defined()}}};
  if (options.bf16) graph::set_bf16(attrs);
  return record(kAttention, inputs, std::move(attrs));
}

}  // namespace lumen::ops
