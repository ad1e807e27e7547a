#include "lib/text/pattern.h"

#include <utility>

#include "lib/base/error.h"
#include "lib/text/utf8.h"

namespace lumen::text {
Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

Pattern Pattern::regex(std::string_view text) {
  Pattern pattern;
  pattern.regex_.emplace(text);
  return pattern;
}

std::string Pattern::replace_all(std::string_view text, std::string_view content) const {
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;
  PatternMatcher(*this).find_all(text, [&](size_t begin, size_t end) {
    out.append(text, copied, begin - copied);
    out += content;
    copied = end;
    check_normalized_size(out.size());
  });
  out.append(text, copied);
  return out;
}

PatternMatcher::PatternMatcher(const Pattern& pattern) : pattern_(pattern) {
  if (pattern.regex_) matcher_.emplace(*pattern.regex_);
}

void PatternMatcher::find_all(std::string_view text,
                              FunctionRef<void(size_t begin, size_t end)> found) {
  if (matcher_) return matcher_->find_all(text, found);
  const std::string& literal = pattern_.literal_;
  if (literal.empty()) return;
  for (size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size())) {
    found(at, at + literal.size());
  }
}

Pattern parse_pattern(const io::Json& json) {
  const io::Json* pattern = io::find(json, "pattern");
  if (pattern != nullptr && pattern->is_string()) {
    return Pattern::literal(pattern->get<std::string>());
  }
  if (pattern != nullptr && io::find(*pattern, "String") != nullptr) {
    return Pattern::literal(io::get_string(*pattern, "String"));
  }
  if (pattern != nullptr && io::find(*pattern, "Regex") != nullptr) {
    return Pattern::regex(io::get_string(*pattern, "Regex"));
  }
  fail(ErrorKind::kMalformed, "'pattern' is ", io::describe(pattern),
       ", expected {\"String\": …} or {\"Regex\": …}");
}

}  // namespace lumen::text
