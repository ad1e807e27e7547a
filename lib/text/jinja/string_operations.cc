#include "lib/text/jinja/string_operations.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "lib/text/jinja/python_text.h"

namespace lumen::text::jinja {

namespace {

void push(Heap& heap, Pieces& pieces, std::string_view piece) {
  heap.step();
  pieces.push_back(piece);
}

// The next white space at or after `pos`: its first byte and the first byte after the run.
struct Gap {
  size_t begin, end;
};

Gap next_gap(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    size_t next = pos;
    if (is_space(next_code_point(text, next))) {
      const std::string_view rest = strip_left(text.substr(pos));
      return {pos, text.size() - rest.size()};
    }
    pos = next;
  }
  return {text.size(), text.size()};
}

}  // namespace

size_t find(Heap& heap, std::string_view text, std::string_view wanted, size_t pos) {
  if (pos > text.size()) return std::string_view::npos;
  if (wanted.empty()) return pos;
  heap.step();
  // memmem is linear; std::string_view::find is quadratic for a long `wanted`.
  const void* found = memmem(text.data() + pos, text.size() - pos, wanted.data(), wanted.size());
  if (!found) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last(Heap& heap, std::string_view text, std::string_view wanted) {
  constexpr size_t kShort = 16;
  heap.step();
  if (wanted.size() <= kShort) return text.rfind(wanted);
  // Knuth, Morris and Pratt from the right: border[i] is the length of the longest proper suffix of
  // the last i bytes of `wanted` that is also their prefix, both read backwards.
  const size_t size = wanted.size();
  const auto at = [&](size_t i) { return wanted[size - 1 - i]; };
  std::vector<uint32_t, HeapAllocator<uint32_t>> border(size + 1, 0);
  for (size_t i = 1, matched = 0; i < size; ++i) {
    while (matched > 0 && at(i) != at(matched)) matched = border[matched];
    if (at(i) == at(matched)) ++matched;
    border[i + 1] = static_cast<uint32_t>(matched);
  }
  heap.touch(4 * (size + text.size()));
  for (size_t pos = text.size(), matched = 0; pos-- > 0;) {
    while (matched > 0 && text[pos] != at(matched)) matched = border[matched];
    if (text[pos] == at(matched)) ++matched;
    if (matched == size) return pos;
  }
  return std::string_view::npos;
}

std::string replace(Heap& heap, std::string_view text, std::string_view old,
                    std::string_view replacement, int64_t limit) {
  heap.touch(text.size());
  TextBuilder out(heap);
  int64_t left = limit < 0 ? std::numeric_limits<int64_t>::max() : limit;
  size_t pos = 0;
  if (old.empty()) {
    for (; left > 0; --left) {
      out.append(replacement);
      if (pos == text.size()) return out.take();
      const size_t length = offset_of(text.substr(pos), 1);
      out.append(text.substr(pos, length));
      heap.step();
      pos += length;
    }
  }
  while (left > 0) {
    const size_t found = find(heap, text, old, pos);
    if (found == std::string_view::npos) break;
    heap.step();
    out.append(text.substr(pos, found - pos));
    out.append(replacement);
    pos = found + old.size();
    --left;
  }
  out.append(text.substr(pos));
  return out.take();
}

Pieces split(Heap& heap, std::string_view text, int64_t limit) {
  heap.touch(text.size());
  Pieces out;
  text = strip_left(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) >= limit) {
      push(heap, out, text);
      break;
    }
    const Gap gap = next_gap(text, 0);
    push(heap, out, text.substr(0, gap.begin));
    text.remove_prefix(gap.end);
  }
  return out;
}

Pieces split(Heap& heap, std::string_view text, std::string_view separator, int64_t limit) {
  if (separator.empty()) refuse("empty separator");
  heap.touch(text.size());
  Pieces out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t found = find(heap, text, separator);
    if (found == std::string_view::npos) break;
    push(heap, out, text.substr(0, found));
    text.remove_prefix(found + separator.size());
  }
  push(heap, out, text);
  return out;
}

