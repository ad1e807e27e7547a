#include "lib/graph/layout.h"

namespace lumen::graph {

bool layout_of(const Node& node, const StridedLayout* first_input, StridedLayout& out) {
  if (node.op->overwrites >= 0) {
    out = *first_input;
    return true;
  }
  if (node.op->kind != OpKind::kView) {
    out = {&node, contiguous_strides(node.shape), 0};
    return true;
  }
  int64_t offset = 0;
  if (!node.op->view(node, node.inputs[0]->shape, first_input->strides, out.strides, offset)) {
    return false;
  }
  out.root = first_input->root;
  out.offset = first_input->offset + offset;
  return true;
}

bool common_row_stride(const Shape& shape, const Strides& strides, int64_t& row_stride) {
  row_stride = 0;
  int64_t expected = 0;
  bool first = true;
  for (int axis = shape.rank() - 2; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    if (first) {
      row_stride = strides[axis];
      first = false;
    } else if (strides[axis] != expected) {
      return false;
    }
    expected = strides[axis] * shape[axis];
  }
  if (first) row_stride = shape.rank() > 0 ? shape[-1] : 1;  // one row: any stride will do
  return true;
}

bool satisfies(InputLayout need, const Shape& shape, const Strides& strides) {
  if (need == InputLayout::kAny || shape.elements() <= 1) return true;
  const bool inner = shape[-1] == 1 || strides[shape.rank() - 1] == 1;
  int64_t row_stride;
  switch (need) {
    case InputLayout::kInner:
      return inner;
    case InputLayout::kRows:
      return inner && common_row_stride(shape, strides, row_stride);
    default: {
      const Strides dense = contiguous_strides(shape);
      for (int i = 0; i < shape.rank(); ++i) {
        if (shape[i] != 1 && strides[i] != dense[i]) return false;
      }
      return true;
    }
  }
}

}  // namespace lumen::graph
