// The recurrence of selective state spaces (Mamba).
#include "lib/kernels/selective_scan.h"

#include "lib/base/error.h"
#include "lib/kernels/selective_scan_backward.h"
#include "lib/ops/attention_inputs.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kSelectiveScan, kSelectiveScanBackward;

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

// Inputs: u, time, rates, b, c, and of a text that goes on the states before, the position, and
// slots or not.
constexpr size_t kScanWithoutStates = 5;

struct ScanSizes {
  ScanSizes(const Shape& u, const Shape& b)
      : batch(u[0]),
        tokens(u[1]),
        channels(u[2]),
        state(b[2]),
        out({batch, tokens, channels}),
        kept({batch, 1, state, channels}) {}
  int64_t batch, tokens, channels, state;
  Shape out, kept;
};

// The sizes of what both operations begin with.
ScanSizes checked_scan_sizes(const Node& node) {
  for (size_t i = 0; i < kScanWithoutStates; ++i) {
    if (node.inputs[i]->dtype != DType::kF32) shape_error(node, "needs float32");
  }
  const Shape &u = node.inputs[0]->shape, &b = node.inputs[3]->shape;
  const bool ranks = u.rank() == 3 && b.rank() == 3 && b[0] == u[0] && b[1] == u[1];
  if (!ranks || !(node.inputs[1]->shape == u) || !(node.inputs[4]->shape == b) ||
      !(node.inputs[2]->shape == Shape{b[2], u[2]})) {
    shape_error(node,
                "needs u, time [batch, tokens, channels], rates [state, channels] and b, c [batch, "
                "tokens, state]");
  }
  return ScanSizes(u, b);
}

bool goes_on(size_t inputs) {
  return inputs > kScanWithoutStates;
}

// → [out | states after].
graph::TypedShape infer_selective_scan(const Node& node) {
  const ScanSizes sizes = checked_scan_sizes(node);
  if (goes_on(node.inputs.size())) {
    require_states(node, kScanWithoutStates, {1, sizes.state, sizes.channels}, "1, state, channels",
                   sizes.batch);
  }
  return {DType::kF32, {sizes.out.elements() + sizes.kept.elements()}};
}

// Without states and results.
kernels::SelectiveScanArgs scan_args(const KernelCall& call) {
  const ScanSizes sizes(call.inputs[0].shape, call.inputs[3].shape);
  const auto rows = [&](size_t i) -> kernels::ScanRows {
    const Operand& x = call.inputs[i];
    return {x.as<const float>(), x.strides[0], x.strides[1]};
  };
  return {.batch = sizes.batch,
          .tokens = sizes.tokens,
          .channels = sizes.channels,
          .state = sizes.state,
          .u = rows(0),
          .time = rows(1),
          .b = rows(3),
          .c = rows(4),
          .rates = call.inputs[2].as<const float>(),
          .workspace = call.workspace};
}

void run_selective_scan(const KernelCall& call) {
  kernels::SelectiveScanArgs args = scan_args(call);
  args.out = call.output.as<float>();
  args.after = args.out + args.batch * args.tokens * args.channels;
  if (goes_on(call.inputs.size())) {
    read_states(call, kScanWithoutStates, args);
  }
  kernels::selective_scan(*call.pool, args);
}

bool is_rates_or_states(const Node&, size_t i) {
  return i == 2 || i == kScanWithoutStates;
}

size_t selective_scan_workspace(const Node& node, int threads) {
  return kernels::selective_scan_workspace_bytes(node.inputs[3]->shape[2], threads);
}

// Tokens of the inputs in the form in which meanings compute with states [batch, state, channels].
struct ScanTokens {
  explicit ScanTokens(Inputs inputs) : in(inputs), sizes(in[0].shape(), in[3].shape()) {}

  Tensor row(const Tensor& x, int64_t t) const { return slice(x, 1, t, t + 1); }
  Tensor column(size_t input, int64_t t) const {
    return reshape(row(in[input], t), {sizes.batch, sizes.state, 1});
  }
  Tensor decay(int64_t t) const { return exp(mul(row(in[1], t), in[2])); }
  Tensor next(const Tensor& state, int64_t t) const {
    return add(mul(decay(t), state), mul(row(in[0], t), column(3, t)));
  }
  Tensor empty() const {
    return graph::expand(graph::scalar(0), {sizes.batch, sizes.state, sizes.channels});
  }

  Inputs in;
  ScanSizes sizes;
};

// Parts of each token side by side; zeros of `shape` without tokens.
Tensor side_by_side(const std::vector<Tensor>& parts, const Shape& shape) {
  const Tensor all = parts.empty() ? graph::expand(graph::scalar(0), shape) : concat(parts, 1);
  return reshape(all, {-1});
}

