// What a recipe says, held against its data and its model. All throw Error at the key that is
// wrong, as fail_at_key does.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lib/io/model_files.h"
#include "lib/optim/optimizer.h"
#include "lib/runtime/training/recipe.h"

namespace lumen::runtime {

// Makes the rows of `recipe` no longer than the positions of `base`, the model that it goes on with
// or null. Rows that the recipe itself makes longer are an error. Returns the recipe.
const Recipe& fit_rows(Recipe& recipe, const io::ModelFiles* base);

// Whether `samples` training samples make at least one batch.
void check_batch_size(const Recipe& recipe, int64_t samples);

// Whether the label of a table, which has classes or else numbers, is what the recipe takes it for.
void check_label(const Recipe& recipe, bool has_classes);

// Whether there are data for the evaluations that the recipe follows, if it follows any.
void check_evaluation(const Recipe& recipe, bool has_data);

// Whether the model has experts, of which a token goes through `used_experts` (0: it has none), if
// the recipe weighs their even use.
void check_router_loss(const Recipe& recipe, int64_t used_experts);

// [optimizer], of which every group and every name without decay is of some of `parameters`.
optim::OptimizerConfig optimizer_config(const Recipe& recipe,
                                        const std::vector<optim::NamedParameter>& parameters);

}  // namespace lumen::runtime
