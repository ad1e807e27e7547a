// Normalizers: what a tokenizer.json does to the text before it splits it.
#pragma once

#include <memory>
#include <string>

#include "lib/io/json.h"

namespace lumen::text {

// Rewrites a text. Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `text` is valid UTF-8 before and after.
  virtual void apply(std::string& text) const = 0;
};

// The normalizer that a JSON object of tokenizer.json describes; null for JSON null. Throws
// Error(kUnsupported) for an unknown type, kMalformed for wrong members.
std::unique_ptr<Normalizer> parse_normalizer(const io::Json& json);

}  // namespace lumen::text
