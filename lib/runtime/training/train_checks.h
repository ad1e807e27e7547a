// Looking at a run before it is started: nothing here touches the output directory.
#pragma once

#include "lib/runtime/training/train_options.h"
#include "lib/runtime/training/train_task.h"

namespace lumen::runtime {

// Files, shapes, memory, steps and, from two timed steps, how long it will take; on standard
// output. Returns the exit code.
int dry_run(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make);

// Training samples as people read them, on standard output.
int preview(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make);

// Learns the first batch by heart. Throws Error(kCheckFailed) if of what can be learnt of the loss
// (TrainTask::least_loss) more than a tenth is left after 300 steps (or --set train.steps).
int overfit_batch(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make);

// What a summary has to say of data and prompts, on standard error.
void tell_notices(const TaskSummary& summary);

// How many rows and texts are skipped or cut, and why, on standard error.
void tell_left_out(const Recipe& recipe, const TaskSummary& summary);

// ", without 4 samples that fill no batch", or "".
std::string left_out_text(const TaskSummary& summary);

// The data of a run: path, bytes, hash, samples.
io::Json data_to_json(const TaskSummary& summary);

}  // namespace lumen::runtime
