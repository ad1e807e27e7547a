// Shapes that test cases share.
#pragma once

#include <initializer_list>

#include "lib/base/strings.h"
#include "lib/graph/node.h"
#include "lib/graph/tensor.h"

namespace lumen::ops {

inline graph::TypedShape f32(std::initializer_list<int64_t> dims) {
  return {DType::kF32, Shape(dims)};
}
inline graph::TypedShape i32(std::initializer_list<int64_t> dims) {
  return {DType::kI32, Shape(dims)};
}

// Throws the error every operation gives for inputs that do not fit.
[[noreturn]] void shape_error(const graph::Node& node, std::string_view why);

// Throws it unless `cap`, of soft_cap, is 0 or a positive number.
void require_cap(const graph::Node& node, double cap);

}  // namespace lumen::ops
