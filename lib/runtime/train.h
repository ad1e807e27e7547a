// The verb of lumen-train.
#pragma once

#include "lib/runtime/training/train_options.h"
#include "lib/runtime/training/train_task.h"

namespace lumen::runtime {

// Does what `options` ask for, with the task that `make` makes of the recipe. Returns the exit
// code: 0, or 130 and 143 when a signal stopped the run after it was saved. Throws Error, of kind
//   kMalformed, kUsage   the recipe (file, or --set) or the data are wrong
//   kCannotCreate, kIo   the output directory cannot be written; the disk is full
//   kRetry               another run writes there
//   kMismatch            the recipe or the data no longer fit the checkpoint
//   kDiverged            the loss is not finite any more
//   kCheckFailed         --overfit-batch did not learn its batch
int train(const TrainOptions& options, const TaskFactory& make);

}  // namespace lumen::runtime
