// Measuring a language model: lumen-bench llm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/bench/bench_output.h"
#include "lib/runtime/bench/bench_profile.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

struct BenchOptions {
  std::optional<std::string> model;  // absent: the built-in one
  // Lists separated by commas; every combination of threads and depth is measured,
  // and with each number of texts at once (batch) the generation. Empty: 512 and 128, or as many as
  // the model has positions; physical cores.
  std::string prompt_tokens, generated_tokens, threads, depth = "0", batch = "1";
  std::optional<int64_t> repetitions;  // absent: 5
  std::string kv = "f16";
  BenchOutput output;
  ProfileOptions profile;
  bool json = false;
  bool no_repack = false;
};

// Adds the options of `lumen-bench llm` to `line`; they write to `options`.
void declare(CommandLine& line, BenchOptions& options);

// The verb: loads the model once for each number of threads and measures reading prompts ("pp") and
// generating ("tg") apart, after a warm-up, and the bandwidth at which as many threads read memory,
// which is what generating is limited by (at least what it proves). Returns the exit code; throws
// Error.
int bench_llm(const BenchOptions& options);

// "1,2,8" as numbers in [min, max]. Throws Error(kUsage) naming `option`.
std::vector<int64_t> parse_list(const std::string& text, const std::string& option, int64_t min,
                                int64_t max);

// An option that takes such a list, checked when it is set: an environment variable that stands for
// the option is named then. `variable` keeps the text.
Field number_list_field(std::string name, std::string help, std::string& variable, int64_t min,
                        int64_t max);

}  // namespace lumen::runtime
