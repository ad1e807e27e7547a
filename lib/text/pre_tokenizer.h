// Pre-tokenizers: how a tokenizer.json splits the text into words, within which the model works.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"

namespace lumen::text {

// A text and the words it is split into: non-empty, in order, not overlapping. What lies between
// them is dropped.
struct Words {
  struct Span {
    uint32_t begin, end;
  };
  std::string text;
  std::vector<Span> spans;
  bool first_at_start = false;  // the first word begins where the user's text begins

  std::string_view word(Span span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

// Splits every word further or rewrites it. Immutable and thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;

  // If the last thing done is to spell bytes in the byte-level alphabet, leaves that away from now
  // on, so that words consist of plain bytes, and returns true.
  virtual bool leave_bytes_plain() { return false; }

  // Whether words end at every space, so that they are short in ordinary text.
  virtual bool splits_words() const { return true; }
};

// What becomes of the delimiter when a text is split at it.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Splits by a regular expression in Oniguruma syntax.
std::unique_ptr<PreTokenizer> make_regex_split(std::string_view pattern, SplitBehavior behavior);
// Spells bytes in the byte-level alphabet.
std::unique_ptr<PreTokenizer> make_byte_spelling();
std::unique_ptr<PreTokenizer> make_pre_tokenizer_sequence(
    std::vector<std::unique_ptr<PreTokenizer>> parts);

// The pre-tokenizer that a JSON object of tokenizer.json describes; null for JSON null. Throws
// Error(kUnsupported) for an unknown type, kMalformed for wrong members.
std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const io::Json& json);

}  // namespace lumen::text
