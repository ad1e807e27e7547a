// The gated delta rule: attention whose memory is a matrix per head instead of keys and values.
#include "lib/kernels/delta_rule.h"

#include <array>

#include "lib/base/error.h"
#include "lib/kernels/delta_rule_backward.h"
#include "lib/ops/attention_inputs.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kGatedDeltaRule, kGatedDeltaRuleBackward;

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

// Inputs: q, k, v, decay, beta, and of a text that goes on the states before, the position, and
// slots or not.
constexpr size_t kWithoutStates = 5;

bool is_tiled(const Node& node) {
  return node.attrs.integer("tiled") != 0;
}

bool corrects(const Node& node) {
  return node.attrs.integer("corrects") != 0;
}

// Whether there is a decay for each row of a state.
bool is_by_rows(const Shape& decay) {
  return decay.rank() == 4;
}

template <class Any>
bool has_states(std::span<const Any> inputs) {
  return inputs.size() > kWithoutStates;
}

struct Sizes {
  Sizes(const Shape& q, const Shape& v)
      : batch(q[0]),
        tokens(q[1]),
        key_heads(q[2]),
        heads(v[2]),
        key_dim(q[3]),
        value_dim(v[3]),
        out({batch, tokens, heads, value_dim}),
        state({batch, heads, key_dim, value_dim}) {}
  int64_t batch, tokens, key_heads, heads, key_dim, value_dim;
  Shape out, state;
};

// The sizes of what both operations begin with.
Sizes checked_sizes(const Node& node) {
  for (size_t i = 0; i < kWithoutStates; ++i) {
    if (node.inputs[i]->dtype != DType::kF32) shape_error(node, "needs float32");
  }
  const Shape &q = node.inputs[0]->shape, &k = node.inputs[1]->shape, &v = node.inputs[2]->shape;
  const bool ranks = q.rank() == 4 && v.rank() == 4 && q == k;
  if (!ranks || v[0] != q[0] || v[1] != q[1] || q[2] == 0 || v[2] % q[2] != 0) {
    shape_error(node,
                "needs q, k [batch, tokens, key_heads, key_dim] and v [batch, tokens, heads, "
                "value_dim] with key_heads dividing heads");
  }
  const Sizes sizes(q, v);
  const Shape gates = {sizes.batch, sizes.tokens, sizes.heads};
  const Shape by_rows = {sizes.batch, sizes.tokens, sizes.heads, sizes.key_dim};
  const Shape &decay = node.inputs[3]->shape, &beta = node.inputs[4]->shape;
  if (!(decay == (is_by_rows(decay) ? by_rows : gates)) || !(beta == gates)) {
    shape_error(node,
                "decay must be [batch, tokens, heads] or [batch, tokens, heads, key_dim], beta "
                "[batch, tokens, heads]");
  }
  return sizes;
}

// → [out | states after].
graph::TypedShape infer_delta_rule(const Node& node) {
  const Sizes sizes = checked_sizes(node);
  if (has_states(std::span(node.inputs))) {
    require_states(node, kWithoutStates, {sizes.heads, sizes.key_dim, sizes.value_dim},
                   "heads, key_dim, value_dim", sizes.batch);
  }
  return {DType::kF32, {sizes.out.elements() + sizes.state.elements()}};
}

kernels::DeltaRows head_rows(const Operand& x) {
  return {x.as<const float>(), x.strides[0], x.strides[1], x.strides[2]};
}

// Without states and results.
kernels::DeltaRuleArgs kernel_args(const KernelCall& call) {
  const Sizes sizes(call.inputs[0].shape, call.inputs[2].shape);
  return {.batch = sizes.batch,
          .tokens = sizes.tokens,
          .key_heads = sizes.key_heads,
          .heads = sizes.heads,
          .key_dim = sizes.key_dim,
          .value_dim = sizes.value_dim,
          .tiled = is_tiled(*call.node),
          .corrects = corrects(*call.node),
          .by_rows = is_by_rows(call.inputs[3].shape),
          .q = head_rows(call.inputs[0]),
          .k = head_rows(call.inputs[1]),
          .v = head_rows(call.inputs[2]),
          .decay = head_rows(call.inputs[3]),
          .beta = head_rows(call.inputs[4]),
          .workspace = call.workspace};
}

