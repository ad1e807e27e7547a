// experts: a sparse feed-forward layer, its experts' weights in their stored format; and its
// gradient where those do not change.
//
// Inputs: x, the router's logits, of the gradient that of the result, then the gate, unless `plain`
// is 1, the up and the down matrices of all experts, then, if `biases` is 1, the biases of all in
// the same order, then, if `scaled` is 1, the scales.
#include "lib/kernels/experts.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <numbers>

#include "lib/base/error.h"
#include "lib/base/round_up.h"
#include "lib/ops/cases.h"
#include "lib/ops/matrix_rows.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kExperts, kExpertsBackward;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::Operand;
using graph::record;
using Inputs = std::span<const Tensor>;

// The first of the matrices among the inputs.
size_t first_matrix(const Node& node) {
  return node.op == &kExperts ? 2 : 3;
}

bool has_biases(const Node& node) {
  return node.attrs.integer("biases") != 0;
}

bool has_gates(const Node& node) {
  return node.attrs.integer("plain") == 0;
}

bool has_scales(const Node& node) {
  return node.attrs.integer("scaled") != 0;
}

// One past the last of the matrices, where the biases begin.
size_t end_of_matrices(const Node& node) {
  return node.inputs.size() - (has_scales(node) ? 1 : 0) - (has_biases(node) ? 3 : 0);
}

int64_t expert_count(const Node& node) {
  return static_cast<int64_t>(end_of_matrices(node) - first_matrix(node)) /
         (has_gates(node) ? 3 : 2);
}

int64_t token_count(const Node& node) {
  const Shape& logits = node.inputs[1]->shape;
  return logits.elements() / logits[-1];
}

// The inputs are of a whole number of experts, at least one.
void check_experts(const Node& node) {
  const Node& x = *node.inputs[0];
  const size_t first = first_matrix(node);
  for (size_t i = 0; i < first; ++i) {
    if (node.inputs[i]->dtype != DType::kF32 || node.inputs[i]->shape.rank() == 0) {
      shape_error(node, "x and the router's logits must be float32 rows");
    }
  }
  const int64_t count = expert_count(node), used = node.attrs.integer("used");
  Shape routed = x.shape;
  routed[-1] = count;
  if (node.inputs[1]->shape != routed) {
    shape_error(node, str("the router's logits must be ", to_string(routed)));
  }
  if (used < 1 || used > count) {
    shape_error(node, str(used, " of ", count, " experts cannot be chosen"));
  }
  const int64_t hidden = x.shape[-1], inner = node.inputs[first]->shape[0];
  const size_t end = end_of_matrices(node);
  for (size_t i = first; i < end; ++i) {
    const Node& w = *node.inputs[i];
    const bool is_down = static_cast<int64_t>(end - i) <= count;
    if (w.shape != (is_down ? Shape{hidden, inner} : Shape{inner, hidden})) {
      shape_error(node, "gate and up must be [n, k] and down [k, n] with the k of x");
    }
    const bool stored = is_float(w.dtype) && w.dtype != DType::kF64;
    if (!stored && !is_quantized(w.dtype)) {
      shape_error(node, "the weights must be quantised or of floats of at most 32 bits");
    }
  }
  const size_t end_of_biases = end + (has_biases(node) ? 3 : 0);
  if (has_scales(node)) {
    const Node& scales = *node.inputs[end_of_biases];
    if (scales.dtype != DType::kF32 || scales.shape != Shape{count}) {
      shape_error(node, "the scales must be float32 [experts]");
    }
  }
  for (size_t i = end; i < end_of_biases; ++i) {
    const Node& b = *node.inputs[i];
    if (b.dtype != DType::kF32 || b.shape != Shape{count, i < end + 2 ? inner : hidden}) {
      shape_error(node, "the biases must be float32 [experts, n], [experts, n] and [experts, k]");
    }
  }
  const double limit = node.attrs.real("limit"), alpha = node.attrs.real("alpha");
  if (!(limit >= 0 && std::isfinite(limit) && std::isfinite(alpha))) {
    shape_error(node, str("alpha must be a number and the limit 0 or a positive one, not ", alpha,
                          " and ", limit));
  }
  if (limit > 0 && node.attrs.integer("gelu") != 0) {
    shape_error(node, "a limit goes with silu alone");
  }
  if (!has_gates(node) && (has_biases(node) || limit > 0 || node.attrs.integer("gelu") != 0)) {
    shape_error(node, "without gates there are no biases, no limit and no GELU");
  }
}

