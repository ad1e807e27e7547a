// Which checkpoints are the best, by the metric that a recipe names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/checkpoint.h"

namespace lumen::runtime {

// Whether the larger value of a metric is the better one: accuracies.
bool higher_is_better(std::string_view metric);

// Those of `entries`, up to `last_step`, that were evaluated with a finite value of `metric`; the
// best first, of equal ones the earlier.
std::vector<io::CheckpointEntry> best_checkpoints(const std::vector<io::CheckpointEntry>& entries,
                                                  const std::string& metric, int64_t last_step);

// How many of `entries`, all from best_checkpoints, are at least as good as `value`.
int64_t count_as_good(const std::vector<io::CheckpointEntry>& entries, const std::string& metric,
                      double value);

}  // namespace lumen::runtime
