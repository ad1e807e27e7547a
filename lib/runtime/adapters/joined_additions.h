// Two low-rank additions as the one to a layer that has the rows of both.
#pragma once

#include <cstdint>

#include "lib/nn/parameters.h"

namespace lumen::runtime {

// a [rank, in] and b [out, rank], both empty of a layer without one, and what B A is multiplied by.
// Of DoRA the magnitudes m [out], which are of rows and so those of a layer that has the rows of
// both.
struct Addition {
  Array a, b;
  nn::LoraOptions::Own own{};
  Array m = {};
};

// Whether both multiply the same numbers.
bool have_same_a(const Addition& first, const Addition& second);

struct JoinedAddition {
  Array a, b[2];  // [rank, in]; the rows of each layer [rows, rank]
  nn::LoraOptions::Own own{};
};
// The one of both, at least one of which is there. Its rank is theirs if they have the `same_a` or
// one is there alone, and that layer has no rows but 0 for the other; else the sum of theirs.
// Scales that differ are worked into b. `rows` are those of the two layers.
JoinedAddition joined(const Addition (&parts)[2], const int64_t (&rows)[2], bool same_a);

}  // namespace lumen::runtime
