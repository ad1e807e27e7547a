// Random inputs of test cases, for tests and benchmarks.
#pragma once

#include "lib/base/random.h"
#include "lib/graph/node.h"

namespace lumen::ops {

// Values of `type` in the range of `test`, int32 0 to 3.
Array random_input(const graph::TypedShape& type, const graph::OpCase& test, Philox& random);

}  // namespace lumen::ops
