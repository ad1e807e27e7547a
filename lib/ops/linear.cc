// linear: weights in their stored format, q·k·v and gate·up in one sweep; and the same of a gated
// linear unit.
//
// Inputs: x, then `weights` matrices, then as many biases if `bias` is 1, then the operands of the
// epilogue. The result has the columns of all weights side by side.
#include <algorithm>
#include <optional>

#include "lib/base/error.h"
#include "lib/graph/cost.h"
#include "lib/graph/mixed_precision.h"
#include "lib/graph/program.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/elementwise.h"
#include "lib/kernels/matmul.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/lookup_product.h"
#include "lib/ops/matrix_rows.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kLinear, kGatedLinear;

namespace {

using graph::in_bf16;
using graph::KernelCall;
using graph::Node;
using graph::NodePtr;
using graph::OpCase;
using graph::OpDef;
using graph::Operand;
using graph::product_operand;
using graph::record;
using graph::stored_bytes;
using Inputs = std::span<const Tensor>;

constexpr int64_t kMaxWeights = 8;

bool takes_rows(const Node& node, const Node& x) {
  const bool narrow = x.dtype == DType::kBF16 && in_bf16(node);
  return (x.dtype == DType::kF32 || narrow) && x.shape.rank() > 0;
}

void check_weight(const Node& node, const Node& w) {
  if (w.shape.rank() != 2 || w.shape[1] != node.inputs[0]->shape[-1]) {
    shape_error(node, "the weight must be [n, k] with the k of x");
  }
  const bool stored = is_float(w.dtype) && w.dtype != DType::kF64;
  if (!stored && !is_quantized(w.dtype)) {
    shape_error(node, "the weight must be quantised or of floats of at most 32 bits");
  }
}

graph::TypedShape infer_linear(const Node& node) {
  const Node& x = *node.inputs[0];
  const int64_t weights = node.attrs.integer("weights");
  if (!takes_rows(node, x)) shape_error(node, "x must be float32 rows");
  int64_t columns = 0;
  for (int64_t i = 1; i <= weights; ++i) {
    const Node& w = *node.inputs[i];
    check_weight(node, w);
    columns += w.shape[0];
    if (node.attrs.integer("bias")) {
      const Node& b = *node.inputs[weights + i];
      if (!(b.shape == Shape({w.shape[0]}))) shape_error(node, "the bias must be [n]");
      if (!is_float(b.dtype) || b.dtype == DType::kF64) {
        shape_error(node, "the bias must be of floats of at most 32 bits");
      }
    }
  }
  Shape shape = x.shape;
  shape[-1] = columns;
  return {graph::stored_type(node), shape};
}

// Adds the biases to columns [begin, end) of a row: one bias per weight, side by side.
void add_bias(const KernelCall& call, int64_t weights, float* y, int64_t begin, int64_t end) {
  constexpr int64_t kChunk = 256;
  float buffer[kChunk];
  int64_t first = 0;
  for (int64_t i = 0; i < weights; ++i) {
    const Operand& bias = call.inputs[1 + weights + i];
    const int64_t n = bias.shape[0];
    const int64_t from = std::max(begin, first), to = std::min(end, first + n);
    for (int64_t at = from; at < to; at += kChunk) {
      const int64_t count = std::min(kChunk, to - at);
      const std::byte* stored = bias.data + row_bytes(bias.dtype, at - first);
      const float* terms[] = {y + at - begin, reinterpret_cast<const float*>(stored)};
      if (bias.dtype != DType::kF32) {
        kernels::to_float(bias.dtype, stored, buffer, count);
        terms[1] = buffer;
      }
      kernels::block::add(terms, y + at - begin, count, nullptr);
    }
    first += n;
  }
}

kernels::Weight matrix(const Operand& w) {
  return {w.data, w.dtype, w.shape[0], w.shape[1], w.layout};
}

void run_linear(const KernelCall& call) {
  const Operand& x = call.inputs[0];
  const int64_t weights = call.node->attrs.integer("weights");
  const bool bias = call.node->attrs.integer("bias") != 0;
  kernels::Weight matrices[kMaxWeights];
  for (int64_t i = 0; i < weights; ++i) matrices[i] = matrix(call.inputs[1 + i]);
  const MatrixRows rows = matrix_rows(x);
  const int64_t columns = call.output.shape[-1];
  auto finish = [&](int64_t row, int64_t begin, int64_t end, float* piece) {
    if (bias) add_bias(call, weights, piece, begin, end);
    if (call.epilogue) (*call.epilogue)(row, begin, end, piece);
  };
  const kernels::Epilogue epilogue = finish;
  kernels::LinearArgs args{.x = x.as<const float>(),
                           .x_stride = rows.stride,
                           .m = rows.count,
                           .weights = std::span(matrices, static_cast<size_t>(weights)),
                           .y = call.output.as<float>(),
                           .y_stride = columns,
                           .workspace = call.workspace,
                           .bf16 = in_bf16(*call.node),
                           .x_type = x.dtype,
                           .y_type = call.output.dtype};
  if (bias || call.epilogue) args.epilogue = &epilogue;
  kernels::linear(*call.pool, args);
}

int64_t row_count(const Node& x) {
  return x.shape[-1] > 0 ? x.shape.elements() / x.shape[-1] : 0;
}

size_t linear_workspace(const Node& node, int threads) {
  const int64_t k = node.inputs[0]->shape[-1];
  const bool as_panels = std::ranges::any_of(node.inputs, [](const NodePtr& input) {
    return input->value.layout() == Layout::kRowsAsPanels;
  });
  return kernels::linear_workspace_bytes(row_count(*node.inputs[0]), k, threads, as_panels,
                                         in_bf16(node));
}

graph::Bf16Input linear_bf16_input(const Node& node, size_t i) {
  const Node& x = *node.inputs[0];
  const bool takes =
      i == 0 && in_bf16(node) && kernels::linear_takes_bf16(row_count(x), x.shape[-1]);
  return takes ? graph::Bf16Input::kRounded : graph::Bf16Input::kNo;
}

bool linear_gives_bf16(const Node& node) {
  const Node& x = *node.inputs[0];
  return in_bf16(node) && kernels::linear_gives_bf16(row_count(x), x.shape[-1]);
}

bool linear_takes_panels(const Node& node, size_t i) {
  return i >= 1 && static_cast<int64_t>(i) <= node.attrs.integer("weights");
}

Tensor linear_meaning(const Node& node, Inputs in) {
  const int64_t weights = node.attrs.integer("weights");
  const Tensor x = graph::contiguous(product_operand(node, in[0]), DType::kF32);
  std::vector<Tensor> parts;
  for (int64_t i = 1; i <= weights; ++i) {
    const Tensor w = graph::contiguous(product_operand(node, in[i]), DType::kF32);
    Shape wide = x.shape();
    wide[-1] = 1;
    wide.push_back(x.dim(-1));  // x as [..., 1, k] against w as [n, k]
    const Tensor product = sum(mul(graph::reshape(x, wide), w), -1);
    Shape shape = x.shape();
    shape[-1] = w.dim(0);
    Tensor part = graph::reshape(product, shape);
    if (node.attrs.integer("bias"))
      part = add(part, graph::contiguous(in[weights + i], DType::kF32));
    parts.push_back(part);
  }
  return concat(parts, -1);
}

// dx = dy · w, dw = dyᵀ · x, db = Σ dy over rows. Only float weights change.
std::vector<Tensor> grad_linear(const graph::GradCall& call) {
  const Tensor &x = call.inputs[0], &w = call.inputs[1];
  const int64_t k = w.dim(1), n = w.dim(0);
  int64_t rows = 1;
  for (int axis = 0; axis < x.rank() - 1; ++axis) rows *= x.dim(axis);
  LUMEN_CHECK(call.node.attrs.integer("weights") == 1);
  const graph::AutocastScope precision = graph::gradient_precision(call.node);
  const Tensor dy = graph::reshape(call.dy, {rows, n});
  std::vector<Tensor> gradients(call.inputs.size());
  if (x.requires_grad()) {
    const Tensor dx =
        gradient_product(dy, is_quantized(w.dtype()) ? graph::contiguous(w, DType::kF32) : w);
    gradients[0] = graph::reshape(dx, x.shape());
  }
  if (w.requires_grad()) {
    gradients[1] = gradient_product(graph::transpose(dy, 0, 1), graph::reshape(x, {rows, k}));
  }
  if (call.inputs.size() > 2) gradients[2] = graph::reshape(sum(dy, 0), {n});
  return gradients;
}

NodePtr merge_linear(std::span<const NodePtr> uses) {
  std::vector<NodePtr> inputs = {uses[0]->inputs[0]}, biases;
  const int64_t bias = uses[0]->attrs.integer("bias");
  for (const NodePtr& use : uses) {
    const int64_t weights = use->attrs.integer("weights");
    if (use->attrs.integer("bias") != bias || use->epilogue) return nullptr;
    if (in_bf16(*use) != in_bf16(*uses[0])) return nullptr;
    for (int64_t i = 1; i <= weights; ++i) {
      const Node& weight = *use->inputs[i];
      if (!graph::is_constant(weight) && !graph::is_state(weight)) return nullptr;
      inputs.push_back(use->inputs[i]);
      if (bias) biases.push_back(use->inputs[weights + i]);
    }
  }
  const auto weights = static_cast<int64_t>(inputs.size()) - 1;
  if (weights > kMaxWeights) return nullptr;
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  graph::Attrs attrs{{"weights", weights}, {"bias", bias}};
  if (in_bf16(*uses[0])) graph::set_bf16(attrs);
  return make_node(*uses[0]->op, std::move(inputs), std::move(attrs));
}

// If `node` is one product with two matrices alike and without biases.
NodePtr gate_linear(const Node& node, std::shared_ptr<const graph::Program> program) {
  if (node.attrs.integer("weights") != 2 || node.attrs.integer("bias") || node.epilogue) {
    return nullptr;
  }
  if (node.inputs[1]->shape != node.inputs[2]->shape) return nullptr;
  graph::Attrs attrs;
  if (in_bf16(node)) graph::set_bf16(attrs);
  const NodePtr gated = make_node(kGatedLinear, node.inputs, std::move(attrs));
  gated->epilogue = std::move(program);
  return gated;
}

graph::Cost linear_cost(const Node& node) {
  const auto m = static_cast<double>(node.shape.elements()) / static_cast<double>(node.shape[-1]);
  const auto k = static_cast<double>(node.inputs[0]->shape[-1]);
  double bytes = stored_bytes(node) + stored_bytes(*node.inputs[0]);
  for (int64_t i = 1; i <= node.attrs.integer("weights"); ++i) {
    const Node& w = *node.inputs[i];
    bytes += static_cast<double>(w.shape[0] * row_bytes(w.dtype, w.shape[1]));
  }
  return {2 * m * k * static_cast<double>(node.shape[-1]), bytes};
}

std::vector<OpCase> linear_cases() {
  std::vector<OpCase> cases;
  auto add_case = [&](std::string label, Shape x, std::vector<graph::TypedShape> rest,
                      double tolerance) {
    std::vector<graph::TypedShape> inputs = {{DType::kF32, x}};
    inputs.insert(inputs.end(), rest.begin(), rest.end());
    cases.push_back(
        {std::move(label), std::move(inputs),
         [](Inputs in) { return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor()); }, -1, 1,
         tolerance});
  };
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    for (int64_t m : {1, 2, 5, 40}) {
      add_case(str(name(dtype), " m=", m), {m, 64}, {{dtype, {19, 64}}},
               is_quantized(dtype) ? 3e-2 : 2e-6);
    }
  }
  add_case("odd sizes", {3, 37}, {f32({5, 37})}, 2e-6);
  add_case("bias", {2, 3, 64}, {f32({600, 64}), f32({600})}, 2e-6);
  add_case("no rows", {0, 8}, {f32({3, 8})}, 0);
  cases.push_back({"several weights",
                   {f32({3, 64}), f32({7, 64}), {DType::kF16, {9, 64}}},
                   [](Inputs in) {
                     const Tensor parts[] = {linear(in[0], in[1]), linear(in[0], in[2])};
                     return concat(parts, -1);
                   },
                   -1,
                   1,
                   2e-6});
  for (int64_t m : {1, 5, 40}) {
    cases.push_back(
        {str("gate and up m=", m),
         {f32({m, 64}), f32({96, 64}), f32({96, 64})},
         [](Inputs in) { return mul(silu(linear(in[0], in[1])), linear(in[0], in[2])); },
         -1,
         1,
         4e-6});  // two sums of 64 products without multiply-add, multiplied: up to 3.4e-6
  }
  cases.push_back({"strided rows",
                   {f32({3, 96}), f32({7, 64})},
                   [](Inputs in) { return linear(graph::slice(in[0], 1, 16, 80), in[1]); },
                   -1,
                   1,
                   2e-6});
  cases.push_back({"strided weight",
                   {f32({3, 64}), f32({7, 96})},
                   [](Inputs in) { return linear(in[0], graph::slice(in[1], 1, 16, 80)); },
                   -1,
                   1,
                   2e-6});
  cases.push_back({"residual",
                   {f32({4, 64}), f32({70, 64}), f32({4, 70})},
                   [](Inputs in) { return add(linear(in[0], in[1]), in[2]); },
                   -1,
                   1,
                   2e-6});
  return cases;
}

