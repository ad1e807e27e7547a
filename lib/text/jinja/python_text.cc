#include "lib/text/jinja/python_text.h"

#include <algorithm>

#include "lib/base/strings.h"
#include "lib/text/unicode.h"

namespace lumen::text::jinja {

namespace {

// Where the code point that ends before `end` begins.
size_t previous_code_point(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

uint32_t code_point_at(std::string_view text, size_t pos) {
  return next_code_point(text, pos);
}

void append_mapped(std::string& out, const CaseTable& table, uint32_t code_point) {
  const auto sequence = std::lower_bound(
      table.sequences.begin(), table.sequences.end(), code_point,
      [](const CaseSequence& entry, uint32_t wanted) { return entry.from < wanted; });
  if (sequence != table.sequences.end() && sequence->from == code_point) {
    for (uint32_t to : sequence->to) {
      if (to != 0) append_utf8(out, to);
    }
    return;
  }
  const auto run =
      std::lower_bound(table.runs.begin(), table.runs.end(), code_point,
                       [](const CaseRun& entry, uint32_t wanted) { return entry.last < wanted; });
  if (run != table.runs.end() && run->first <= code_point &&
      (code_point - run->first) % run->stride == 0) {
    code_point = static_cast<uint32_t>(static_cast<int64_t>(code_point) + run->delta);
  }
  append_utf8(out, code_point);
}

constexpr uint32_t kSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

// True if the capital sigma at [begin, end) ends a word: a cased letter before it, none after,
// case-ignorable characters not counting (Unicode, SpecialCasing.txt: Final_Sigma).
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  while (begin > 0) {
    begin = previous_code_point(text, begin);
    const uint32_t c = code_point_at(text, begin);
    if (has_property(kProperties.case_ignorable, c)) continue;
    cased_before = has_property(kProperties.cased, c);
    break;
  }
  if (!cased_before) return false;
  while (end < text.size()) {
    const uint32_t c = next_code_point(text, end);
    if (has_property(kProperties.case_ignorable, c)) continue;
    return !has_property(kProperties.cased, c);
  }
  return true;
}

void append_lower_in(std::string& out, std::string_view text, size_t begin, size_t end,
                     uint32_t code_point) {
  if (code_point == kSigma) {
    append_utf8(out, is_final_sigma(text, begin, end) ? kFinalSigma : kSmallSigma);
  } else {
    append_lower(out, code_point);
  }
}

std::string map_all(std::string_view text, const CaseTable& table) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) append_mapped(out, table, next_code_point(text, pos));
  return out;
}

}  // namespace

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

size_t offset_of(std::string_view text, int64_t index) {
  size_t pos = 0;
  while (index > 0 && pos < text.size()) {
    ++pos;
    while (pos < text.size() && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) ++pos;
    --index;
  }
  return pos;
}

Pieces code_points(std::string_view text) {
  Pieces out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = offset_of(text.substr(pos), 1);
    out.push_back(text.substr(pos, length));
    pos += length;
  }
  return out;
}

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool has_property(std::span<const Range> property, uint32_t code_point) {
  const auto range =
      std::lower_bound(property.begin(), property.end(), code_point,
                       [](const Range& entry, uint32_t wanted) { return entry.last < wanted; });
  return range != property.end() && range->first <= code_point;
}

bool is_alphabetic(uint32_t code_point) {
  switch (category(code_point)) {
    case Category::kLl:
    case Category::kLm:
    case Category::kLo:
    case Category::kLt:
    case Category::kLu:
      return true;
    default:
      return false;
  }
}

bool is_decimal(uint32_t code_point) {
  return category(code_point) == Category::kNd;
}

bool is_titlecase(uint32_t code_point) {
  return category(code_point) == Category::kLt;
}

bool is_printable(uint32_t code_point) {
  switch (category(code_point)) {
    case Category::kCc:
    case Category::kCf:
    case Category::kCn:
    case Category::kCo:
    case Category::kCs:
    case Category::kZl:
    case Category::kZp:
    case Category::kZs:
      return code_point == ' ';
    default:
      return true;
  }
}

CharacterSet::CharacterSet(std::string_view characters) {
  for (size_t pos = 0; pos < characters.size();) {
    sorted_.push_back(next_code_point(characters, pos));
  }
  std::sort(sorted_.begin(), sorted_.end());
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
}

bool CharacterSet::contains(uint32_t code_point) const {
  return std::binary_search(sorted_.begin(), sorted_.end(), code_point);
}

namespace {

template <typename Removable>
std::string_view strip_left_while(std::string_view text, const Removable& removable) {
  size_t pos = 0;
  while (pos < text.size()) {
    size_t next = pos;
    if (!removable(next_code_point(text, next))) break;
    pos = next;
  }
  return text.substr(pos);
}

template <typename Removable>
std::string_view strip_right_while(std::string_view text, const Removable& removable) {
  while (!text.empty()) {
    const size_t last = previous_code_point(text, text.size());
    if (!removable(code_point_at(text, last))) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

std::string_view strip_left(std::string_view text) {
  return strip_left_while(text, is_space);
}

std::string_view strip_right(std::string_view text) {
  return strip_right_while(text, is_space);
}

std::string_view strip_left(std::string_view text, const CharacterSet& characters) {
  return strip_left_while(text, [&](uint32_t c) { return characters.contains(c); });
}

std::string_view strip_right(std::string_view text, const CharacterSet& characters) {
  return strip_right_while(text, [&](uint32_t c) { return characters.contains(c); });
}

std::string to_upper(std::string_view text) {
  return map_all(text, kCases.upper);
}

std::string to_casefold(std::string_view text) {
  return map_all(text, kCases.fold);
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t c = next_code_point(text, pos);
    append_lower_in(out, text, begin, pos, c);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t c = next_code_point(text, pos);
    if (inside_word) {
      append_lower_in(out, text, begin, pos, c);
    } else {
      append_mapped(out, kCases.title, c);
    }
    inside_word = has_property(kProperties.cased, c);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t c = next_code_point(text, pos);
    if (begin == 0) {
      append_mapped(out, kCases.title, c);
    } else {
      append_lower_in(out, text, begin, pos, c);
    }
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t c = next_code_point(text, pos);
    if (has_property(kProperties.uppercase, c)) {
      append_lower_in(out, text, begin, pos, c);
    } else if (has_property(kProperties.lowercase, c)) {
      append_mapped(out, kCases.upper, c);
    } else {
      append_utf8(out, c);
    }
  }
  return out;
}

void append_quoted(TextBuilder& out, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  constexpr char kHex[] = "0123456789abcdef";
  out.append(quote);
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t c = next_code_point(text, pos);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out.append('\\');
      out.append(static_cast<char>(c));
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (is_printable(c)) {
      out.append(text.substr(begin, pos - begin));
    } else {
      const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out.append(digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U");
      for (int i = digits - 1; i >= 0; --i) out.append(kHex[(c >> (4 * i)) & 15]);
    }
  }
  out.append(quote);
}

}  // namespace lumen::text::jinja