graph::TypedShape infer_experts(const Node& node) {
  check_experts(node);
  return {DType::kF32, node.inputs[0]->shape};
}

graph::TypedShape infer_experts_backward(const Node& node) {
  check_experts(node);
  const Shape &x = node.inputs[0]->shape, &logits = node.inputs[1]->shape;
  if (node.inputs[2]->shape != x) shape_error(node, "the gradient must have the shape of x");
  return {DType::kF32, {x.elements() + logits.elements()}};
}

kernels::ExpertsShape expert_sizes(const Node& node) {
  const Shape& gate = node.inputs[first_matrix(node)]->shape;
  return {token_count(node), gate[1], gate[0], expert_count(node), node.attrs.integer("used")};
}

// What the kernel is told of all matrices lies before its own memory.
size_t matrices_bytes(const Node& node) {
  const size_t bytes = (end_of_matrices(node) - first_matrix(node)) * sizeof(kernels::Weight);
  return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64));
}

size_t experts_workspace(const Node& node, int threads) {
  return matrices_bytes(node) + kernels::experts_workspace_bytes(expert_sizes(node), threads);
}

size_t experts_backward_workspace(const Node& node, int threads) {
  return matrices_bytes(node) + kernels::experts_backward_bytes(expert_sizes(node), threads);
}

kernels::ExpertsArgs expert_arguments(const KernelCall& call) {
  const size_t first = first_matrix(*call.node);
  const auto count = static_cast<size_t>(expert_count(*call.node));
  auto* const matrices = reinterpret_cast<kernels::Weight*>(call.workspace);
  const size_t gates = has_gates(*call.node) ? count : 0, all = gates + 2 * count;
  for (size_t i = 0; i < all; ++i) {
    const Operand& w = call.inputs[first + i];
    new (matrices + i) kernels::Weight{w.data, w.dtype, w.shape[0], w.shape[1], w.layout};
  }
  kernels::ExpertBias biases[3];
  for (size_t i = 0; has_biases(*call.node) && i < 3; ++i) {
    const Operand& bias = call.inputs[first + all + i];
    biases[i] = {bias.as<const float>(), matrix_rows(bias).stride};
  }
  const graph::Attrs& attrs = call.node->attrs;
  const Operand &x = call.inputs[0], &logits = call.inputs[1];
  return {
      .x = x.as<const float>(),
      .x_stride = matrix_rows(x).stride,
      .logits = logits.as<const float>(),
      .logits_stride = matrix_rows(logits).stride,
      .m = token_count(*call.node),
      .used = attrs.integer("used"),
      .normalize = attrs.integer("normalize") != 0,
      .gate = {matrices, gates},
      .up = {matrices + gates, count},
      .down = {matrices + gates + count, count},
      .gate_bias = biases[0],
      .up_bias = biases[1],
      .down_bias = biases[2],
      .clamped = {static_cast<float>(attrs.real("alpha")), static_cast<float>(attrs.real("limit"))},
      .gelu = attrs.integer("gelu") != 0,
      .scales = has_scales(*call.node) ? call.inputs.back().as<const float>() : nullptr,
      .y = call.output.as<float>(),
      .workspace = call.workspace + matrices_bytes(*call.node)};
}

void run_experts(const KernelCall& call) {
  kernels::experts(*call.pool, expert_arguments(call));
}

void run_experts_backward(const KernelCall& call) {
  const kernels::ExpertsArgs forward = expert_arguments(call);
  auto* const dx = call.output.as<float>();
  kernels::experts_backward(*call.pool, {.forward = forward,
                                         .dy = call.inputs[2].as<const float>(),
                                         .dx = dx,
                                         .dprobability = dx + call.inputs[0].shape.elements()});
}

bool experts_take_panels(const Node& node, size_t i) {
  return i >= first_matrix(node) && i < end_of_matrices(node);
}

double part_of_experts(const Node& node, size_t i) {
  if (!experts_take_panels(node, i)) return 1;
  return static_cast<double>(node.attrs.integer("used")) / static_cast<double>(expert_count(node));
}

Tensor expert_rows(const Tensor& x) {
  return graph::reshape(x, {-1, x.dim(-1)});
}

