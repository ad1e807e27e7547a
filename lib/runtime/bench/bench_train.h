// Measuring training steps: lumen-bench train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/bench/bench_output.h"
#include "lib/runtime/bench/bench_profile.h"
#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

struct TrainBenchOptions {
  std::optional<std::string> recipe;
  std::vector<std::string> overrides;
  std::string threads;                 // list separated by commas
  std::optional<int64_t> repetitions;  // absent: as many as fit into `seconds`
  std::optional<double> seconds;       // absent: 10
  BenchOutput output;
  ProfileOptions profile;
};

// Adds the options of `lumen-bench train` to `line`; they write to `options`.
void declare(CommandLine& line, TrainBenchOptions& options);

// The verb: trains the recipe's network on its data for a while and measures one optimizer step
// after a warm-up, then perhaps profiles some more. Nothing is saved. Returns the exit code; throws
// Error.
int bench_train(const TrainBenchOptions& options);

}  // namespace lumen::runtime
