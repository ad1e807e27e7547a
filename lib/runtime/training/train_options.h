// What a user may ask of lumen-train.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

// What lumen-train can do; every option says which of it it matters to.
enum TrainVerb : unsigned {
  kTraining = 1,
  kTrial = 2,  // --dry-run, --preview, --overfit-batch: what training would do
  kPrintConfig = 4,
  kPrintSchema = 8,
  kListRecipes = 16,
};

struct TrainOptions {
  std::optional<std::string> recipe;  // a path or a bundled name
  std::vector<std::string> overrides;
  std::optional<std::string> out, resume;
  std::optional<int64_t> threads, preview;
  bool recipes = false, print_config = false, print_schema = false;
  bool dry_run = false, overfit_batch = false, force = false, json = false, profile = false;

  GivenOptions given;

  // Throws Error(kUsage) naming options that do not go together, have no effect or are missing.
  void check() const;
};

// Adds the options of lumen-train to `line`; they write to `options`.
void declare(CommandLine& line, TrainOptions& options);

// Adds the environment variables that training reads, for the man pages of the tools that train.
void add_data_variables(CommandLine& line);

}  // namespace lumen::runtime