// What y is weighted by: 0 where the expert was not chosen.
Tensor expert_probabilities(const Node& node, const Tensor& logits) {
  const Tensor chosen = chosen_experts(logits, node.attrs.integer("used"));
  const Tensor p = where(to_bool(chosen), softmax(logits), 0);
  return node.attrs.integer("normalize") ? div(p, sum(p, {-1}, true)) : p;
}

// p, with the scales of the experts if there are some.
Tensor expert_weights(const Node& node, Inputs in, const Tensor& p) {
  return has_scales(node) ? mul(p, in.back()) : p;
}

// The gate, up and down of one expert, and their biases, if there are some; without gates `gate` is
// undefined.
struct ExpertMatrices {
  Tensor gate, up, down;
  Tensor biases[3] = {};
};

ExpertMatrices expert_matrices(const Node& node, Inputs in, size_t expert) {
  const size_t first = first_matrix(node), count = static_cast<size_t>(expert_count(node));
  const size_t ups = first + (has_gates(node) ? count : 0);
  ExpertMatrices w = {has_gates(node) ? in[first + expert] : Tensor(), in[ups + expert],
                      in[ups + count + expert]};
  const auto at = static_cast<int64_t>(expert);
  for (size_t i = 0; has_biases(node) && i < 3; ++i) {
    w.biases[i] = graph::reshape(graph::slice(in[first + 3 * count + i], 0, at, at + 1), {-1});
  }
  return w;
}

Tensor biased(const Tensor& x, const Tensor& bias) {
  return bias.defined() ? add(x, bias) : x;
}

// What is made of the products g and u with gate and up: `value`, and its derivatives by both; by u
// alone without gates.
struct GatedPair {
  Tensor value, by_gate, by_up;
};

GatedPair gated_pair(const Node& node, const Tensor& gate, const Tensor& up) {
  if (!has_gates(node)) {
    const Tensor positive = relu(up);
    return {square(positive), {}, mul(positive, 2)};
  }
  const double limit = node.attrs.real("limit"), alpha = node.attrs.real("alpha");
  if (node.attrs.integer("gelu") != 0) {
    // For t = tanh(c (g + 0.044715 g³)), c = √(2/π): (1 + t) / 2 + c g (1 − t²) (1 + 3 · 0.044715
    // g²) / 2.
    const double c = std::sqrt(2 / std::numbers::pi), d = 0.044715;
    const Tensor square = mul(gate, gate), t = tanh(mul(gate, mul(add(mul(square, d), 1), c)));
    const Tensor inner = mul(mul(sub(1, mul(t, t)), gate), mul(add(mul(square, 3 * d), 1), c));
    const Tensor activated = gelu_tanh(gate), slope = mul(add(add(t, 1), inner), 0.5);
    return {mul(activated, up), mul(up, slope), activated};
  }
  if (limit == 0) {
    const Tensor sigma = sigmoid(gate), activated = mul(gate, sigma);
    const Tensor slope = mul(sigma, add(mul(gate, sub(1, sigma)), 1));
    return {mul(activated, up), mul(up, slope), activated};
  }
  const Tensor g = minimum(gate, limit), u = add(clamp(up, -limit, limit), 1.0);
  const Tensor sigma = sigmoid(mul(g, alpha)), activated = mul(g, sigma);
  const Tensor slope = mul(sigma, add(mul(mul(g, alpha), sub(1, sigma)), 1));
  return {mul(u, activated), where(le(gate, limit), mul(u, slope), 0),
          where(le(abs(up), limit), activated, 0)};
}

Tensor column_of(const Tensor& x, size_t index) {
  const auto at = static_cast<int64_t>(index);
  return graph::slice(x, -1, at, at + 1);
}

// The product with the gate; undefined without one.
Tensor of_gate(const Tensor& x, const ExpertMatrices& w) {
  return w.gate.defined() ? biased(linear(x, w.gate), w.biases[0]) : Tensor();
}

// All experts of all tokens, those that were not chosen with probability 0.
Tensor experts_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope precision(DType::kF32);
  const Tensor &x = in[0], p = expert_weights(node, in, expert_probabilities(node, in[1]));
  Tensor y;
  for (size_t e = 0; e < static_cast<size_t>(expert_count(node)); ++e) {
    const ExpertMatrices w = expert_matrices(node, in, e);
    const Tensor inner =
        gated_pair(node, of_gate(x, w), biased(linear(x, w.up), w.biases[1])).value;
    const Tensor part = mul(biased(linear(inner, w.down), w.biases[2]), column_of(p, e));
    y = e == 0 ? part : add(y, part);
  }
  return y;
}

