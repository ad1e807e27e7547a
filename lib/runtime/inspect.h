// What a model file holds: lumen-convert --inspect.
#pragma once

#include <optional>
#include <string>

#include "lib/io/json.h"
#include "lib/io/model_files.h"
#include "lib/runtime/command_line.h"

namespace lumen::runtime {

struct ConvertOptions {
  std::optional<std::string> inspect;  // a model: path or org/name
  std::optional<std::string> tokenizer;
  bool json = false;
};

// Adds the options of lumen-convert to `line`; they write to `options`.
void declare(CommandLine& line, ConvertOptions& options);

// The verb of lumen-convert. Returns the exit code; throws Error.
int convert(const ConvertOptions& options);

// Format, config, metadata, tensors, tokenizer, special and end tokens, chat templates. Reads
// headers only. A tokenizer that cannot be loaded is reported under "tokenizer", "error".
io::Json inspect_model(const io::ModelFiles& files, const std::string& tokenizer_path);

}  // namespace lumen::runtime
