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

// OpCase::tolerance where float16 or bfloat16 is rounded to once: what rounds the other way is one
// bfloat16 off.
inline constexpr double kNarrowTolerance = 8e-3;

// Throws the error every operation gives for inputs that do not fit.
[[noreturn]] void shape_error(const graph::Node& node, std::string_view why);

// Throws it unless `cap`, of soft_cap, is 0 or a positive number.
void require_cap(const graph::Node& node, double cap);

}  // namespace lumen::ops