// --- gated_linear ------------------------------------------------------------------------------
// Inputs: x and two matrices of one shape. The result is what the node's program makes of the two
// products, element by element: a gated linear unit (Shazeer 2020). Only fuse_gates makes it.

graph::TypedShape infer_gated(const Node& node) {
  const Node &x = *node.inputs[0], &w = *node.inputs[1];
  if (!takes_rows(node, x)) shape_error(node, "x must be float32 rows");
  check_weight(node, w);
  check_weight(node, *node.inputs[2]);
  if (w.shape != node.inputs[2]->shape) shape_error(node, "both weights must have one shape");
  Shape shape = x.shape;
  shape[-1] = w.shape[0];
  return {DType::kF32, shape};
}

void run_gated(const KernelCall& call) {
  const Operand& x = call.inputs[0];
  const kernels::Weight matrices[] = {matrix(call.inputs[1]), matrix(call.inputs[2])};
  const MatrixRows rows = matrix_rows(x);
  const auto combine = [&](const float* first, const float* second, int64_t n, float* out) {
    graph::run_program(*call.node->epilogue, {{first, second}}, n, out);
  };
  const kernels::Combine combine_pieces = combine;
  kernels::linear(*call.pool, {.x = x.as<const float>(),
                               .x_stride = rows.stride,
                               .m = rows.count,
                               .weights = matrices,
                               .y = call.output.as<float>(),
                               .y_stride = call.output.shape[-1],
                               .workspace = call.workspace,
                               .bf16 = in_bf16(*call.node),
                               .x_type = x.dtype,
                               .combine = &combine_pieces});
}