Pieces split_right(Heap& heap, std::string_view text, int64_t limit) {
  if (limit < 0) return split(heap, text, limit);
  heap.touch(text.size());
  Pieces out;
  text = strip_right(text);
  while (!text.empty()) {
    if (static_cast<int64_t>(out.size()) >= limit) {
      push(heap, out, text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t previous = begin - 1;
      while (previous > 0 && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) {
        --previous;
      }
      size_t next = previous;
      if (is_space(next_code_point(text, next))) break;
      begin = previous;
    }
    push(heap, out, text.substr(begin));
    text = strip_right(text.substr(0, begin));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Pieces split_right(Heap& heap, std::string_view text, std::string_view separator, int64_t limit) {
  if (separator.empty()) refuse("empty separator");
  heap.touch(text.size());
  Pieces out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t found = find_last(heap, text, separator);
    if (found == std::string_view::npos) break;
    push(heap, out, text.substr(found + separator.size()));
    text = text.substr(0, found);
  }
  push(heap, out, text);
  std::reverse(out.begin(), out.end());
  return out;
}

Pieces split_lines(Heap& heap, std::string_view text, bool keep_ends) {
  heap.touch(text.size());
  Pieces out;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const uint32_t c = next_code_point(text, pos);
    if (!is_line_break(c)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    push(heap, out, text.substr(begin, (keep_ends ? pos : at) - begin));
    begin = pos;
  }
  if (begin < text.size()) push(heap, out, text.substr(begin));
  return out;
}

std::string pad(Heap& heap, std::string_view text, int64_t left, int64_t right,
                std::string_view fill) {
  left = std::max<int64_t>(left, 0);
  right = std::max<int64_t>(right, 0);
  heap.check(static_cast<size_t>(std::max(left, right)));
  TextBuilder out(heap);
  for (; left > 0; --left) out.append(fill);
  out.append(text);
  for (; right > 0; --right) out.append(fill);
  return out.take();
}

std::string center(Heap& heap, std::string_view text, int64_t width, std::string_view fill) {
  const int64_t missing = width - count_code_points(text);
  if (missing <= 0) return std::string(text);
  // Python puts the odd one to the left of texts of odd length, else to the right.
  const int64_t left = missing / 2 + (missing & width & 1);
  return pad(heap, text, left, missing - left, fill);
}

bool parse_python_int(std::string_view text, int64_t base, int64_t& value) {
  if (base != 0 && (base < 2 || base > 36)) refuse("int() base must be >= 2 and <= 36, or 0");
  text = strip_right(strip_left(text));
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const char marker = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const int64_t marked = marker == 'x' ? 16 : marker == 'o' ? 8 : marker == 'b' ? 2 : 0;
  bool prefixed = false;
  if (marked != 0 && (base == 0 || base == marked)) {
    base = marked;
    text.remove_prefix(2);
    prefixed = true;
  } else if (base == 0) {
    base = 10;
    // "010" is an error, "00" is not.
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) {
      return false;
    }
  }
  std::string digits(negative ? "-" : "");
  bool digit_before = prefixed;
  for (char c : text) {
    if (c == '_' && !digit_before) return false;
    digit_before = c != '_';
    if (c != '_') digits += c;
  }
  if (!digit_before || text.empty()) return false;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (result.ptr != digits.data() + digits.size()) return false;
  if (result.ec == std::errc::result_out_of_range) {
    refuse("the integer ", lumen::quoted(text, 40), " does not fit 64 bits");
  }
  return result.ec == std::errc();
}

bool parse_python_float(std::string_view text, double& value) {
  text = strip_right(strip_left(text));
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] != '_') {
      plain += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return false;
    }
  }
  std::string_view rest = plain;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  const std::string lower = to_lower(rest);
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (rest.empty() || !((rest[0] >= '0' && rest[0] <= '9') || rest[0] == '.')) return false;
    const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (result.ptr != rest.data() + rest.size()) return false;
    if (result.ec == std::errc::result_out_of_range) {
      const size_t exponent = rest.find_first_of("eE");
      value = exponent != rest.npos && exponent + 1 < rest.size() && rest[exponent + 1] == '-'
                  ? 0.0
                  : std::numeric_limits<double>::infinity();
    } else if (result.ec != std::errc()) {
      return false;
    }
  }
  if (negative) value = -value;
  return true;
}

}  // namespace lumen::text::jinja
