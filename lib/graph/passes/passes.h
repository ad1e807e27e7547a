// The passes. Each stands in a file of its own with its pre- and postcondition on top.
#pragma once

#include "lib/graph/graph.h"

namespace lumen::graph::passes {

Pass verify();               // throws on a malformed graph, changes nothing
Pass eliminate_dead_code();  // drops what no output needs
Pass eliminate_common();     // equal computations become one
Pass simplify();             // algebra and views
Pass reassociate();          // products in the order that costs least
Pass fold_constants();       // small constant results
Pass merge_siblings();       // q, k, v and gate, up: one product instead of several
Pass fuse_relu();            // relu after a normalisation, and its gradient: part of it
Pass fuse_elementwise();     // chains of element-wise operations: one step
Pass fuse_gates();           // element-wise work on gate and up: done on their product's tiles
Pass fuse_epilogues();       // element-wise work after a product: done on its tiles
Pass store_bf16();           // mixed precision: what products round, and their results
Pass fuse_casts();           // reading and giving narrow floats: part of fused steps
Pass materialize_layouts();  // copies where a kernel cannot read a view
Pass schedule();             // an execution order that keeps little alive
Pass decompose();            // meanings down to the dozen primitives

// What compile() runs unless told otherwise.
Pipeline default_pipeline();

}  // namespace lumen::graph::passes