void run_delta_rule(const KernelCall& call) {
  const Sizes sizes(call.inputs[0].shape, call.inputs[2].shape);
  kernels::DeltaRuleArgs args = kernel_args(call);
  args.out = call.output.as<float>();
  args.after = args.out + sizes.out.elements();
  if (has_states(std::span<const Operand>(call.inputs))) {
    read_states(call, kWithoutStates, args);
  }
  kernels::delta_rule(*call.pool, args);
}

bool is_states(const Node&, size_t i) {
  return i == kWithoutStates;
}

size_t delta_rule_workspace(const Node& node, int threads) {
  return kernels::delta_rule_workspace_bytes(node.inputs[0]->shape[3], threads);
}

// Tokens of the inputs in the form in which meanings compute with states [batch, heads, key_dim,
// value_dim].
struct Tokens {
  Tokens(const Node& node, Inputs inputs)
      : in(inputs),
        sizes(in[0].shape(), in[2].shape()),
        tiled(is_tiled(node)),
        correct(corrects(node)),
        by_rows(is_by_rows(in[3].shape())) {}

  // q or k as columns [batch, heads, key_dim, 1], of each head those of its key head.
  Tensor column(size_t input, int64_t t) const {
    const int64_t batch = sizes.batch, group = sizes.heads / sizes.key_heads;
    const int64_t keys = sizes.key_heads, dim = sizes.key_dim;
    const Tensor row = slice(in[input], 1, t, t + 1);
    const Tensor all =
        tiled ? graph::expand(reshape(row, {batch, 1, keys, dim}), {batch, group, keys, dim})
              : graph::expand(reshape(row, {batch, keys, 1, dim}), {batch, keys, group, dim});
    return reshape(all, {batch, sizes.heads, dim, 1});
  }
  // What column() gave, added up for key heads: [batch, 1, key_heads, key_dim].
  Tensor of_key_heads(const Tensor& columns) const {
    const int64_t batch = sizes.batch, group = sizes.heads / sizes.key_heads;
    const int64_t keys = sizes.key_heads, dim = sizes.key_dim;
    const Tensor parts = tiled ? reshape(columns, {batch, group, keys, dim})
                               : reshape(columns, {batch, keys, group, dim});
    return reshape(sum(parts, tiled ? 1 : 2), {batch, 1, keys, dim});
  }
  // v, or a number of each head: [batch, heads, 1, dim].
  Tensor row(const Tensor& x, int64_t t, int64_t dim) const {
    return reshape(slice(x, 1, t, t + 1), {sizes.batch, sizes.heads, 1, dim});
  }
  Tensor error(const Tensor& decayed, int64_t t) const {
    const Tensor value = row(in[2], t, sizes.value_dim);
    return correct ? sub(value, sum(mul(decayed, column(1, t)), 2)) : value;
  }
  // Decays of token t, by rows or of whole states.
  Tensor decay(int64_t t) const {
    if (!by_rows) return row(in[3], t, 1);
    return reshape(slice(in[3], 1, t, t + 1), {sizes.batch, sizes.heads, sizes.key_dim, 1});
  }
  Tensor decayed(const Tensor& state, int64_t t) const { return mul(state, decay(t)); }
  Tensor next(const Tensor& decayed_state, int64_t t) const {
    const Tensor change = mul(error(decayed_state, t), row(in[4], t, 1));
    return add(decayed_state, mul(column(1, t), change));
  }

  Inputs in;
  Sizes sizes;
  bool tiled, correct, by_rows;
};

Tensor flat(const Tensor& x) {
  return reshape(x, {-1});
}

