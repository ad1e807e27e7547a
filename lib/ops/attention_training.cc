// Attention that has a gradient, in memory that grows with the tokens only.
#include "lib/base/error.h"
#include "lib/graph/mixed_precision.h"
#include "lib/kernels/attention_backward.h"
#include "lib/ops/attention_inputs.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"
#include "lib/ops/random_key.h"

namespace lumen::ops {

extern const graph::OpDef kAttentionTraining, kAttentionBackward;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::Operand;
using graph::record;
using graph::reshape;
using Inputs = std::span<const Tensor>;

// --- attention_training: q, k, v, position, segments or not, key or not → [out | lse] ----------

bool has_segments(const Node& node) {
  return node.attrs.integer("segments") != 0;
}
bool has_dropout(const Node& node) {
  return node.attrs.real("dropout") != 0;
}

// The last inputs: segments, then the key of dropout, if the attributes say so.
template <class Input>
const Input& segments_of(const Node& node, std::span<const Input> inputs) {
  return inputs[inputs.size() - (has_dropout(node) ? 2 : 1)];
}

// Of attention_training and, whose first four inputs are the same, attention_backward.
void require_training_inputs(const Node& node) {
  attention_type(node);
  const Shape &q = node.inputs[0]->shape, &k = node.inputs[1]->shape;
  if (k[0] != q[0] || !(node.inputs[3]->shape == Shape{1})) {
    shape_error(node, "needs as many batch rows of keys as of queries, and position [1]");
  }
  for (int i = 0; i < 3; ++i) {
    const DType dtype = node.inputs[i]->dtype;
    if (dtype != DType::kF32 && !(dtype == DType::kBF16 && graph::in_bf16(node))) {
      shape_error(node, "queries, keys and values must be float32");
    }
  }
  if (has_dropout(node)) require_key(node, *node.inputs.back());
  if (node.attrs.integer("chunk") != 0) shape_error(node, "chunks must be given as segments");
  if (!has_segments(node)) return;
  const Node& segments = *segments_of<graph::NodePtr>(node, node.inputs);
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
  return {x.as<const float>(), x.strides[0], x.strides[1], x.strides[2], x.dtype == DType::kBF16};
}
kernels::HeadRows keys_of(const Operand& x) {
  return {x.as<const float>(), x.strides[0], x.strides[2], x.strides[1], x.dtype == DType::kBF16};
}

kernels::AttentionShape training_sizes(const Node& node) {
  auto shape = attention_sizes<kernels::AttentionShape>(node);
  shape.dropout = node.attrs.real("dropout");
  shape.bf16 = graph::in_bf16(node);
  return shape;
}

bool training_takes_bf16(const Node& node) {
  return kernels::attention_takes_bf16(training_sizes(node));
}

// Queries, keys and values are rounded as they are; the gradient of the result (input 5 of
// attention_backward) has a sum besides.
graph::Bf16Input training_bf16_input(const Node& node, size_t i) {
  const bool takes = i < 3 || (i == 5 && node.op == &kAttentionBackward);
  if (!takes || !training_takes_bf16(node)) return graph::Bf16Input::kNo;
  return i < 3 ? graph::Bf16Input::kRounded : graph::Bf16Input::kRead;
}

kernels::AttentionShape training_shape(const KernelCall& call) {
  auto shape = training_sizes(*call.node);
  shape.start = call.inputs[3].as<const int32_t>()[0];
  shape.q = rows_of(call.inputs[0]);
  shape.k = keys_of(call.inputs[1]);
  shape.v = keys_of(call.inputs[2]);
  if (has_segments(*call.node)) {
    const Operand& segments = segments_of<Operand>(*call.node, call.inputs);
    shape.segments = segments.as<const int32_t>();
    shape.segment_stride = segments.strides[0];
  }
  if (has_dropout(*call.node)) shape.key = random_key(*call.node, call.inputs.back());
  return shape;
}

void run_attention_training(const KernelCall& call) {
  float* out = call.output.as<float>();
  kernels::attention_forward(*call.pool, training_shape(call), out,
                             out + call.inputs[0].shape.elements(), call.workspace);
}

size_t attention_training_workspace(const Node& node, int threads) {
  return kernels::attention_training_workspace_bytes(training_sizes(node), threads);
}

Tensor training_scores(const Node& node, Inputs in) {
  const Tensor segments = has_segments(node) ? segments_of<Tensor>(node, in) : Tensor();
  return visible_scores(node.attrs, in[0], in[1], in[3], segments);
}

// x · what dropout makes of ones in the order that kernels/attention_backward.h states, for x
// [batch, kv_heads, group, tokens, positions]; x itself without dropout.
Tensor dropped(const Node& node, Inputs in, const Tensor& x) {
  if (!has_dropout(node)) return x;
  const int64_t heads = x.dim(0) * x.dim(1), columns = x.dim(2) * x.dim(3), positions = x.dim(4);
  const int64_t column_groups = (columns + 15) / 16, key_groups = (positions + 3) / 4;
  const Tensor factors =
      dropout(ones({heads, column_groups, key_groups, 4, 16}), node.attrs.real("dropout"),
              in.back(), node.attrs.integer("stream"));
  const Tensor rows = reshape(graph::permute(factors, {0, 1, 4, 2, 3}),
                              {heads, 16 * column_groups, 4 * key_groups});
  const Tensor seen = graph::slice(graph::slice(rows, 1, 0, columns), 2, 0, positions);
  const Tensor by_token = reshape(seen, {x.dim(0), x.dim(1), x.dim(3), x.dim(2), positions});
  return mul(x, graph::permute(by_token, {0, 1, 3, 2, 4}));
}

Tensor attention_training_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope precision = graph::precision_in(node);
  const Tensor scores = training_scores(node, in);
  const Tensor top = max(scores, -1), weights = exp(sub(scores, top)), total = sum(weights, -1);
  const Tensor out = matmul(dropped(node, in, div(weights, total)), grouped_keys(in[2]));
  const Tensor parts[] = {flatten(graph::permute(out, {0, 3, 1, 2, 4})),
                          flatten(add(top, log(total)))};
  return concat(parts, 0);
}

