// What a network could learn of one batch at best.
#pragma once

#include "lib/data/batch.h"

namespace lumen::runtime {

// The least mean cross-entropy, in nats, over the targets of a batch of token rows: that of a
// network that knows how often each target follows each beginning of a row (of a segment, where
// rows are packed). More than 0 where the same tokens are continued in several ways, as all names
// begin alike. 0 for batches of other kinds.
double least_loss(const data::Batch& batch);

}  // namespace lumen::runtime
