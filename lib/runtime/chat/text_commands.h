// What lumen-run does without a model: tokenise, detokenise, render a template.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/runtime/run_options.h"

namespace lumen::runtime {

// The verbs of --tokenize, --detokenize and --render; results go to standard output. Throw Error
// as the parts they use, naming "standard input: line N" where it applies.
void run_tokenize(const RunOptions& options);
void run_detokenize(const RunOptions& options);
void run_render(const RunOptions& options);

// The prompt: --prompt, then the texts of --file and, if standard input is not a terminal, that,
// each from a new line on unless it is empty. Throws also as read_file.
std::string prompt_text(const RunOptions& options);

// A JSON array of token ids; `place` is for messages. Throws Error(kMalformed) if `text` is none.
std::vector<int32_t> parse_ids(std::string_view text, const std::string& place);

}  // namespace lumen::runtime
