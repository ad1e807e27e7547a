// Mixed precision in the graph: what is rounded, and what is stored so.
//
// The attr by which a product, or the products in an operation, round their operands to bfloat16
// (Autocast::kLow and kInside, node.h).
#pragma once

#include "lib/graph/node.h"
#include "lib/graph/tensor.h"
#include "lib/graph/views.h"

namespace lumen::graph {

inline constexpr const char* kBf16Attr = "bf16";

// Whether `node` is or has such a product. Thread-safe.
inline bool in_bf16(const Node& node) {
  return node.attrs.has(kBf16Attr);
}

// Makes a node that is recorded with `attrs` such a product.
inline void set_bf16(Attrs& attrs) {
  if (!attrs.has(kBf16Attr)) attrs.add(kBf16Attr, int64_t{1});
}

// The attr by which an operation other than element-wise work stores its result in bfloat16
// (passes/store_bf16.cc).
inline constexpr const char* kStoredInBf16Attr = "stored_in_bf16";

inline void set_stored_in_bf16(Attrs& attrs) {
  attrs.add(kStoredInBf16Attr, int64_t{1});
}

// The type of the float32 result of `node`, as it is stored: for infer.
inline DType stored_type(const Node& node) {
  return node.attrs.has(kStoredInBf16Attr) ? DType::kBF16 : DType::kF32;
}

// An operand of the product `node` as that reads it: for meanings.
inline Tensor product_operand(const Node& node, const Tensor& x) {
  return in_bf16(node) ? contiguous(contiguous(x, DType::kBF16), DType::kF32) : x;
}

// While it lives, products recorded on this thread round as those in `node` do: for meanings.
inline AutocastScope precision_in(const Node& node) {
  return AutocastScope(in_bf16(node) ? DType::kBF16 : DType::kF32);
}

// While it lives, the products of a gradient are rounded if those in `node` are, else as asked for
// outside.
inline AutocastScope gradient_precision(const Node& node) {
  return AutocastScope(in_bf16(node) ? DType::kBF16 : autocast_dtype());
}

}  // namespace lumen::graph
