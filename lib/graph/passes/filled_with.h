// Constants that passes look for.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include "lib/graph/views.h"

namespace lumen::graph::passes {

// The float32 constant that every element of `node` is, seen through views; none if it is not that.
// Thread-safe.
inline std::optional<float> filling_of(const Node& node) {
  const Node* at = &node;
  while (at->op == &kExpand || at->op == &kReshape) at = at->inputs[0].get();
  if (!is_constant(*at) || at->dtype != DType::kF32 || at->value.elements() != 1) return {};
  return at->value.as<float>()[0];
}

// Whether that is `value`, to the bit. Thread-safe.
inline bool is_filled_with(const Node& node, float value) {
  const std::optional<float> filling = filling_of(node);
  return filling && std::bit_cast<uint32_t>(*filling) == std::bit_cast<uint32_t>(value);
}

}  // namespace lumen::graph::passes
