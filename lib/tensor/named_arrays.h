// Arrays by name: what checkpoints hold and what is restored from them.
#pragma once

#include <map>
#include <string>

#include "lib/tensor/array.h"

namespace lumen {

using NamedArrays = std::map<std::string, Array>;

// Throws Error(kMismatch) unless `given` has exactly the names of `expected`, each with the same
// shape. One message names everything missing, unexpected and misshapen (up to ten of each);
// `what` is what is being restored ("the model", "the optimizer").
void check_same_names(const NamedArrays& expected, const NamedArrays& given,
                      const std::string& what);

}  // namespace lumen
