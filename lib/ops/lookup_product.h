// Products of rows that an embedding looks up: where there are more ids than rows in the table, the
// table is multiplied instead, once per row, and its product looked up. Rules of
// OpDef::reassociate: null where there is nothing to save.
//
//   linear(T[ids], W, b)  = linear(T, W, b)[ids]
//   Aᵀ · T[ids]           = (Σ_{ids = r} A)ᵀ · T         the gradient of W
//   Σ_{ids = r} (A · W)   = (Σ_{ids = r} A) · W          the gradient of T
//
// The second reads rows of T that no id names, times 0: an infinity or a NaN there spreads.
#pragma once

#include "lib/graph/node.h"

namespace lumen::ops {

graph::NodePtr linear_of_lookup(const graph::NodePtr& node);
graph::NodePtr matmul_with_lookup(const graph::NodePtr& node);
graph::NodePtr embedding_grad_of_product(const graph::NodePtr& node);

}  // namespace lumen::ops
