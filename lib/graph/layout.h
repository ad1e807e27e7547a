// Where the elements of a value lie relative to the memory it is a view of.
#pragma once

#include "lib/graph/node.h"

namespace lumen::graph {

// `root` is the node whose memory it is: the value itself, or through views and overwriting
// operations the one that owns the bytes.
struct StridedLayout {
  const Node* root = nullptr;
  Strides strides{};   // elements
  int64_t offset = 0;  // elements
};

// The layout of `node` given those of its inputs; false for a view that its input's layout does
// not allow.
bool layout_of(const Node& node, const StridedLayout* first_input, StridedLayout& out);

// Whether a kernel that asks for `need` can read `shape` at `strides`.
bool satisfies(InputLayout need, const Shape& shape, const Strides& strides);

// If all axes but the last advance by one common stride (0 counts when all are 0), that stride.
// Axes of extent 1 do not matter.
bool common_row_stride(const Shape& shape, const Strides& strides, int64_t& row_stride);

}  // namespace lumen::graph
