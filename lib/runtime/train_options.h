// What a user may ask of lumen-train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/command_line.h"

namespace lumen::runtime {

struct TrainOptions {
  std::optional<std::string> recipe;  // a path or a bundled name
  std::vector<std::string> overrides;
  std::optional<std::string> out, resume;
  std::optional<int64_t> threads, preview;
  bool recipes = false, print_config = false, print_schema = false;
  bool dry_run = false, overfit_batch = false, force = false, json = false;

  // Throws Error(kUsage) naming options that do not go together or are missing.
  void check() const;
};

// Adds the options of lumen-train to `line`; they write to `options`.
void declare(CommandLine& line, TrainOptions& options);

// Adds the environment variables that training reads, for the man pages of the tools that train.
void add_data_variables(CommandLine& line);

}  // namespace lumen::runtime
