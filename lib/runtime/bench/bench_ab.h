// Whether one program is slower than another, measured in turn: lumen-bench ab.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/bench/bench_compare.h"
#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

struct AbOptions {
  std::optional<std::string> a, b;   // executables of lumen-bench
  std::optional<int64_t> rounds;     // absent: 5
  std::vector<std::string> command;  // a verb that measures, and its arguments
  GateOptions gate;
};

// Adds the options of `lumen-bench ab` to `line`; they write to `options`.
void declare(CommandLine& line, AbOptions& options);

// The verb: runs both with the same arguments in the order a b, b a, a b, …, each time in a fresh
// process, and compares the medians of all rounds, a being the old: four rounds or more can tell
// that one is slower. If both are the same file, the
// largest deviation is told as the noise floor. Returns gate_exit_code, or 128 + the signal that
// stopped it, and its child; throws Error: kProgramFailed if a child fails, and what run_child,
// parse_bench_report and compare_reports throw.
int bench_ab(const AbOptions& options);

}  // namespace lumen::runtime
