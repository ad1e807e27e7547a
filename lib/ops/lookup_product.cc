#include "lib/ops/lookup_product.h"

#include "lib/graph/views.h"

namespace lumen::ops {

extern const graph::OpDef kEmbedding, kEmbeddingGrad, kLinear, kMatmul;

namespace {

using graph::make_node;
using graph::Node;
using graph::NodePtr;

NodePtr reshape(const NodePtr& x, const Shape& shape) {
  return graph::reshape(graph::Tensor(x), shape).node();
}

// Looking up costs a pass over the rows, which a product of few columns does not save.
constexpr int64_t kMinDepth = 16;

bool saves(int64_t table_rows, int64_t ids, int64_t depth) {
  return ids >= 2 * table_rows && table_rows > 0 && depth >= kMinDepth;
}

// A reshape that leaves rows, the last axis, alone.
bool keeps_rows(const Node& node) {
  return node.op == &graph::kReshape && node.shape.rank() > 0 && node.inputs[0]->shape.rank() > 0 &&
         node.shape[-1] == node.inputs[0]->shape[-1];
}

struct Lookup {
  NodePtr table, ids;
};

// `x` as rows of a table: through reshapes that leave the rows alone and changes of type, which are
// made to the table.
Lookup lookup_of(const NodePtr& x) {
  if (x->op == &kEmbedding) return {x->inputs[0], x->inputs[1]};
  const bool reshapes = keeps_rows(*x);
  if (!reshapes && x->op != &graph::kContiguous) return {};
  Lookup lookup = lookup_of(x->inputs[0]);
  if (lookup.table && !reshapes) {
    lookup.table = graph::contiguous(graph::Tensor(lookup.table), x->dtype).node();
  }
  return lookup;
}

NodePtr as_float(const NodePtr& table) {
  return table->dtype == DType::kF32 ? table
                                     : graph::contiguous(graph::Tensor(table), DType::kF32).node();
}

}  // namespace

NodePtr linear_of_lookup(const NodePtr& node) {
  const Lookup lookup = lookup_of(node->inputs[0]);
  if (!lookup.table || node->epilogue) return nullptr;
  const Shape& table = lookup.table->shape;
  if (!saves(table[0], lookup.ids->shape.elements(), table[1])) return nullptr;
  std::vector<NodePtr> inputs = node->inputs;
  inputs[0] = as_float(lookup.table);
  const NodePtr product = make_node(kLinear, std::move(inputs), node->attrs);
  return reshape(make_node(kEmbedding, {product, lookup.ids}), node->shape);
}

NodePtr matmul_with_lookup(const NodePtr& node) {
  const NodePtr& a = node->inputs[0];
  const Lookup lookup = lookup_of(node->inputs[1]);
  // A permute of two axes swaps them or does nothing, which simplify takes away.
  if (!lookup.table || node->dtype != DType::kF32 || a->dtype != DType::kF32 ||
      node->shape.rank() != 2 || a->op != &graph::kPermute || a->attrs.integers("order")[0] != 1) {
    return nullptr;
  }
  const int64_t rows = lookup.table->shape[0];
  if (!saves(rows, lookup.ids->shape.elements(), node->shape[1])) return nullptr;
  Shape per_id = lookup.ids->shape;
  per_id.push_back(node->shape[0]);
  const NodePtr sums =
      make_node(kEmbeddingGrad, {reshape(a->inputs[0], per_id), lookup.ids}, {{"rows", rows}});
  return make_node(kMatmul, {make_node(graph::kPermute, {sums}, a->attrs), as_float(lookup.table)},
                   node->attrs);
}

NodePtr embedding_grad_of_product(const NodePtr& node) {
  NodePtr product = node->inputs[0];
  const NodePtr& ids = node->inputs[1];
  const int64_t rows = node->attrs.integer("rows");
  while (keeps_rows(*product)) product = product->inputs[0];
  if (product->op != &kMatmul || product->dtype != DType::kF32 ||
      product->inputs[0]->dtype != DType::kF32 || product->shape.rank() != 2 ||
      !saves(rows, ids->shape.elements(), node->shape[1])) {
    return nullptr;
  }
  Shape per_id = ids->shape;
  per_id.push_back(product->inputs[0]->shape[1]);
  const NodePtr sums =
      make_node(kEmbeddingGrad, {reshape(product->inputs[0], per_id), ids}, node->attrs);
  return make_node(kMatmul, {sums, product->inputs[1]}, product->attrs);
}

}  // namespace lumen::ops