size_t gated_workspace(const Node& node, int threads) {
  return linear_workspace(node, threads) +
         kernels::combine_bytes(row_count(*node.inputs[0]), node.shape[-1]);
}

bool gated_takes_panels(const Node&, size_t i) {
  return i >= 1;
}

graph::Cost gated_cost(const Node& node) {
  double bytes = stored_bytes(node);
  for (const NodePtr& input : node.inputs) bytes += stored_bytes(*input);
  const auto k = static_cast<double>(node.inputs[0]->shape[-1]);
  return {2 * 2 * k * static_cast<double>(node.shape.elements()), bytes};
}

}  // namespace

const OpDef kLinear = {.name = "linear",
                       .kind = graph::OpKind::kContraction,
                       .infer = infer_linear,
                       .kernel = run_linear,
                       .workspace = linear_workspace,
                       .layout = graph::InputLayout::kRows,
                       .takes_epilogue = true,
                       .takes_panels = linear_takes_panels,
                       .meaning = linear_meaning,
                       .grad = grad_linear,
                       .autocast = graph::Autocast::kLow,
                       .bf16_input = linear_bf16_input,
                       .gives_bf16 = linear_gives_bf16,
                       .merge = merge_linear,
                       .gate = gate_linear,
                       .reassociate = linear_of_lookup,
                       .cost = linear_cost,
                       .cases = linear_cases};