Tensor selective_scan_meaning(const Node&, Inputs in) {
  const ScanTokens tokens(in);
  const ScanSizes& sizes = tokens.sizes;
  Tensor state = tokens.empty();
  if (goes_on(in.size())) {
    const Tensor& position = in[kScanWithoutStates + 1];
    const Tensor begun = less_than(graph::scalar(0), graph::contiguous(position, DType::kF32));
    const Tensor rows = in.size() > kScanWithoutStates + 2
                            ? cache_rows(in[kScanWithoutStates], in[kScanWithoutStates + 2])
                            : in[kScanWithoutStates];
    state = where(reshape(begun, {position.dim(0), 1, 1}), reshape(rows, state.shape()),
                  graph::scalar(0));
  }
  std::vector<Tensor> out;
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    state = tokens.next(state, t);
    const Tensor sums = sum(mul(state, tokens.column(4, t)), 1);
    out.push_back(reshape(sums, {sizes.batch, 1, sizes.channels}));
  }
  const Tensor both[] = {side_by_side(out, sizes.out), reshape(state, {-1})};
  return concat(both, 0);
}

// --- Backward: the same inputs without states, and the gradients of out and of the states after
// → [du | dtime | drates | db | dc] ---------------------------------------------------------------

std::vector<Tensor> grad_selective_scan(const graph::GradCall& call) {
  if (goes_on(call.inputs.size())) {
    fail(ErrorKind::kUnsupported,
         "selective_scan: what goes on from earlier states has no gradient");
  }
  const ScanSizes sizes(call.inputs[0].shape(), call.inputs[3].shape());
  const auto d = graph::unpack(call.dy, {sizes.out, sizes.kept});
  std::vector<Tensor> inputs(call.inputs.begin(), call.inputs.end());
  inputs.insert(inputs.end(), d.begin(), d.end());
  std::vector<Shape> shapes;
  for (const Tensor& x : call.inputs) shapes.push_back(x.shape());
  return graph::unpack(record(kSelectiveScanBackward, inputs), shapes);
}

graph::TypedShape infer_selective_scan_backward(const Node& node) {
  const ScanSizes sizes = checked_scan_sizes(node);
  const Node &dout = *node.inputs[kScanWithoutStates],
             &dafter = *node.inputs[kScanWithoutStates + 1];
  if (!(dout.shape == sizes.out) || !(dafter.shape == sizes.kept) || dout.dtype != DType::kF32 ||
      dafter.dtype != DType::kF32) {
    shape_error(node, "the gradients do not fit the results");
  }
  int64_t total = 0;
  for (size_t i = 0; i < kScanWithoutStates; ++i) total += node.inputs[i]->shape.elements();
  return {DType::kF32, {total}};
}

void run_selective_scan_backward(const KernelCall& call) {
  const auto size = [&](size_t i) { return call.inputs[i].shape.elements(); };
  float* const du = call.output.as<float>();
  float *const dtime = du + size(0), *const drates = dtime + size(1), *const db = drates + size(2);
  kernels::selective_scan_backward(*call.pool,
                                   {.forward = scan_args(call),
                                    .dout = call.inputs[kScanWithoutStates].as<const float>(),
                                    .dafter = call.inputs[kScanWithoutStates + 1].as<const float>(),
                                    .du = du,
                                    .dtime = dtime,
                                    .drates = drates,
                                    .db = db,
                                    .dc = db + size(3),
                                    .workspace = call.workspace});
}

size_t selective_scan_backward_workspace(const Node& node, int threads) {
  const ScanSizes sizes(node.inputs[0]->shape, node.inputs[3]->shape);
  return kernels::selective_scan_backward_workspace_bytes(sizes.batch, sizes.tokens, sizes.channels,
                                                          sizes.state, threads);
}

Tensor selective_scan_backward_meaning(const Node&, Inputs in) {
  const ScanTokens tokens(in);
  const ScanSizes& sizes = tokens.sizes;
  std::vector<Tensor> states = {tokens.empty()};
  for (int64_t t = 0; t < sizes.tokens; ++t) states.push_back(tokens.next(states.back(), t));
  const auto count = static_cast<size_t>(sizes.tokens);
  std::vector<Tensor> du(count), dtime(count), db(count), dc(count);
  Tensor drates = graph::expand(graph::scalar(0), in[2].shape());
  Tensor gradient = reshape(in[kScanWithoutStates + 1], states[0].shape());
  const Shape row = {sizes.batch, 1, sizes.channels}, numbers = {sizes.batch, 1, sizes.state};
  for (size_t at = count; at-- > 0;) {
    const auto t = static_cast<int64_t>(at);
    const Tensor dout = tokens.row(in[kScanWithoutStates], t);
    gradient = add(gradient, mul(tokens.column(4, t), dout));
    dc[at] = reshape(sum(mul(states[at + 1], dout), 2), numbers);
    db[at] = reshape(sum(mul(gradient, tokens.row(in[0], t)), 2), numbers);
    du[at] = reshape(sum(mul(gradient, tokens.column(3, t)), 1), row);
    gradient = mul(gradient, tokens.decay(t));
    const Tensor dpower = mul(gradient, states[at]);
    dtime[at] = reshape(sum(mul(dpower, in[2]), 1), row);
    drates = add(drates, sum(mul(dpower, tokens.row(in[1], t)), 0));
  }
  const Shape all = {sizes.batch, sizes.tokens, sizes.state};
  const Tensor parts[] = {side_by_side(du, sizes.out), side_by_side(dtime, sizes.out),
                          reshape(drates, {-1}), side_by_side(db, all), side_by_side(dc, all)};
  return concat(parts, 0);
}