std::vector<Tensor> grad_attention_training(const graph::GradCall& call) {
  const graph::AutocastScope precision = graph::gradient_precision(call.node);
  const Shape &q = call.inputs[0].shape(), &k = call.inputs[1].shape();
  const auto d = graph::unpack(call.dy, {q, lse_shape(q)});
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.begin() + 4);
  inputs.insert(inputs.end(), {call.output, d[0], d[1]});
  inputs.insert(inputs.end(), call.inputs.begin() + 4, call.inputs.end());
  const Tensor all = record(kAttentionBackward, inputs, call.node.attrs);
  const auto parts = graph::unpack(all, {q, transposed_keys(k), transposed_keys(k)});
  std::vector<Tensor> gradients(call.inputs.size());
  gradients[0] = parts[0];
  for (int i : {1, 2}) gradients[i] = graph::permute(parts[i], {0, 2, 1, 3});
  return gradients;
}

// --- attention_backward: q, k, v, position, [out | lse], dout, dlse, segments or not, key or not →
// [dq | dk | dv], the last two as [batch, positions, kv_heads, dim] ----------------------------

graph::TypedShape infer_attention_backward(const Node& node) {
  require_training_inputs(node);
  const Shape &q = node.inputs[0]->shape, &k = node.inputs[1]->shape;
  if (!(node.inputs[5]->shape == q) || !(node.inputs[6]->shape == lse_shape(q)) ||
      node.inputs[4]->shape.elements() != q.elements() + lse_shape(q).elements()) {
    shape_error(node, "the gradients do not fit the results");
  }
  return {graph::stored_type(node), {q.elements() + 2 * k.elements()}};
}

