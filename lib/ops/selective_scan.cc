// The recurrence of selective state spaces (Mamba).
#include "lib/kernels/selective_scan.h"

#include "lib/ops/attention_inputs.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kSelectiveScan;

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

// → [out | states after].
graph::TypedShape infer_selective_scan(const Node& node) {
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
  const ScanSizes sizes(u, b);
  if (node.inputs.size() > kScanWithoutStates) {
    const Node& before = *node.inputs[kScanWithoutStates];
    const Shape wanted = {before.shape.rank() == 4 ? before.shape[0] : 0, 1, sizes.state,
                          sizes.channels};
    if (before.dtype != DType::kF32 || !(before.shape == wanted)) {
      shape_error(node, "the states must be float32 [rows, 1, state, channels]");
    }
    require_position(node, *node.inputs[kScanWithoutStates + 1], sizes.batch);
    require_cache_rows(node, kScanWithoutStates + 2, before.shape[0], sizes.batch);
  }
  return {DType::kF32, {sizes.out.elements() + sizes.kept.elements()}};
}

void run_selective_scan(const KernelCall& call) {
  const ScanSizes sizes(call.inputs[0].shape, call.inputs[3].shape);
  const auto rows = [&](size_t i) -> kernels::ScanRows {
    const Operand& x = call.inputs[i];
    return {x.as<const float>(), x.strides[0], x.strides[1]};
  };
  float* const out = call.output.as<float>();
  kernels::SelectiveScanArgs args = {.batch = sizes.batch,
                                     .tokens = sizes.tokens,
                                     .channels = sizes.channels,
                                     .state = sizes.state,
                                     .u = rows(0),
                                     .time = rows(1),
                                     .b = rows(3),
                                     .c = rows(4),
                                     .rates = call.inputs[2].as<const float>(),
                                     .out = out,
                                     .after = out + sizes.out.elements(),
                                     .workspace = call.workspace};
  if (call.inputs.size() > kScanWithoutStates) {
    const Operand &before = call.inputs[kScanWithoutStates],
                  &position = call.inputs[kScanWithoutStates + 1];
    args.before = before.as<const float>();
    args.position = position.as<const int32_t>();
    args.position_stride = position.shape[0] == 1 ? 0 : 1;
    if (call.inputs.size() > kScanWithoutStates + 2) {
      check_slots(call.inputs.back(), before.shape[0]);
      args.slots = call.inputs.back().as<const int32_t>();
    }
  }
  kernels::selective_scan(*call.pool, args);
}

bool is_rates_or_states(const Node&, size_t i) {
  return i == 2 || i == kScanWithoutStates;
}

size_t selective_scan_workspace(const Node& node, int threads) {
  return kernels::selective_scan_workspace_bytes(node.inputs[3]->shape[2], threads);
}

Tensor selective_scan_meaning(const Node&, Inputs in) {
  const ScanSizes sizes(in[0].shape(), in[3].shape());
  const Shape kept = {sizes.batch, sizes.state, sizes.channels};
  Tensor state = graph::expand(graph::scalar(0), kept);
  if (in.size() > kScanWithoutStates) {
    const Tensor& position = in[kScanWithoutStates + 1];
    const Tensor begun = less_than(graph::scalar(0), graph::contiguous(position, DType::kF32));
    const Tensor rows = in.size() > kScanWithoutStates + 2
                            ? cache_rows(in[kScanWithoutStates], in[kScanWithoutStates + 2])
                            : in[kScanWithoutStates];
    state = where(reshape(begun, {position.dim(0), 1, 1}), reshape(rows, kept), graph::scalar(0));
  }
  std::vector<Tensor> parts;
  for (int64_t t = 0; t < sizes.tokens; ++t) {
    const auto row = [&](size_t i) { return slice(in[i], 1, t, t + 1); };
    const auto column = [&](size_t i) { return reshape(row(i), {sizes.batch, sizes.state, 1}); };
    const Tensor decay = exp(mul(row(1), in[2]));
    state = add(mul(decay, state), mul(row(0), column(3)));
    parts.push_back(reshape(sum(mul(state, column(4)), 1), {sizes.batch, 1, sizes.channels}));
  }
  const Tensor out = parts.empty() ? graph::expand(graph::scalar(0), sizes.out) : concat(parts, 1);
  const Tensor both[] = {reshape(out, {-1}), reshape(state, {-1})};
  return concat(both, 0);
}

// An exponential, two products and two sums for each number of a state and token, of which an
// exponential is worth ten.
graph::Cost selective_scan_cost(const Node& node) {
  const ScanSizes sizes(node.inputs[0]->shape, node.inputs[3]->shape);
  const auto state = static_cast<double>(sizes.kept.elements());
  return {15 * state * static_cast<double>(sizes.tokens), 2 * sizeof(float) * state};
}

std::vector<OpCase> selective_scan_cases() {
  std::vector<OpCase> cases;
  // Rates below 0, and times above.
  const auto build = [](Inputs in, const SelectiveScanOptions& states) {
    const Tensor both[] = {neg(exp(in[2])), exp(in[1])};
    const auto result = selective_scan(in[0], both[1], both[0], in[3], in[4], states);
    const Tensor parts[] = {reshape(result.out, {-1}), reshape(result.state, {-1})};
    return concat(parts, 0);
  };
  const auto inputs = [](int64_t batch, int64_t tokens, int64_t channels, int64_t state) {
    const Shape rows = {batch, tokens, channels}, numbers = {batch, tokens, state};
    return std::vector<graph::TypedShape>{{DType::kF32, rows},
                                          {DType::kF32, rows},
                                          {DType::kF32, {state, channels}},
                                          {DType::kF32, numbers},
                                          {DType::kF32, numbers}};
  };
  const auto add_case = [&](const char* label, int64_t batch, int64_t tokens, int64_t channels,
                            int64_t state) {
    OpCase made{label, inputs(batch, tokens, channels, state), {}, -0.9, 0.9, 1e-5};
    made.build = [build](Inputs in) { return build(in, {}); };
    cases.push_back(std::move(made));
  };
  add_case("a strip", 1, 6, 16, 4);
  add_case("strips", 2, 5, 37, 3);
  add_case("one number", 2, 4, 5, 1);
  for (const bool slots : {false, true}) {
    OpCase made{slots ? "states of slots" : "states", inputs(2, 3, 9, 4), {}, -0.9, 0.9, 1e-5};
    made.inputs.push_back({DType::kF32, {slots ? 3 : 2, 1, 4, 9}});
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
                              .cost = selective_scan_cost,
                              .cases = selective_scan_cases};

SelectiveScanResult selective_scan(const Tensor& u, const Tensor& time, const Tensor& rates,
                                   const Tensor& b, const Tensor& c,
                                   const SelectiveScanOptions& options) {
  std::vector<Tensor> inputs = {u, time, rates, b, c};
  if (options.before.defined()) {
    inputs.push_back(options.before);
    inputs.push_back(options.position);
    if (options.slots.defined()) inputs.push_back(options.slots);
  }
  const Tensor all = record(kSelectiveScan, inputs);
  const ScanSizes sizes(u.shape(), b.shape());
  const auto parts = graph::unpack(all, {sizes.out, sizes.kept});
  return {parts[0], parts[1]};
}

}  // namespace lumen::ops
