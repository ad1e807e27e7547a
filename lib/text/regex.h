// The regular expressions of tokenizers, in the syntax of Oniguruma that Hugging Face uses, run by
// PCRE2 within bounds of time and memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lib/base/function_ref.h"

namespace lumen::text {

// A compiled pattern. Immutable; share it among threads and give each its own RegexMatcher.
class Regex {
 public:
  // Throws Error(kMalformed) for a syntax error and kUnsupported for constructs that PCRE2 does not
  // have or that mean something else there.
  explicit Regex(std::string_view pattern);

 private:
  friend class RegexMatcher;
  std::shared_ptr<void> code_;
  std::shared_ptr<void> young_code_;  // for texts that has_young; null if the pattern is the same
  std::string pattern_;               // as given
};

// Finds all matches of a pattern in one text after the other.
class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex);

  // Calls found(begin, end) for the matches in `text`, which is valid UTF-8, from left to right.
  // They do not overlap; an empty match does not touch the one before. Throws Error(kResource) if
  // the pattern needs far more than linear time or stack on this text.
  void find_all(std::string_view text, FunctionRef<void(size_t begin, size_t end)> found);

 private:
  // One search from `pos`; false if there is no match.
  bool search(std::string_view text, size_t pos, size_t& begin, size_t& end);
  // Looks at the clock now and then; throws when time is up.
  void spend(size_t text_bytes);

  const Regex& regex_;
  void* code_ = nullptr;  // of the pattern, for the text at hand
  std::shared_ptr<void> match_, context_, jit_stack_;
  int64_t start_ns_ = 0;
  uint64_t total_bytes_ = 0, unspent_bytes_ = 0;
};

// The pattern rewritten for PCRE2: \s, \w, \h and \b with their Unicode meaning, set intersections
// and nested sets as lookaheads, long names of properties. With `young` what is of a general
// category, and \w, takes in the characters of unicode.h's has_young, which PCRE2 may not know, as
// ranges. Exposed for tests.
std::string translate_oniguruma(std::string_view pattern, bool young = false);

}  // namespace lumen::text
