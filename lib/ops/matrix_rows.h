// An operand as rows of a matrix. Private to this room.
#pragma once

#include "lib/graph/node.h"

namespace lumen::ops {

// All axes but the last one are those of the rows, which are `stride` elements apart
// (InputLayout::kRows).
struct MatrixRows {
  int64_t count, stride;
};
inline MatrixRows matrix_rows(const graph::Operand& x) {
  MatrixRows rows{1, x.shape[-1]};
  for (int axis = x.shape.rank() - 2; axis >= 0; --axis) {
    if (x.shape[axis] != 1 && rows.count == 1) rows.stride = x.strides[axis];
    rows.count *= x.shape[axis];
  }
  return rows;
}

}  // namespace lumen::ops
