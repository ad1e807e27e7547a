// Several LoRA adapters at once, each with a factor.
#pragma once

#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/adapters/lora.h"

namespace lumen::runtime {

struct NamedAdapter {
  std::string path;
  double scale = 1;  // of what it adds, beside its own
};

// "ADAPTER" or "ADAPTER=SCALE"; a file or directory that is there by the whole name is one. Throws
// Error(kUsage) for a scale that is no number from −1000 to 1000.
NamedAdapter parse_adapter_name(const std::string& text);

// The adapter that adds what all of `names` do, with their factors. One alone without a factor is
// as read_adapter gives it. Throws Error as read_adapter and parse_adapter_name; kUnsupported for
// what cannot be added up or scaled: lengths of rows (DoRA) of more than one, tensors that two
// replace, or one with a factor.
LoraAdapter read_adapters(const std::vector<std::string>& names, const io::Json& model_config);

}  // namespace lumen::runtime
