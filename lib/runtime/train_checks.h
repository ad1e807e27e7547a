// Looking at a run before it is started: nothing here touches the output directory.
#pragma once

#include "lib/runtime/train_options.h"
#include "lib/runtime/train_task.h"

namespace lumen::runtime {

// Files, shapes, memory, steps and, from two timed steps, how long it will take; on standard
// output. Returns the exit code.
int dry_run(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make);

// Training samples as people read them, on standard output.
int preview(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make);

// Learns the first batch by heart. Throws Error(kCheckFailed) if the loss does not fall to a tenth
// within 200 steps (or train.steps, if that is given).
int overfit_batch(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make);

// The data of a run: path, bytes, hash, samples.
io::Json data_to_json(const TaskSummary& summary);

}  // namespace lumen::runtime