// --- Gradients ---------------------------------------------------------------------------------

// Of x and of the probabilities of the chosen, which are 0 for the others, in rows; of the
// matrices, the biases and the scales in their order.
struct ExpertGradients {
  Tensor x, probabilities;
  std::vector<Tensor> matrices;
};

Tensor in_float32(const Tensor& w) {
  return w.dtype() == DType::kF32 ? w : graph::contiguous(w, DType::kF32);
}

// By way of all experts for all tokens. For g and u, the products with gate and up, of which a(g,
// u) is made, with the weight w = scale · p and d = dy · down: dw = Σ d a + Σ dy · bias of down, dg
// = w d ∂a/∂g and du = w d ∂a/∂u.
ExpertGradients dense_gradients(const Node& node, Inputs in, const Tensor& gradient) {
  const graph::AutocastScope precision(DType::kF32);
  const auto count = static_cast<size_t>(expert_count(node));
  const Tensor x = expert_rows(in[0]), logits = expert_rows(in[1]), dy = expert_rows(gradient);
  const Tensor p = expert_probabilities(node, logits), weights = expert_weights(node, in, p);
  ExpertGradients result;
  std::vector<Tensor> of_weights, of_biases[3];
  const size_t ups = has_gates(node) ? count : 0;
  result.matrices.resize(ups + 2 * count);
  for (size_t e = 0; e < count; ++e) {
    const ExpertMatrices w = expert_matrices(node, in, e);
    const Tensor weight = column_of(weights, e);
    const GatedPair pair = gated_pair(node, of_gate(x, w), biased(linear(x, w.up), w.biases[1]));
    const Tensor d = matmul(dy, in_float32(w.down)), &inner = pair.value;
    Tensor dweight = sum(mul(d, inner), {-1}, true);
    if (has_biases(node)) dweight = add(dweight, sum(mul(dy, w.biases[2]), {-1}, true));
    of_weights.push_back(dweight);
    const Tensor weighted = mul(d, weight);
    const Tensor dup = mul(weighted, pair.by_up);
    Tensor dgate, dx = matmul(dup, in_float32(w.up));
    if (w.gate.defined()) {
      dgate = mul(weighted, pair.by_gate);
      dx = add(matmul(dgate, in_float32(w.gate)), dx);
      result.matrices[e] = matmul(graph::transpose(dgate, 0, 1), x);
    }
    result.x = e == 0 ? dx : add(result.x, dx);
    result.matrices[ups + e] = matmul(graph::transpose(dup, 0, 1), x);
    const Tensor dout = mul(dy, weight);
    result.matrices[ups + count + e] = matmul(graph::transpose(dout, 0, 1), inner);
    if (!has_biases(node)) continue;
    of_biases[0].push_back(sum(dgate, {0}, true));
    of_biases[1].push_back(sum(dup, {0}, true));
    of_biases[2].push_back(sum(dout, {0}, true));
  }
  for (const std::vector<Tensor>& rows : of_biases) {
    if (!rows.empty()) result.matrices.push_back(concat(rows, 0));
  }
  const Tensor of_chosen =
      mul(concat(of_weights, -1), chosen_experts(logits, node.attrs.integer("used")));
  result.probabilities = expert_weights(node, in, of_chosen);
  if (has_scales(node)) result.matrices.push_back(sum(mul(of_chosen, p), {0}, false));
  return result;
}

Tensor experts_backward_meaning(const Node& node, Inputs in) {
  const ExpertGradients gradients = dense_gradients(node, in, in[2]);
  const Tensor parts[] = {graph::reshape(gradients.x, {-1}),
                          graph::reshape(gradients.probabilities, {-1})};
  return concat(parts, 0);
}

