// The verb of lumen-run.
#pragma once

#include "lib/runtime/generation/session.h"
#include "lib/runtime/run_options.h"

namespace lumen::runtime {

// Does what `options` ask: tokenise, detokenise or render; answer one prompt; or, if standard input
// and output are terminals and there is no prompt, chat. Returns the exit code: 0, or 128 + the
// signal that ended it. Throws Error; kUsage if there is neither a prompt nor a terminal.
int run(const RunOptions& options);

// Writes what --logits and --ids ask for.
void write_logits_of_ids(const RunOptions& options);

// Answers one prompt with a loaded model. `prompt` is --prompt and standard input put together,
// unused with --ids.
int run_one_shot(const RunOptions& options, Session& session, const std::string& prompt);

}  // namespace lumen::runtime
