#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/language.h"

namespace lumen::data {

void for_each_line(std::string_view text, const std::function<void(const TextLine&)>& visit) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  int64_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > limits::kDataRowBytes) {
      fail(ErrorKind::kMalformed, "line ", number, ": has ", line.size(), " bytes; the limit is ",
           limits::kDataRowBytes);
    }
    if (line.find_first_not_of(" \t") != line.npos) visit({line, number});
  }
}

void fail_at(const TextLine& line, size_t offset, std::string_view what) {
  int64_t number = line.number, column = line.indent + 1;
  for (const char c : line.text.substr(0, offset)) {
    column = c == '\n' ? 1 : column + ((c & 0xC0) != 0x80 ? 1 : 0);
    number += c == '\n' ? 1 : 0;
  }
  fail(ErrorKind::kMalformed, "line ", number, ", column ", column, ": ", what);
}

void check_utf8(const TextLine& line) {
  if (is_valid_utf8(line.text)) return;
  // The longest valid beginning, by halves: validity of a prefix up to a character's end is
  // monotonic, and a cut inside a character moves back to its beginning.
  size_t good = 0, bad = line.text.size();
  while (good + 1 < bad) {
    size_t middle = (good + bad) / 2;
    const std::string_view prefix = line.text.substr(0, middle);
    if (is_valid_utf8(prefix.substr(0, middle - incomplete_utf8_suffix(prefix)))) {
      good = middle;
    } else {
      bad = middle;
    }
  }
  good -= incomplete_utf8_suffix(line.text.substr(0, good));
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto byte = static_cast<uint8_t>(line.text[good]);
  fail_at(
      line, good,
      str("found the byte 0x", kDigits[byte >> 4], kDigits[byte & 15], ", expected UTF-8 text"));
}

}  // namespace lumen::data