// Parts of each token side by side; zeros of `shape` without tokens.
Tensor in_time(const std::vector<Tensor>& parts, const Shape& shape) {
  return parts.empty() ? graph::expand(graph::scalar(0), shape) : concat(parts, 1);
}

Tensor delta_rule_meaning(const Node& node, Inputs in) {
  const Tokens tokens(node, in);
  const Sizes& sizes = tokens.sizes;
  Tensor state = graph::expand(graph::scalar(0), sizes.state);
  if (has_states(in)) {
    const Tensor& position = in[kWithoutStates + 1];
    const Tensor begun = less_than(graph::scalar(0), graph::contiguous(position, DType::kF32));
    const Tensor rows = in.size() > kWithoutStates + 2
                            ? cache_rows(in[kWithoutStates], in[kWithoutStates + 2])
                            : in[kWithoutStates];
    state = where(reshape(begun, {position.dim(0), 1, 1, 1}), rows, graph::scalar(0));
  }
  std::vector<Tensor> out;
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    state = tokens.next(tokens.decayed(state, t), t);
    out.push_back(reshape(sum(mul(state, tokens.column(0, t)), 2),
                          {sizes.batch, 1, sizes.heads, sizes.value_dim}));
  }
  const Tensor parts[] = {flat(in_time(out, sizes.out)), flat(state)};
  return concat(parts, 0);
}

// --- Backward: the same inputs without states, and the gradients of out and of the states after
// → [dq | dk | dv | ddecay | dbeta] --------------------------------------------------------------

std::array<Shape, kWithoutStates> gradient_shapes(Inputs in) {
  return {in[0].shape(), in[1].shape(), in[2].shape(), in[3].shape(), in[4].shape()};
}

std::vector<Tensor> grad_delta_rule(const graph::GradCall& call) {
  if (has_states(call.inputs)) {
    fail(ErrorKind::kUnsupported,
         "gated_delta_rule: what goes on from earlier states has no gradient");
  }
  const Sizes sizes(call.inputs[0].shape(), call.inputs[2].shape());
  const auto d = graph::unpack(call.dy, {sizes.out, sizes.state});
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.end());
  inputs.insert(inputs.end(), d.begin(), d.end());
  return graph::unpack(record(kGatedDeltaRuleBackward, inputs, call.node.attrs),
                       gradient_shapes(call.inputs));
}

graph::TypedShape infer_delta_rule_backward(const Node& node) {
  const Sizes sizes = checked_sizes(node);
  const Node &dout = *node.inputs[kWithoutStates], &dafter = *node.inputs[kWithoutStates + 1];
  if (!(dout.shape == sizes.out) || !(dafter.shape == sizes.state) || dout.dtype != DType::kF32 ||
      dafter.dtype != DType::kF32) {
    shape_error(node, "the gradients do not fit the results");
  }
  int64_t total = 0;
  for (size_t i = 0; i < kWithoutStates; ++i) total += node.inputs[i]->shape.elements();
  return {DType::kF32, {total}};
}

void run_delta_rule_backward(const KernelCall& call) {
  kernels::DeltaRuleBackwardArgs args{.forward = kernel_args(call),
                                      .dout = call.inputs[kWithoutStates].as<const float>(),
                                      .dafter = call.inputs[kWithoutStates + 1].as<const float>(),
                                      .dq = call.output.as<float>(),
                                      .dk = nullptr,
                                      .dv = nullptr,
                                      .ddecay = nullptr,
                                      .dbeta = nullptr,
                                      .workspace = call.workspace};
  const auto size = [&](size_t i) { return call.inputs[i].shape.elements(); };
  args.dk = args.dq + size(0);
  args.dv = args.dk + size(1);
  args.ddecay = args.dv + size(2);
  args.dbeta = args.ddecay + size(3);
  kernels::delta_rule_backward(*call.pool, args);
}

