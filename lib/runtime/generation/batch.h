// Many prompts, many answers: lumen-run --batch.
#pragma once

#include <optional>
#include <string_view>

#include "lib/runtime/generation/prompt.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/input.h"

namespace lumen::runtime {

// One line of a batch, ready to be answered.
struct BatchRequest {
  std::optional<io::Json> id;  // any value without numbers beyond 64 bits; none: the line has none
  Prompt prompt;
  SamplingSettings sampling;
  GenerationOptions generation;
};

// The request in `line`, a JSON object: either "prompt" (text; continued as it is with --raw) or
// "messages"; "id" (any value without numbers beyond 64 bits, given back), "system", "max_tokens",
// "stop" (text or texts), "grammar" (GBNF), "json_schema" (a schema), and the sampling options:
// numbers as their flags with _ for - ("top_k"; but "temperature"), "dry_sequence_breakers" (text
// or texts, [] for none) and "logit_bias" (an object of biases, or "-inf", by token: id or text).
// Variables of the chat template are "tools" (an array of function schemas) and those in
// "template_args" (an object). What is absent is as `options` say. Throws Error(kMalformed) naming
// the key.
BatchRequest parse_request(std::string_view line, const RunOptions& options,
                           const Session& session);

// Answers the lines of `input`, up to session.model->slots() at once (continuous batching,
// Yu et al. 2022): whenever an answer ends the next prompt takes its slot. Writes one line of JSON
// per answer to standard output, in the order of the lines, each as soon as those before it are
// written; what has to wait is bounded. Each text is what the prompt alone would have got.
// At a line that cannot be used, or whose logits are no numbers, no more are read; the other
// answers that have begun are completed, and then the error is thrown: "FILE: line N: …", of
// several the first line's. If options.on_bad_line is "skip" that error is written in the place of
// the answer instead: {"schema": 1, "error": …}, with the line's id. Returns the exit code.
int run_batch(const RunOptions& options, Session& session, LineInput& input);

}  // namespace lumen::runtime