// --- Cost and cases ------------------------------------------------------------------------------

// An exponential, two products and two sums for each number of a state and token, of which an
// exponential is worth ten.
graph::Cost selective_scan_cost(const Node& node) {
  const ScanSizes sizes(node.inputs[0]->shape, node.inputs[3]->shape);
  const auto state = static_cast<double>(sizes.kept.elements());
  return {15 * state * static_cast<double>(sizes.tokens), 2 * sizeof(float) * state};
}

std::vector<OpCase> selective_scan_cases(bool gradient) {
  std::vector<OpCase> cases;
  // Rates below 0, and times above.
  const auto build = [gradient](Inputs in, const SelectiveScanOptions& states) {
    const Tensor time = exp(in[1]), rates = neg(exp(in[2]));
    if (gradient) {
      return record(kSelectiveScanBackward, {in[0], time, rates, in[3], in[4], in[5], in[6]});
    }
    const auto result = selective_scan(in[0], time, rates, in[3], in[4], states);
    const Tensor parts[] = {reshape(result.out, {-1}), reshape(result.state, {-1})};
    return concat(parts, 0);
  };
  const auto made_for = [&](const char* label, int64_t batch, int64_t tokens, int64_t channels,
                            int64_t state) {
    const graph::TypedShape rows = f32({batch, tokens, channels});
    const graph::TypedShape numbers = f32({batch, tokens, state});
    OpCase made{label,
                {rows, rows, f32({state, channels}), numbers, numbers},
                [build](Inputs in) { return build(in, {}); },
                -0.9,
                0.9,
                gradient ? 5e-5 : 1e-5};
    if (gradient) {
      made.inputs.push_back(rows);
      made.inputs.push_back(f32({batch, 1, state, channels}));
    }
    return made;
  };
  cases.push_back(made_for("a strip", 1, 6, 16, 4));
  cases.push_back(made_for("strips", 2, 5, 37, 3));
  cases.push_back(made_for("groups of channels", 1, 3, 150, 2));
  cases.push_back(made_for("one number", 2, 4, 5, 1));
  if (gradient) return cases;
  for (const bool slots : {false, true}) {
    OpCase made = made_for(slots ? "states of slots" : "states", 2, 3, 9, 4);
    made.inputs.push_back(f32({slots ? 3 : 2, 1, 4, 9}));
    made.build = [build, slots](Inputs in) {
      SelectiveScanOptions states{.before = in[5]};
      states.position = int_pair(4, 0);
      if (slots) states.slots = int_pair(2, 1);
      return build(in, states);
    };
    cases.push_back(std::move(made));
  }
  return cases;
}

}  // namespace

const OpDef kSelectiveScan = {.name = "selective_scan",
                              .infer = infer_selective_scan,
                              .kernel = run_selective_scan,
                              .workspace = selective_scan_workspace,
                              .layout = graph::InputLayout::kInner,
                              .contiguous_input = is_rates_or_states,
                              .meaning = selective_scan_meaning,
                              .grad = grad_selective_scan,
                              .cost = selective_scan_cost,
                              .cases = [] { return selective_scan_cases(false); }};
const OpDef kSelectiveScanBackward = {.name = "selective_scan_backward",
                                      .infer = infer_selective_scan_backward,
                                      .kernel = run_selective_scan_backward,
                                      .workspace = selective_scan_backward_workspace,
                                      .meaning = selective_scan_backward_meaning,
                                      .cases = [] { return selective_scan_cases(true); }};

SelectiveScanResult selective_scan(const Tensor& u, const Tensor& time, const Tensor& rates,
                                   const Tensor& b, const Tensor& c,
                                   const SelectiveScanOptions& options) {
  std::vector<Tensor> inputs = {u, time, rates, b, c};
  append_states(options, inputs);
  const Tensor all = record(kSelectiveScan, inputs);
  const ScanSizes sizes(u.shape(), b.shape());
  const auto parts = graph::unpack(all, {sizes.out, sizes.kept});
  return {parts[0], parts[1]};
}

}  // namespace lumen::ops
