// The key of operations that draw random numbers. Private to this room.
#pragma once

#include "lib/graph/node.h"
#include "lib/kernels/random_fill.h"
#include "lib/ops/cases.h"

namespace lumen::ops {

inline void require_key(const graph::Node& node, const graph::Node& key) {
  if (key.dtype != DType::kI32 || !(key.shape == Shape({2}))) {
    shape_error(node, "the key must be int32 [2]: seed, step");
  }
}

// `key` with the node's attr "stream".
inline kernels::RandomKey random_key(const graph::Node& node, const graph::Operand& key) {
  const auto* words = key.as<const int32_t>();
  return {static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[1]),
          static_cast<uint64_t>(node.attrs.integer("stream"))};
}

}  // namespace lumen::ops