void run_attention_backward(const KernelCall& call) {
  const int64_t queries = call.inputs[0].shape.elements(), keys = call.inputs[1].shape.elements();
  const float* out = call.inputs[4].as<const float>();
  const bool bf16 = call.node->dtype == DType::kBF16;
  const auto gradient = [&](int64_t at) {
    return reinterpret_cast<float*>(call.output.as<std::byte>() + row_bytes(call.node->dtype, at));
  };
  const Operand& dlse = call.inputs[6];
  kernels::attention_backward(*call.pool, training_shape(call),
                              {.out = out,
                               .lse = out + queries,
                               .dout = rows_of(call.inputs[5]),
                               .dlse = dlse.as<const float>(),
                               .dlse_batch_stride = dlse.strides[0],
                               .dlse_head_stride = dlse.strides[1],
                               .dq = gradient(0),
                               .dk = gradient(queries),
                               .dv = gradient(queries + keys),
                               .bf16 = bf16},
                              call.workspace);
}

// Of the softmax p = softmax(s), out = (f · p) v, f the factors of dropout: ds = p · (f · dout vᵀ −
// dout · out + dlse), times 1 − (s / cap)² where there is a cap.
Tensor attention_backward_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope precision = graph::precision_in(node);
  const int64_t batch = in[0].dim(0), tokens = in[0].dim(1), kv_heads = in[1].dim(1);
  const Tensor scale = graph::scalar(static_cast<float>(node.attrs.real("scale")));
  const Tensor p = softmax(training_scores(node, in)), weights = dropped(node, in, p);
  const Tensor q = grouped(in[0], kv_heads), dout = grouped(in[5], kv_heads);
  const Tensor k = grouped_keys(in[1]), v = grouped_keys(in[2]);
  const Tensor dp = dropped(node, in, matmul(dout, graph::transpose(v, -1, -2)));
  const Tensor dlse = reshape(in[6], {batch, kv_heads, in[0].dim(2) / kv_heads, tokens, 1});
  const Tensor delta = sub(sum(mul(dout, matmul(weights, v)), -1), dlse);
  Tensor ds = mul(mul(p, sub(dp, delta)), scale);
  if (const double cap = node.attrs.real("cap"); cap != 0) {
    const Tensor part = mul(attention_scores(node.attrs, in[0], in[1]), 1 / cap);
    ds = mul(ds, sub(1.0, mul(part, part)));
  }
  const Tensor dk = sum(matmul(graph::transpose(ds, -1, -2), q), 2);
  const Tensor dv = sum(matmul(graph::transpose(weights, -1, -2), dout), 2);
  const Tensor parts[] = {flatten(graph::permute(matmul(ds, k), {0, 3, 1, 2, 4})),
                          flatten(graph::permute(dk, {0, 3, 1, 2, 4})),
                          flatten(graph::permute(dv, {0, 3, 1, 2, 4}))};
  return concat(parts, 0);
}

// Five products instead of two.
graph::Cost attention_backward_cost(const Node& node) {
  const graph::Cost forward = attention_cost(node);
  return {2.5 * forward.flops, 3 * forward.bytes};
}

graph::Attrs training_attrs(const AttentionOptions& options, bool segments) {
  return {{"scale", options.scale},          {"cap", options.cap},
          {"max_bias", options.max_bias},    {"causal", int64_t{options.causal}},
          {"window", options.window},        {"chunk", options.chunk},
          {"segments", int64_t{segments}},   {"dropout", options.dropout.p},
          {"stream", options.dropout.stream}};
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
      {"cap", {2, 9, 6, 5}, {2, 2, 9, 5}, {.scale = 2, .cap = 1.5}, false},
      {"cap, segments in several tiles",
       {1, 140, 2, 3},
       {1, 1, 140, 3},
       {.scale = 2, .cap = 1.5, .window = 60},
       true},
      {"cap, dropout",
       {1, 40, 2, 8},
       {1, 2, 40, 8},
       {.scale = 2, .cap = 1, .dropout = {.p = 0.25}},
       false},
      {"linear bias", {2, 9, 6, 5}, {2, 2, 9, 5}, {.scale = 0.3, .max_bias = 8}, false},
      {"linear bias, segments in several tiles",
       {1, 140, 3, 3},
       {1, 3, 140, 3},
       {.scale = 0.7, .max_bias = 3, .window = 60},
       true},
      {"dropout", {2, 7, 2, 8}, {2, 2, 7, 8}, {.scale = 0.3, .dropout = {.p = 0.25}}, false},
      {"dropout of all", {1, 3, 2, 4}, {1, 2, 3, 4}, {.scale = 0.3, .dropout = {.p = 1}}, false},
      {"dropout, grouped, not causal",
       {2, 13, 6, 5},
       {2, 2, 9, 5},
       {.scale = 0.3, .causal = false, .dropout = {.p = 0.5, .stream = 3}},
       false},
      {"dropout in segments of several tiles",
       {2, 140, 2, 3},
       {2, 1, 140, 3},
       {.scale = 0.7, .dropout = {.p = 0.1, .stream = 1}},
       true},
      {"dropout in a window over tiles",
       {1, 140, 1, 3},
       {1, 1, 140, 3},
       {.scale = 0.7, .window = 9, .dropout = {.p = 0.5}},
       false},
  };
  return cases;
}