size_t delta_rule_backward_workspace(const Node& node, int threads) {
  const Shape& q = node.inputs[0]->shape;
  return kernels::delta_rule_backward_workspace_bytes(q[1], q[3], threads);
}

Tensor delta_rule_backward_meaning(const Node& node, Inputs in) {
  const Tokens tokens(node, in);
  const Sizes& sizes = tokens.sizes;
  std::vector<Tensor> states = {graph::expand(graph::scalar(0), sizes.state)};
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    states.push_back(tokens.next(tokens.decayed(states.back(), t), t));
  }
  const auto count = static_cast<size_t>(sizes.tokens);
  std::vector<Tensor> dq(count), dk(count), dv(count), ddecay(count), dbeta(count);
  Tensor gradient = in[kWithoutStates + 1];
  for (size_t at = count; at-- > 0;) {
    const auto t = static_cast<int64_t>(at);
    const Tensor dout = tokens.row(in[kWithoutStates], t, sizes.value_dim);
    const Tensor key = tokens.column(1, t), beta = tokens.row(in[4], t, 1);
    const Tensor decayed = tokens.decayed(states[at], t), error = tokens.error(decayed, t);
    gradient = add(gradient, mul(tokens.column(0, t), dout));
    dq[at] = tokens.of_key_heads(sum(mul(states[at + 1], dout), 3));
    const Tensor dchange = sum(mul(gradient, key), 2), derror = mul(dchange, beta);
    const Tensor dwritten = sum(mul(gradient, mul(error, beta)), 3);
    dk[at] = tokens.of_key_heads(tokens.correct ? sub(dwritten, sum(mul(decayed, derror), 3))
                                                : dwritten);
    dv[at] = reshape(derror, {sizes.batch, 1, sizes.heads, sizes.value_dim});
    const Shape gate = {sizes.batch, 1, sizes.heads};
    dbeta[at] = reshape(sum(mul(dchange, error), 3), gate);
    const Tensor ddecayed = tokens.correct ? sub(gradient, mul(key, derror)) : gradient;
    const Tensor of_rows = sum(mul(ddecayed, states[at]), 3);
    ddecay[at] = tokens.by_rows ? reshape(of_rows, {sizes.batch, 1, sizes.heads, sizes.key_dim})
                                : reshape(sum(of_rows, 2), gate);
    gradient = tokens.decayed(ddecayed, t);
  }
  const auto shapes = gradient_shapes(in.first(kWithoutStates));
  const Tensor parts[] = {flat(in_time(dq, shapes[0])), flat(in_time(dk, shapes[1])),
                          flat(in_time(dv, shapes[2])), flat(in_time(ddecay, shapes[3])),
                          flat(in_time(dbeta, shapes[4]))};
  return concat(parts, 0);
}

// --- Cost and cases ------------------------------------------------------------------------------

// Two products of the state per token and changing it, and reading and writing it.
graph::Cost delta_rule_cost(const Node& node) {
  const Sizes sizes(node.inputs[0]->shape, node.inputs[2]->shape);
  const auto state = static_cast<double>(sizes.state.elements());
  return {7 * state * static_cast<double>(sizes.tokens), 2 * sizeof(float) * state};
}

