// Views: other ways to look at the same elements. They cost nothing; `contiguous` and `pad` copy.
// Axes may be negative (from the end). All throw Error(kMalformed) naming the operation and the
// shapes when the arguments do not fit.
#pragma once

#include <span>

#include "lib/graph/tensor.h"

namespace lumen::graph {

// The same elements in row-major order under another shape; one extent may be −1.
Tensor reshape(const Tensor& x, const Shape& shape);
// Axis i of the result is axis order[i] of x.
Tensor permute(const Tensor& x, std::span<const int64_t> order);
inline Tensor permute(const Tensor& x, std::initializer_list<int64_t> order) {
  return permute(x, std::span(order.begin(), order.size()));
}
// Swaps two axes.
Tensor transpose(const Tensor& x, int a, int b);
// Repeats axes of extent 1, and new leading axes, to `shape` (NumPy broadcasting); −1: the extent
// that the axis has.
Tensor expand(const Tensor& x, const Shape& shape);
// Elements begin, begin + 1, …, end − 1 of `axis`.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);
// `before` and `after` zeros around `axis`.
Tensor pad(const Tensor& x, int axis, int64_t before, int64_t after);

// x, but computed after `other`, which is computed because of it: keeps what is recomputed from
// being merged with what was computed before, and an operation that changes a state in a plan whose
// results do not need it. The gradient is that of x.
Tensor after(const Tensor& x, const Tensor& other);

// The parts of a flat float32 [total] that an operation with several results returns: the first
// shapes[0].elements() numbers as shapes[0], and so on.
std::vector<Tensor> unpack(const Tensor& flat, std::span<const Shape> shapes);
inline std::vector<Tensor> unpack(const Tensor& flat, std::initializer_list<Shape> shapes) {
  return unpack(flat, std::span(shapes.begin(), shapes.size()));
}

// A row-major copy with element type `dtype` (the primitive Contiguous; the dtype is part of it).
// Floats round to nearest even, floats become integers by truncation (saturating, NaN → 0),
// integers wrap, and bool is ≠ 0.
Tensor contiguous(const Tensor& x, DType dtype);
inline Tensor contiguous(const Tensor& x) {
  return contiguous(x, x.dtype());
}

// The shape two shapes broadcast to; throws naming `op`.
Shape broadcast(std::string_view op, const Shape& a, const Shape& b);

// `axis` counted from the start; throws naming `op` if out of range.
int checked_axis(std::string_view op, const Shape& shape, int axis);

// Rules of an operation that is its first input, whatever its other inputs are for.
TypedShape infer_first(const Node& node);
bool view_first(const Node& node, const Shape& in_shape, const Strides& in, Strides& out,
                int64_t& offset);

// The operations themselves, for the table of ops and for passes.
extern const OpDef kReshape, kPermute, kExpand, kSlice, kPad, kContiguous, kAfter;
// Pads along several axes at once, by attrs "before" and "after", one number per axis; simplify
// (passes.h) makes it of pads of pads.
extern const OpDef kPadAxes;

}  // namespace lumen::graph
