// Training samples as people read them.
#pragma once

#include <string>

#include "lib/data/batch.h"
#include "lib/runtime/training/training_data.h"

namespace lumen::runtime {

// Row `row` of `batch`, a batch of `data`: text, with what is not learnt in brackets; or the shape
// and range of numbers with their label.
std::string describe_sample(const data::Batch& batch, int64_t row, const TrainingData& data);

}  // namespace lumen::runtime
