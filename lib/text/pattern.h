// The patterns of Split and Replace: a literal string or a regular expression.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lib/base/function_ref.h"
#include "lib/io/json.h"
#include "lib/text/regex.h"

namespace lumen::text {

class Pattern {
 public:
  static Pattern literal(std::string text);
  static Pattern regex(std::string_view pattern);

  // `text` with every match replaced by `content`. Throws Error(kResource) if that grows beyond
  // all bounds.
  std::string replace_all(std::string_view text, std::string_view content) const;

 private:
  friend class PatternMatcher;
  std::string literal_;
  std::optional<Regex> regex_;
};

// Finds matches in one text after the other; see RegexMatcher.
class PatternMatcher {
 public:
  explicit PatternMatcher(const Pattern& pattern);
  // An empty literal matches nowhere.
  void find_all(std::string_view text, FunctionRef<void(size_t begin, size_t end)> found);

 private:
  const Pattern& pattern_;
  std::optional<RegexMatcher> matcher_;
};

// The member "pattern": {"String": …} or {"Regex": …}, or a plain string as old files have it.
Pattern parse_pattern(const io::Json& json);

}  // namespace lumen::text
