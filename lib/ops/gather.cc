// Rows by index, and joining.
#include "lib/kernels/copy.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {
namespace {

using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using Inputs = std::span<const Tensor>;

graph::TypedShape infer_embedding(const Node& node) {
  const Node &table = *node.inputs[0], &ids = *node.inputs[1];
  if (table.shape.rank() != 2) shape_error(node, "the table must be [rows, dim]");
  if (ids.dtype != DType::kI32) shape_error(node, "ids must be int32");
  Shape shape = ids.shape;
  shape.push_back(table.shape[1]);
  return {DType::kF32, shape};
}

void run_embedding(const graph::KernelCall& call) {
  const graph::Operand &table = call.inputs[0], &ids = call.inputs[1];
  kernels::gather_rows(*call.pool, table.dtype, table.data, table.shape[1], ids.as<const int32_t>(),
                       ids.shape.elements(), call.output.as<float>());
}

// A one-hot row per id times the table.
Tensor embedding_meaning(const Node& node, Inputs in) {
  const Tensor table = graph::contiguous(in[0], DType::kF32);
  const int64_t count = in[1].shape().elements();
  const Tensor ids = graph::reshape(graph::contiguous(in[1], DType::kF32), {count, 1});
  const Tensor one_hot = equal(ids, graph::iota(table.dim(0)));
  return graph::reshape(matmul(one_hot, table), node.shape);
}

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    cases.push_back({std::string(name(dtype)), {{dtype, {5, 64}}, i32({2, 7})}, [](Inputs in) {
                       return embedding(in[0], in[1]);
                     }});
  }
  cases.push_back(
      {"no ids", {f32({5, 3}), i32({0})}, [](Inputs in) { return embedding(in[0], in[1]); }});
  return cases;
}

}  // namespace

extern const OpDef kEmbedding;
const OpDef kEmbedding = {.name = "embedding",
                          .kind = graph::OpKind::kGather,
                          .infer = infer_embedding,
                          .kernel = run_embedding,
                          .meaning = embedding_meaning,
                          .cases = embedding_cases};

Tensor embedding(const Tensor& table, const Tensor& ids) {
  return record(kEmbedding, {table, ids});
}

Tensor concat(std::span<const Tensor> parts, int axis) {
  int64_t total = 0;
  for (const Tensor& part : parts) total += part.dim(axis);
  Tensor out;
  int64_t before = 0;
  for (const Tensor& part : parts) {
    const int64_t after = total - before - part.dim(axis);
    const Tensor padded = before + after > 0 ? graph::pad(part, axis, before, after) : part;
    out = out.defined() ? add(out, padded) : padded;
    before += part.dim(axis);
  }
  return out;
}

}  // namespace lumen::ops