std::vector<Tensor> grad_experts(const graph::GradCall& call) {
  const Inputs in = call.inputs;
  const Tensor &x = in[0], &logits = in[1];
  std::vector<Tensor> gradients(in.size());
  const auto matrices = in.subspan(first_matrix(call.node));  // and biases and scales
  const bool frozen = std::none_of(matrices.begin(), matrices.end(),
                                   [](const Tensor& w) { return w.requires_grad(); });
  Tensor dp;
  if (frozen) {
    std::vector<Tensor> inputs = {x, logits, call.dy};
    inputs.insert(inputs.end(), matrices.begin(), matrices.end());
    const auto parts = graph::unpack(record(kExpertsBackward, inputs, call.node.attrs),
                                     {x.shape(), logits.shape()});
    gradients[0] = parts[0];
    dp = parts[1];
  } else {
    const ExpertGradients dense = dense_gradients(call.node, in, call.dy);
    gradients[0] = graph::reshape(dense.x, x.shape());
    dp = graph::reshape(dense.probabilities, logits.shape());
    std::copy(dense.matrices.begin(), dense.matrices.end(),
              gradients.begin() + static_cast<int64_t>(first_matrix(call.node)));
  }
  // A softmax either way: over all, or over the chosen.
  const bool normalize = call.node.attrs.integer("normalize") != 0;
  const Tensor p = normalize ? expert_probabilities(call.node, logits) : softmax(logits);
  gradients[1] = mul(p, sub(dp, sum(mul(p, dp), {-1}, true)));
  return gradients;
}

// --- Costs and cases ---------------------------------------------------------------------------

// Each of the experts that have tokens is read once.
graph::Cost experts_cost(const Node& node) {
  const kernels::ExpertsShape s = expert_sizes(node);
  const auto slots = static_cast<double>(s.m * s.used);
  const double read = std::min(1.0, slots / static_cast<double>(s.experts));
  double bytes = 2 * static_cast<double>(s.m * s.hidden) * sizeof(float);
  for (size_t i = first_matrix(node); i < end_of_matrices(node); ++i) {
    const Node& w = *node.inputs[i];
    bytes += read * static_cast<double>(w.shape[0] * row_bytes(w.dtype, w.shape[1]));
  }
  const double products = has_gates(node) ? 3 : 2;
  return {products * 2 * slots * static_cast<double>(s.hidden * s.intermediate), bytes};
}

// Back it takes the forward products with gate and up, and as many as all more.
graph::Cost experts_backward_cost(const Node& node) {
  const graph::Cost forward = experts_cost(node);
  return {forward.flops * (has_gates(node) ? 5.0 / 3 : 3.0 / 2), forward.bytes};
}

bool wants_biases(const ExpertsOptions& options) {
  return options.gate_bias.defined() || options.up_bias.defined() || options.down_bias.defined();
}

graph::Attrs expert_attrs(const ExpertsOptions& options, bool biases, bool plain = false) {
  return {{"used", options.used},
          {"plain", int64_t{plain}},
          {"normalize", int64_t{options.normalize}},
          {"biases", int64_t{biases}},
          {"alpha", options.alpha},
          {"limit", options.limit},
          {"gelu", int64_t{options.gelu}},
          {"scaled", int64_t{options.scales.defined()}}};
}

// `first` inputs before the matrices.
std::vector<graph::TypedShape> expert_inputs(int64_t m, int64_t count, DType dtype, int first) {
  std::vector<graph::TypedShape> inputs = {f32({m, 64}), f32({m, count})};
  if (first == 3) inputs.push_back(f32({m, 64}));
  for (int64_t i = 0; i < 3 * count; ++i) {
    inputs.push_back({dtype, i < 2 * count ? Shape{32, 64} : Shape{64, 32}});
  }
  return inputs;
}

