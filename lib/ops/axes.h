// What operations along axes share.
#pragma once

#include <string_view>
#include <vector>

#include "lib/kernels/typed.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

// Attr "axis".
inline int axis_of(const graph::Node& node) {
  return static_cast<int>(node.attrs.integer("axis"));
}

inline kernels::TypedOperand typed(const graph::Operand& x) {
  return {x.data, x.dtype, x.strides};
}

// A scalar as a vector of one, so that it has an axis.
inline Tensor with_axis(const Tensor& x, const char* caller = __builtin_FUNCTION()) {
  return x.rank(caller) == 0 ? graph::reshape(x, {1}) : x;
}

// The order of a type turned round, without overflow: −x, or the complement of an integer.
Tensor reversed(const Tensor& x);

// For kernels, before anything is read or written: throws Error(kMalformed) if an index (int32 or
// int64) is not in [0, limit).
void require_in_range(ThreadPool& pool, const graph::Node& node, const graph::Operand& index,
                      int64_t limit);

// Indices as int32, for kernels that read those; an int64 that is out of its range, and so of any,
// becomes its smallest or largest.
Tensor in_int32(const Tensor& index, const char* caller = __builtin_FUNCTION());

// A shape as what is before an axis, the axis and what is behind.
struct Split {
  int64_t outer = 1, axis = 1, inner = 1;
};
inline Split split(const Shape& shape, int axis) {
  Split s;
  for (int i = 0; i < shape.rank(); ++i) {
    (i < axis ? s.outer : i == axis ? s.axis : s.inner) *= shape[i];
  }
  return s;
}

// That of the node's first input, with 1 along its axis.
inline Shape without_axis(const graph::Node& node) {
  Shape shape = node.inputs[0]->shape;
  shape[axis_of(node)] = 1;
  return shape;
}

// Which axes of `shape` are meant; throws naming `op` for one that does not exist or is named
// twice.
std::vector<bool> chosen_axes(std::string_view op, const Shape& shape, const Axes& axes);

// The shape that is left when axes are reduced: those are dropped, or kept with extent 1.
Shape kept_shape(const Shape& shape, const std::vector<bool>& reduced, bool keepdim);

// Reduces several axes by `one`, which reduces one and keeps it with extent 1.
Tensor over_axes(std::string_view op, const Tensor& x, const Axes& axes, bool keepdim,
                 Tensor (*one)(const Tensor&, int axis));

// Σ x² over some axes, x float32 (or narrow made that) or float64.
Tensor sum_of_squares(const Tensor& x, const Axes& axes, bool keepdim);

}  // namespace lumen::ops
