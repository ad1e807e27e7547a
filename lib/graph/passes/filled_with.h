// Constants that passes look for.
#pragma once

#include <bit>
#include <cstdint>

#include "lib/graph/views.h"

namespace lumen::graph::passes {

// True if every element of `node` is the float32 constant `value`, to the bit, seen through views.
// Thread-safe.
inline bool is_filled_with(const Node& node, float value) {
  const Node* at = &node;
  while (at->op == &kExpand || at->op == &kReshape) at = at->inputs[0].get();
  if (!is_constant(*at) || at->dtype != DType::kF32 || at->value.elements() != 1) return false;
  return std::bit_cast<uint32_t>(at->value.as<float>()[0]) == std::bit_cast<uint32_t>(value);
}

}  // namespace lumen::graph::passes