std::vector<OpCase> experts_cases() {
  std::vector<OpCase> cases;
  const auto add_case = [&](std::string label, int64_t m, int64_t count, DType dtype,
                            const ExpertsOptions& options, double tolerance) {
    cases.push_back({std::move(label), expert_inputs(m, count, dtype, 2),
                     [=](Inputs in) {
                       const auto n = static_cast<size_t>(count);
                       const Inputs w = in.subspan(2);
                       return experts(in[0], in[1], w.first(n), w.subspan(n, n), w.last(n),
                                      options);
                     },
                     -0.5, 0.5, tolerance});
  };
  add_case("one token", 1, 3, DType::kF32, {2, true}, 2e-6);
  add_case("few tokens", 5, 4, DType::kF32, {2, false}, 2e-6);
  add_case("all experts", 3, 2, DType::kF32, {2, false}, 2e-6);
  add_case("many tokens", 40, 3, DType::kF32, {1, true}, 2e-6);
  add_case("q8_0", 4, 4, DType::kQ8_0, {3, true}, 3e-2);
  add_case("f16, many tokens", 50, 4, DType::kF16, {2, true}, 2e-3);
  cases.push_back({"strided matrices",
                   {f32({5, 64}), f32({5, 1}), f32({32, 96}), f32({32, 96}), f32({64, 48})},
                   [](Inputs in) {
                     const Tensor gate = graph::slice(in[2], 1, 8, 72);
                     const Tensor up = graph::slice(in[3], 1, 32, 96);
                     const Tensor down = graph::slice(in[4], 1, 0, 32);
                     return experts(in[0], in[1], {&gate, 1}, {&up, 1}, {&down, 1}, {});
                   },
                   -0.5,
                   0.5,
                   2e-6});
  const auto add_biased = [&](std::string label, int64_t m, DType dtype, double tolerance) {
    std::vector<graph::TypedShape> inputs = expert_inputs(m, 3, dtype, 2);
    for (const int64_t n : {32, 32, 64}) inputs.push_back(f32({3, n}));
    cases.push_back({std::move(label), std::move(inputs),
                     [](Inputs in) {
                       const Inputs w = in.subspan(2);
                       return experts(in[0], in[1], w.first(3), w.subspan(3, 3), w.subspan(6, 3),
                                      {.used = 2,
                                       .normalize = true,
                                       .gate_bias = w[9],
                                       .up_bias = w[10],
                                       .down_bias = w[11],
                                       .alpha = 1.7,
                                       .limit = 0.6});
                     },
                     -0.5, 0.5, tolerance});
  };
  add_biased("few tokens with biases", 5, DType::kF32, 2e-6);
  add_biased("many tokens with biases", 40, DType::kBF16, 2e-3);
  const auto add_scaled = [&](std::string label, int64_t m, DType dtype, double tolerance) {
    std::vector<graph::TypedShape> inputs = expert_inputs(m, 3, dtype, 2);
    inputs.push_back(f32({3}));
    cases.push_back({std::move(label), std::move(inputs),
                     [](Inputs in) {
                       const Inputs w = in.subspan(2);
                       return experts(in[0], in[1], w.first(3), w.subspan(3, 3), w.subspan(6, 3),
                                      {.used = 2, .normalize = true, .gelu = true, .scales = w[9]});
                     },
                     -0.5, 0.5, tolerance});
  };
  add_scaled("few tokens with scales", 5, DType::kF32, 2e-6);
  add_scaled("many tokens with scales", 40, DType::kBF16, 2e-3);
  const auto add_plain = [&](std::string label, int64_t m, DType dtype, double tolerance) {
    std::vector<graph::TypedShape> inputs = expert_inputs(m, 3, dtype, 2);
    inputs.erase(inputs.begin() + 2, inputs.begin() + 5);
    cases.push_back({std::move(label), std::move(inputs),
                     [](Inputs in) {
                       const Inputs w = in.subspan(2);
                       return experts(in[0], in[1], {}, w.first(3), w.last(3), {2, true});
                     },
                     -0.5, 0.5, tolerance});
  };
  add_plain("few tokens without gates", 5, DType::kF32, 2e-6);
  add_plain("many tokens without gates", 40, DType::kBF16, 2e-3);
  add_plain("q8_0 without gates", 3, DType::kQ8_0, 3e-2);
  add_case("no tokens", 0, 2, DType::kF32, {1, true}, 0);
  return cases;
}

