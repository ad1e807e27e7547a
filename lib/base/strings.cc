#include "lib/base/strings.h"

#include <algorithm>
#include <numeric>

namespace lumen {
namespace {

// How far the bytes at the beginning of `bytes` go as one character: all of it (`complete`), or
// the longest part that could still become one (Unicode 15, table 3-7).
struct Extent {
  size_t length;
  bool complete;
};

Extent first_character(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true};
  const size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (size == 0) return {1, false};
  uint8_t low = 0x80, high = 0xBF;  // of the second byte: no overlong forms, surrogates, > U+10FFFF
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  size_t length = 1;
  while (length < size && length < bytes.size() && at(length) >= low && at(length) <= high) {
    ++length;
    low = 0x80;
    high = 0xBF;
  }
  return {length, length == size};
}

bool can_grow(std::string_view bytes, Extent extent) {
  return !extent.complete && extent.length == bytes.size() &&
         static_cast<uint8_t>(bytes[0]) >= 0xC2 && static_cast<uint8_t>(bytes[0]) < 0xF5;
}

// Length of the well-formed UTF-8 sequence at `pos`, or 0 if it is malformed or incomplete.
size_t utf8_length(std::string_view text, size_t pos) {
  const Extent extent = first_character(text.substr(pos));
  return extent.complete ? extent.length : 0;
}

bool is_unprintable(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

void append_hex(std::string& out, uint32_t value, int min_digits) {
  char buffer[8];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, 16).ptr;
  for (auto digits = end - buffer; digits < min_digits; ++digits) out += '0';
  out.append(buffer, end);
}

}  // namespace

std::string printable(std::string_view text, size_t max_columns) {
  std::string out;
  size_t columns = 0;
  for (size_t pos = 0; pos < text.size(); ++columns) {
    if (columns >= max_columns) {
      out += "…";
      break;
    }
    const size_t length = utf8_length(text, pos);
    if (length == 0) {
      out += "\\x";
      append_hex(out, static_cast<uint8_t>(text[pos++]), 2);
      continue;
    }
    size_t next = pos;
    const uint32_t c = next_code_point(text, next);
    if (c == '\n') {
      out += "\\n";
    } else if (is_unprintable(c)) {
      out += c < 0x100 ? "\\x" : "\\u{";
      append_hex(out, c, 2);
      if (c >= 0x100) out += '}';
    } else {
      out += text.substr(pos, length);
    }
    pos = next;
  }
  return out;
}

std::string quoted(std::string_view text, size_t max_columns) {
  return "'" + printable(text, max_columns) + "'";
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1024) return str(bytes, " bytes");
  const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 5) value /= 1024, ++unit;
  return str(fixed(value, value < 10 ? 1 : 0), " ", units[unit]);
}

std::string group_digits(std::string number) {
  const size_t first = number.starts_with('-') ? 1 : 0;
  const size_t end = std::min(number.find('.'), number.size());
  for (size_t i = end; i > first + 3; i -= 3) number.insert(i - 3, ",");
  return number;
}

std::string fixed(double value, int digits) {
  char buffer[400];
  auto result =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, digits);
  return std::string(buffer, result.ptr);
}

bool is_valid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = utf8_length(text, pos);
    if (length == 0) return false;
    pos += length;
  }
  return true;
}

size_t append_valid_utf8(std::string& out, std::string_view bytes, bool at_end) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const std::string_view rest = bytes.substr(pos);
    const Extent extent = first_character(rest);
    if (extent.complete) {
      out += rest.substr(0, extent.length);
    } else if (!at_end && can_grow(rest, extent)) {
      break;
    } else {
      out += "\uFFFD";
    }
    pos += extent.length;
  }
  return pos;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_valid_utf8(out, text, true);
  return out;
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const std::string_view suffix = text.substr(text.size() - back);
    if ((static_cast<uint8_t>(suffix[0]) & 0xC0) == 0x80) continue;
    return can_grow(suffix, first_character(suffix)) ? back : 0;
  }
  return 0;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

uint32_t next_code_point(std::string_view text, size_t& pos) {
  const size_t length = utf8_length(text, pos);
  const auto lead = static_cast<uint8_t>(text[pos]);
  if (length == 0) {
    ++pos;
    return 0xFFFD;
  }
  uint32_t c = length == 1 ? lead : lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) c = (c << 6) | (static_cast<uint8_t>(text[pos + i]) & 0x3F);
  pos += length;
  return c;
}

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  std::string best;
  // Farther than this is another word, not a typo; so is one of which no letter is left.
  size_t best_distance =
      std::min(word.size() / 3 + 1, word.size() - std::min<size_t>(word.size(), 1));
  for (const std::string& candidate : words) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substitute = diagonal + (lower(word[i - 1]) != lower(candidate[j - 1]));
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
      }
    }
    if (row.back() <= best_distance && (best.empty() || row.back() < best_distance)) {
      best = candidate;
      best_distance = row.back();
    }
  }
  return best;
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0;
  // Only the last * needs to be tried again, one character longer.
  size_t star = pattern.npos, star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool parse_number(std::string_view text, int64_t& value) {
  auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

bool parse_number(std::string_view text, double& value) {
  auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

}  // namespace lumen
