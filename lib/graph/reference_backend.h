// The reference backend: runs any graph of the dozen primitives and views, in double, one element
// at a time. It is the oracle of the test suite and the proof that a new device needs only these.
#pragma once

#include <unordered_map>
#include <vector>

#include "lib/graph/tensor.h"

namespace lumen::graph {

// The value of `tensor`, row-major in double: decomposed to primitives, then interpreted. Constants
// and states are read, inputs must have been given values by substituting constants. Overwriting
// operations return the new memory without changing the old. Throws Error(kInternal) for an
// operation without a meaning. Slow: for tests.
//
// `leaves` replaces the values of leaves: numbers that float32 cannot hold, for finite differences.
using LeafValues = std::unordered_map<const Node*, std::vector<double>>;
std::vector<double> evaluate_reference(const Tensor& tensor, const LeafValues& leaves = {});

}  // namespace lumen::graph