std::vector<OpCase> experts_backward_cases() {
  std::vector<OpCase> cases;
  const auto add_case = [&](std::string label, int64_t m, DType dtype,
                            const ExpertsOptions& options, double tolerance, bool biases = false) {
    std::vector<graph::TypedShape> inputs = expert_inputs(m, 3, dtype, 3);
    for (const int64_t n : {32, 32, 64}) {
      if (biases) inputs.push_back(f32({3, n}));
    }
    if (options.scales.defined()) inputs.push_back(f32({3}));
    cases.push_back({std::move(label), std::move(inputs),
                     [=](Inputs in) {
                       for (const Tensor& x : in) {
                         graph::check_defined(x, kExpertsBackward.name, "an input");
                       }
                       return record(kExpertsBackward, std::vector(in.begin(), in.end()),
                                     expert_attrs(options, biases));
                     },
                     -0.5, 0.5, tolerance});
  };
  add_case("few tokens", 5, DType::kF32, {2, true}, 4e-6);
  add_case("many tokens", 40, DType::kF32, {1, false}, 4e-6);
  add_case("f16", 7, DType::kF16, {2, false}, 4e-6);
  add_case("q8_0", 4, DType::kQ8_0, {2, true}, 3e-2);
  const ExpertsOptions clamped = {.used = 2, .normalize = true, .alpha = 1.7, .limit = 0.4};
  add_case("clamped", 6, DType::kF32, clamped, 4e-6);
  add_case("few tokens with biases", 5, DType::kF32, clamped, 4e-6, true);
  add_case("many tokens with biases", 40, DType::kBF16, clamped, 4e-6, true);
  const ExpertsOptions scaled = {
      .used = 2, .normalize = true, .gelu = true, .scales = graph::scalar(1)};
  add_case("with scales", 6, DType::kF32, scaled, 4e-6);
  for (const int64_t m : {4, 30}) {
    std::vector<graph::TypedShape> inputs = expert_inputs(m, 3, DType::kF32, 3);
    inputs.erase(inputs.begin() + 3, inputs.begin() + 6);
    cases.push_back({str(m, " tokens without gates"), std::move(inputs),
                     [](Inputs in) {
                       for (const Tensor& x : in) {
                         graph::check_defined(x, kExpertsBackward.name, "an input");
                       }
                       return record(kExpertsBackward, std::vector(in.begin(), in.end()),
                                     expert_attrs({2, true}, false, true));
                     },
                     -0.5, 0.5, 4e-6});
  }
  return cases;
}

}  // namespace

const OpDef kExperts = {.name = "experts",
                        .infer = infer_experts,
                        .kernel = run_experts,
                        .workspace = experts_workspace,
                        .layout = graph::InputLayout::kRows,
                        .takes_panels = experts_take_panels,
                        .part_read = part_of_experts,
                        .meaning = experts_meaning,
                        .grad = grad_experts,
                        .autocast = graph::Autocast::kFull,
                        .cost = experts_cost,
                        .cases = experts_cases};
// The result is flat: the gradient of x, then that of the probabilities.
const OpDef kExpertsBackward = {.name = "experts_backward",
                                .infer = infer_experts_backward,
                                .kernel = run_experts_backward,
                                .workspace = experts_backward_workspace,
                                .meaning = experts_backward_meaning,
                                .autocast = graph::Autocast::kFull,
                                .cost = experts_backward_cost,
                                .cases = experts_backward_cases};

Tensor chosen_experts(const Tensor& logits, int64_t used) {
  graph::check_defined(logits, "chosen_experts", "logits");
  const Tensor rank = argsort(argsort(logits, -1, true), -1);
  return graph::contiguous(lt(rank, Number(used)), DType::kF32);
}

Tensor experts(const Tensor& x, const Tensor& logits, std::span<const Tensor> gate,
               std::span<const Tensor> up, std::span<const Tensor> down,
               const ExpertsOptions& options) {
  graph::check_defined(x, kExperts.name, "x");
  graph::check_defined(logits, kExperts.name, "logits");
  const bool plain = gate.empty();
  if (up.empty() || (!plain && gate.size() != up.size()) || up.size() != down.size()) {
    fail(ErrorKind::kMalformed, "experts: ", gate.size(), " gate, ", up.size(), " up and ",
         down.size(), " down matrices; expected as many of each, at least one, or no gates");
  }
  std::vector<Tensor> inputs = {x, logits};
  for (const std::span<const Tensor> matrices : {gate, up, down}) {
    for (const Tensor& w : matrices) {
      graph::check_defined(w, kExperts.name, "a matrix");
      if (w.rank() != 2) {
        fail(ErrorKind::kMalformed, "experts: a weight has shape ", to_string(w.shape()),
             ", expected a matrix");
      }
      inputs.push_back(w);
    }
  }
  const Tensor* const biases[] = {&options.gate_bias, &options.up_bias, &options.down_bias};
  for (const Tensor* bias : biases) {
    if (!wants_biases(options)) break;
    graph::check_defined(*bias, kExperts.name, "a bias");
    inputs.push_back(*bias);
  }
  if (options.scales.defined()) inputs.push_back(options.scales);
  return record(kExperts, inputs, expert_attrs(options, wants_biases(options), plain));
}

}  // namespace lumen::ops