// The inputs that the attributes say come last.
void add_last_inputs(const TrainingCase& test, OpCase& made) {
  if (test.segments) made.inputs.push_back(i32({test.q[0], test.q[1]}));
  if (test.options.dropout.p > 0) made.inputs.push_back(i32({2}));
}

std::vector<OpCase> attention_training_cases() {
  std::vector<OpCase> cases;
  for (const TrainingCase& test : training_cases()) {
    const graph::TypedShape kv = {DType::kF32, test.k};
    OpCase made = {test.label, {{DType::kF32, test.q}, kv, kv, i32({1})}, {}, -1, 1, 5e-6};
    add_last_inputs(test, made);
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
    add_last_inputs(test, made);
    made.build = [&](Inputs in) {
      const graph::Attrs attrs = training_attrs(test.options, test.segments);
      std::vector<Tensor> forward(in.begin(), in.begin() + 4);
      forward.insert(forward.end(), in.begin() + 6, in.end());
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

const OpDef kAttentionTraining = {.name = "attention_training",
                                  .infer = infer_attention_training,
                                  .kernel = run_attention_training,
                                  .workspace = attention_training_workspace,
                                  .layout = graph::InputLayout::kInner,
                                  .meaning = attention_training_meaning,
                                  .grad = grad_attention_training,
                                  .autocast = graph::Autocast::kInside,
                                  .bf16_input = training_bf16_input,
                                  .cost = attention_cost,
                                  .cases = attention_training_cases};
const OpDef kAttentionBackward = {.name = "attention_backward",
                                  .infer = infer_attention_backward,
                                  .kernel = run_attention_backward,
                                  .workspace = attention_training_workspace,
                                  .layout = graph::InputLayout::kInner,
                                  .meaning = attention_backward_meaning,
                                  .autocast = graph::Autocast::kInside,
                                  .bf16_input = training_bf16_input,
                                  .gives_bf16 = training_takes_bf16,
                                  .cost = attention_backward_cost,
                                  .cases = attention_backward_cases};

Tensor attention_for_training(const Tensor& q, const Tensor& k, const Tensor& v,
                              const Tensor& position, const AttentionOptions& options) {
  const double p = options.dropout.p;
  if (!(p >= 0 && p <= 1)) {
    fail(ErrorKind::kMalformed, "attention: the probability of dropout must be from 0 to 1, not ",
         p);
  }
  const bool segments = options.segments.defined();
  std::vector<Tensor> inputs = {q, k, v, position};
  if (segments) inputs.push_back(options.segments);
  if (p > 0) inputs.push_back(options.dropout.key);
  const Tensor all = record(kAttentionTraining, inputs, training_attrs(options, segments));
  const auto parts = graph::unpack(all, {q.shape(), lse_shape(q.shape())});
  if (!options.sinks.defined()) return parts[0];
  // Σ e^s / (Σ e^s + e^sink) = sigmoid(lse − sink) of [batch, heads, tokens].
  const int64_t heads = q.dim(2);
  const graph::AutocastScope precision(DType::kF32);
  const Tensor kept = sigmoid(sub(parts[1], reshape(options.sinks, {1, heads, 1})));
  const Tensor by_token = reshape(graph::permute(kept, {0, 2, 1}), {q.dim(0), q.dim(1), heads, 1});
  return mul(parts[0], by_token);
}

}  // namespace lumen::ops