const OpDef kGatedLinear = {.name = "gated_linear",
                            .kind = graph::OpKind::kContraction,
                            .infer = infer_gated,
                            .kernel = run_gated,
                            .workspace = gated_workspace,
                            .layout = graph::InputLayout::kRows,
                            .takes_panels = gated_takes_panels,
                            .bf16_input = linear_bf16_input,
                            .cost = gated_cost};

namespace {

// The common type of all, if they are plain floats.
std::optional<DType> common_float(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  DType dtype = x.dtype();
  for (const Tensor& t : {x, weight, bias}) {
    if (!t.defined()) continue;
    if (!is_float(t.dtype())) return {};
    dtype = promote(dtype, t.dtype());
  }
  return dtype;
}

// In float64, as a product of matrices.
Tensor linear_f64(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor y = matmul(graph::contiguous(x, DType::kF64), graph::transpose(weight, 0, 1));
  if (!bias.defined()) return y;
  if (!(bias.shape() == Shape{weight.dim(0)})) {
    fail(ErrorKind::kMalformed, "linear: the bias must be [", weight.dim(0), "], not ",
         to_string(bias.shape()));
  }
  return add(y, bias);
}

// Of narrow floats both, which a product of matrices reads as they are stored: float32.
Tensor linear_narrow(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Shape shape = x.shape();
  const int64_t k = shape[-1];
  shape[-1] = weight.dim(0);
  const Tensor rows = graph::reshape(x, {x.shape().elements() / k, k});
  const Tensor y = graph::reshape(gradient_product(rows, graph::transpose(weight, 0, 1)), shape);
  return bias.defined() ? add(y, graph::contiguous(bias, DType::kF32)) : y;
}

bool takes_narrow(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return is_narrow(x.dtype()) && is_narrow(weight.dtype()) && weight.rank() == 2 && x.rank() > 0 &&
         x.dim(-1) == weight.dim(1) && x.dim(-1) > 0 &&
         (!bias.defined() || bias.shape() == Shape{weight.dim(0)}) &&
         !in_panels(weight.node()->value.layout());
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  graph::check_defined(x, kLinear.name, "x");
  graph::check_defined(weight, kLinear.name, "weight");
  const std::optional<DType> common = common_float(x, weight, bias);
  if (common == DType::kF64 && weight.rank() == 2) return linear_f64(x, weight, bias);
  if (common && common != DType::kF64 && x.dtype() != DType::kF32) {
    const Tensor y = takes_narrow(x, weight, bias)
                         ? linear_narrow(x, weight, bias)
                         : linear(graph::contiguous(x, DType::kF32), weight, bias);
    return common == DType::kF32 ? y : graph::contiguous(y, *common);
  }
  std::vector<Tensor> inputs = {x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(kLinear, inputs, {{"weights", int64_t{1}}, {"bias", int64_t{bias.defined()}}});
}

}  // namespace lumen::ops
