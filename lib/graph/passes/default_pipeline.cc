#include "lib/graph/passes/passes.h"

namespace lumen::graph::passes {

Pipeline default_pipeline() {
  return {reassociate(),         eliminate_dead_code(),
          eliminate_common(),    simplify(),
          fold_constants(),      merge_siblings(),
          fuse_relu(),           fuse_elementwise(),
          fuse_gates(),          fuse_epilogues(),
          store_bf16(),          fuse_casts(),
          materialize_layouts(), schedule()};
}

}  // namespace lumen::graph::passes
