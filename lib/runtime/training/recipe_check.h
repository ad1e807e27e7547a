// What a recipe means beyond its single keys: defaults that depend on others, and contradictions.
#pragma once

#include <string>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/runtime/training/recipe.h"

namespace lumen::runtime {

// Reports that the key at a path ("train.micro_batch") does not go with the rest; does not return.
using Complain = FunctionRef<void(const std::string& key, const std::string& message)>;

// The formats that `source` may have: the one that is given, or those of its data set, or the one
// that the ending of its first path tells. None if nothing tells.
std::vector<std::string> possible_formats(const DataSource& source);

// Gives `recipe`, whose keys are each valid, the defaults that depend on other keys, and calls
// `complain` for the first combination that makes no sense.
void complete(Recipe& recipe, Complain complain);

// Calls `complain` for every key that follows evaluations, of which there are none.
void check_without_evaluation(const Recipe& recipe, Complain complain);

}  // namespace lumen::runtime