std::vector<OpCase> delta_rule_cases(bool gradient) {
  std::vector<OpCase> cases;
  const auto add_case = [&](const char* label, const Shape& q, const Shape& v, bool tiled,
                            bool corrects, bool by_rows = false) {
    const Shape gates = {v[0], v[1], v[2]};
    OpCase made{label,
                {{DType::kF32, q},
                 {DType::kF32, q},
                 {DType::kF32, v},
                 {DType::kF32, by_rows ? Shape{v[0], v[1], v[2], q[3]} : gates},
                 {DType::kF32, gates}},
                {},
                -0.9,
                0.9,
                gradient ? 5e-5 : 1e-5};
    if (gradient) {
      made.inputs.push_back({DType::kF32, v});
      made.inputs.push_back({DType::kF32, {v[0], v[2], q[3], v[3]}});
    }
    made.build = [tiled, corrects, gradient](Inputs in) {
      return record(gradient ? kGatedDeltaRuleBackward : kGatedDeltaRule, in,
                    {{"tiled", int64_t{tiled}}, {"corrects", int64_t{corrects}}});
    };
    cases.push_back(std::move(made));
  };
  add_case("a head", {1, 6, 1, 8}, {1, 6, 1, 16}, false, true);
  add_case("heads that share keys", {2, 4, 2, 7}, {2, 4, 4, 5}, false, true);
  add_case("tiled heads", {2, 4, 2, 7}, {2, 4, 4, 5}, true, true);
  add_case("strips", {1, 3, 1, 5}, {1, 3, 2, 70}, false, true);
  add_case("no correction", {2, 6, 2, 7}, {2, 6, 4, 21}, false, false);
  add_case("decays of rows", {2, 5, 2, 7}, {2, 5, 4, 21}, true, true, true);
  add_case("decays of rows, no correction", {1, 4, 1, 5}, {1, 4, 3, 9}, false, false, true);
  if (gradient) return cases;
  for (const bool slots : {false, true}) {
    cases.push_back({slots ? "states of slots" : "states",
                     {f32({2, 3, 2, 6}), f32({2, 3, 2, 6}), f32({2, 3, 2, 9}), f32({2, 3, 2}),
                      f32({2, 3, 2}), f32({slots ? 3 : 2, 2, 6, 9})},
                     [slots](Inputs in) {
                       DeltaRuleOptions options{.before = in[5]};
                       options.position = int_pair(4, 0);
                       if (slots) options.slots = int_pair(2, 1);
                       return gated_delta_rule(in[0], in[1], in[2], in[3], in[4], options).out;
                     },
                     -0.9,
                     0.9,
                     1e-5});
  }
  cases.push_back({"states in a slice",
                   {f32({1, 3, 2, 6}), f32({1, 3, 2, 6}), f32({1, 3, 2, 9}), f32({1, 3, 2}),
                    f32({1, 3, 2}), f32({1, 2, 8, 9})},
                   [](Inputs in) {
                     DeltaRuleOptions options{.before = graph::slice(in[5], 2, 1, 7)};
                     options.position = ops::full({1}, 4, DType::kI32);
                     return gated_delta_rule(in[0], in[1], in[2], in[3], in[4], options).out;
                   },
                   -0.9,
                   0.9,
                   1e-5});
  return cases;
}

}  // namespace

const OpDef kGatedDeltaRule = {.name = "gated_delta_rule",
                               .infer = infer_delta_rule,
                               .kernel = run_delta_rule,
                               .workspace = delta_rule_workspace,
                               .layout = graph::InputLayout::kInner,
                               .contiguous_input = is_states,
                               .meaning = delta_rule_meaning,
                               .grad = grad_delta_rule,
                               .cost = delta_rule_cost,
                               .cases = [] { return delta_rule_cases(false); }};
const OpDef kGatedDeltaRuleBackward = {.name = "gated_delta_rule_backward",
                                       .infer = infer_delta_rule_backward,
                                       .kernel = run_delta_rule_backward,
                                       .workspace = delta_rule_backward_workspace,
                                       .meaning = delta_rule_backward_meaning,
                                       .cases = [] { return delta_rule_cases(true); }};

DeltaRuleResult gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& decay, const Tensor& beta,
                                 const DeltaRuleOptions& options) {
  std::vector<Tensor> inputs = {q, k, v, decay, beta};
  append_states(options, inputs);
  const Tensor all =
      record(kGatedDeltaRule, inputs,
             {{"tiled", int64_t{options.tiled}}, {"corrects", int64_t{options.corrects}}});
  const Sizes sizes(q.shape(), v.shape());
  const auto parts = graph::unpack(all, {sizes.out, sizes.state});
  return {parts[0], parts[1]};
}

}  // namespace lumen::ops
