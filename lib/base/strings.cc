#include "lib/base/strings.h"

#include <algorithm>
#include <numeric>

namespace lumen {
namespace {

// Length of the well-formed UTF-8 sequence at `pos`, or 0 if it is malformed or incomplete.
size_t utf8_length(std::string_view text, size_t pos) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(pos);
  if (lead < 0x80) return 1;
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || pos + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(pos + i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(pos + 1);
  if (lead == 0xE0 && second < 0xA0) return 0;  // overlong
  if (lead == 0xED && second > 0x9F) return 0;  // surrogate
  if (lead == 0xF0 && second < 0x90) return 0;  // overlong
  if (lead == 0xF4 && second > 0x8F) return 0;  // above U+10FFFF
  return length;
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

std::string quoted(std::string_view text, size_t max_columns) {
  std::string out = "'";
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
  return out + "'";
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1024) return str(bytes, " bytes");
  const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 5) value /= 1024, ++unit;
  return str(fixed(value, value < 10 ? 1 : 0), " ", units[unit]);
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

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (const size_t length = utf8_length(text, pos)) {
      out += text.substr(pos, length);
      pos += length;
      continue;
    }
    // One U+FFFD per maximal prefix of a valid sequence (Unicode 15, section 3.9).
    out += "\xEF\xBF\xBD";
    size_t end = pos + 1;
    while (end < text.size() && end - pos < 4 &&
           incomplete_utf8_suffix(text.substr(pos, end + 1 - pos)) == end + 1 - pos) {
      ++end;
    }
    if (incomplete_utf8_suffix(text.substr(pos, end - pos)) != end - pos) end = pos + 1;
    pos = end;
  }
  return out;
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto lead = static_cast<uint8_t>(text[text.size() - back]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
    if (lead > 0xF4 || need <= back) return 0;
    // A prefix only if some continuation could complete it: test with the extreme bytes.
    for (char fill : {'\x80', '\xBF'}) {
      std::string whole(text.substr(text.size() - back));
      whole.append(need - back, fill);
      if (utf8_length(whole, 0) == need) return back;
    }
    return 0;
  }
  return 0;
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
  std::string best;
  size_t best_distance = word.size() / 3 + 1;  // farther than this is another word, not a typo
  for (const std::string& candidate : words) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substitute = diagonal + (word[i - 1] != candidate[j - 1]);
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

bool parse_number(std::string_view text, int64_t& value) {
  auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

bool parse_number(std::string_view text, double& value) {
  auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && !text.empty();
}

}  // namespace lumen
