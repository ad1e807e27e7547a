// Rotary positions: the table of angles, and the rotation.
#include "lib/kernels/rope.h"

#include "lib/base/error.h"
#include "lib/graph/mixed_precision.h"
#include "lib/ops/attention_inputs.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kRopeTable, kRope;

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

bool rope_gives_bf16(const Node& node) {
  return node.attrs.integer("interleaved") == 0;
}

graph::TypedShape infer_rope(const Node& node) {
  const Node &x = *node.inputs[0], &table = *node.inputs[1];
  // bfloat16 only as passes/store_bf16.cc stores it.
  const bool takes = x.dtype == DType::kF32 || (x.dtype == DType::kBF16 && rope_gives_bf16(node));
  const bool fits = takes && x.shape.rank() == 4 && table.dtype == DType::kF32 &&
                    table.shape.rank() == 3 &&
                    (table.shape[0] == x.shape[1] || table.shape[0] == x.shape[0] * x.shape[1]) &&
                    table.shape[1] == 2 && 2 * table.shape[2] <= x.shape[3];
  if (!fits) {
    shape_error(node,
                "needs float32 [batch, tokens, heads, head_dim] and [tokens or all rows, 2, half]");
  }
  return {graph::stored_type(node), x.shape};
}

graph::Bf16Input rope_bf16_input(const Node& node, size_t i) {
  return i == 0 && rope_gives_bf16(node) ? graph::Bf16Input::kRead : graph::Bf16Input::kNo;
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
                             .cos_sin_batch_stride = shared ? 0 : x.shape[1] * 2 * table.shape[2],
                             .x_type = x.dtype,
                             .y_type = call.output.dtype});
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
    cases.push_back({str(layout, " slice of a table"),
                     {f32({2, 3, 2, 8}), f32({3, 4, 4})},
                     [build](Inputs in) {
                       const Tensor inputs[] = {in[0], slice(in[1], 1, 2, 4)};
                       return build(inputs);
                     },
                     -2,
                     2,
                     2e-6});
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
                     .contiguous_input = [](const Node&, size_t i) { return i == 1; },
                     .meaning = rope_meaning,
                     .grad = grad_rope,
                     .bf16_input = rope_bf16_input,
                     .gives_bf16 = rope_gives_bf16,
                     .cases = rope_cases};

Tensor rope_table(const Tensor& position, const Tensor& frequencies, int64_t tokens,
                  double factor) {
  return record(kRopeTable, {position, frequencies}, {{"tokens", tokens}, {"factor", factor}});
}

Tensor rope(const Tensor& x, const Tensor& table, bool interleaved) {
  return record(kRope, {x, table},
                {{"interleaved", int64_t{interleaved}}, {"inverse", int64_t{0}}});
}

}  // namespace lumen::ops
