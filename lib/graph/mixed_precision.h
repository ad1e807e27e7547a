// The attr by which a product rounds its operands to bfloat16 (Autocast::kLow, node.h).
#pragma once

#include "lib/graph/node.h"

namespace lumen::graph {

inline constexpr const char* kBf16Attr = "bf16";

// Whether `node` is such a product. Thread-safe.
inline bool in_bf16(const Node& node) {
  return node.attrs.has(kBf16Attr);
}

// Makes a node that is recorded with `attrs` such a product.
inline void set_bf16(Attrs& attrs) {
  if (!attrs.has(kBf16Attr)) attrs.add(kBf16Attr, int64_t{1});
}

}  // namespace lumen::graph
