#include "lib/io/json_scanner.h"

#include <algorithm>
#include <charconv>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::io {
namespace {

// Whether a number that is no double is so because it is too near zero: by the decimal position of
// its first digit that is not 0.
bool is_tiny(std::string_view number) {
  const size_t e = number.find_first_of("eE");
  const std::string_view digits = number.substr(0, e);
  const size_t point = std::min(digits.find('.'), digits.size());
  const size_t first = digits.find_first_of("123456789");
  if (first == std::string_view::npos) return true;
  int64_t exponent = 0;
  if (e != std::string_view::npos && !parse_number(number.substr(e + 1), exponent)) {
    return number.substr(e + 1).starts_with('-');  // an exponent beyond 64 bits
  }
  return exponent + static_cast<int64_t>(point) - static_cast<int64_t>(first) < 0;
}

}  // namespace

void JsonScanner::fail_at(size_t pos, std::string_view what) const {
  int64_t line = first_line_, column = 1;
  for (const char c : text_.substr(0, pos)) {
    if (c == '\n') {
      ++line;
      column = 1;
    } else if ((c & 0xC0) != 0x80) {
      ++column;
    }
  }
  fail(ErrorKind::kMalformed, "line ", line, ", column ", column, ": ", what);
}

void JsonScanner::fail_here(std::string_view what) const {
  if (pos_ >= text_.size()) fail_at(text_.size(), "the JSON ends too early (truncated file?)");
  fail_at(pos_, str(what, ", at ", quoted(text_.substr(pos_, 12), 20)));
}

char JsonScanner::peek() {
  while (current() == ' ' || current() == '\n' || current() == '\t' || current() == '\r') ++pos_;
  return current();
}

bool JsonScanner::accept(char c) {
  if (peek() != c || pos_ == text_.size()) return false;
  ++pos_;
  return true;
}

bool JsonScanner::accept_word(std::string_view word) {
  peek();
  if (text_.substr(pos_, word.size()) != word) return false;
  pos_ += word.size();
  return true;
}

void JsonScanner::expect(char c, std::string_view what) {
  if (!accept(c)) fail_here(str("expected ", what));
}

void JsonScanner::expect_end() {
  peek();
  if (pos_ < text_.size()) fail_here("something follows the end of the JSON value");
}

Json JsonScanner::literal() {
  if (accept_word("true")) return true;
  if (accept_word("false")) return false;
  if (accept_word("null")) return nullptr;
  fail_here("expected a JSON value");
}

Json JsonScanner::number() {
  peek();
  const size_t begin = pos_;
  bool integer = true;
  if (current() == '-') ++pos_;
  if (current() == '0') {
    ++pos_;
  } else {
    digits();
  }
  if (current() == '.') {
    integer = false;
    ++pos_;
    digits();
  }
  if (current() == 'e' || current() == 'E') {
    integer = false;
    ++pos_;
    if (current() == '+' || current() == '-') ++pos_;
    digits();
  }
  const char* first = text_.data() + begin;
  const char* last = text_.data() + pos_;
  uint64_t natural = 0;
  int64_t signed_value = 0;
  double real = 0;
  if (integer && *first != '-' && std::from_chars(first, last, natural).ec == std::errc()) {
    return natural;
  }
  if (integer && *first == '-' && std::from_chars(first, last, signed_value).ec == std::errc()) {
    return signed_value;
  }
  const auto result = std::from_chars(first, last, real);
  // Too small for a double is zero; too large is no number.
  if (result.ec == std::errc::result_out_of_range && is_tiny(text_.substr(begin, pos_ - begin))) {
    return 0.0;
  }
  if (result.ec != std::errc()) fail_at(begin, "a number too large for a double");
  return real;
}

void JsonScanner::digits() {
  const size_t begin = pos_;
  while (current() >= '0' && current() <= '9') ++pos_;
  if (pos_ == begin) fail_here("expected a JSON value");
}

std::string JsonScanner::string() {
  if (peek() != '"') fail_here("expected a string in double quotes");
  const size_t begin = pos_++;
  std::string out;
  for (;;) {
    const size_t chunk = pos_;
    while (pos_ < text_.size() && text_[pos_] != '"' && text_[pos_] != '\\' &&
           static_cast<unsigned char>(text_[pos_]) >= 0x20) {
      ++pos_;
    }
    out.append(text_.substr(chunk, pos_ - chunk));
    if (current() == '"') break;
    if (current() != '\\') fail_here("a control character in a string");
    ++pos_;
    escape(out);
  }
  ++pos_;
  if (!is_valid_utf8(out)) fail_at(begin, "a string that is not valid UTF-8");
  return out;
}

void JsonScanner::escape(std::string& out) {
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const size_t at = kLetters.find(current());
  if (current() != '\0' && at != std::string_view::npos) {
    out += kMeanings[at];
    ++pos_;
    return;
  }
  if (current() != 'u') fail_here("an unknown escape sequence in a string");
  const size_t begin = pos_++;
  uint32_t code_point = hex4();
  if (code_point >= 0xD800 && code_point < 0xDC00 && text_.substr(pos_, 2) == "\\u") {
    pos_ += 2;
    const uint32_t low = hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail_at(begin, "an unpaired surrogate in a string");
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
  }
  if (code_point >= 0xD800 && code_point < 0xE000) {
    fail_at(begin, "an unpaired surrogate in a string");
  }
  append_utf8(out, code_point);
}

uint32_t JsonScanner::hex4() {
  uint32_t value = 0;
  const std::string_view word = text_.substr(pos_, 4);
  const auto result = std::from_chars(word.data(), word.data() + word.size(), value, 16);
  if (word.size() != 4 || result.ptr != word.data() + 4 || word[0] == '-') {
    fail_here("expected four hexadecimal digits");
  }
  pos_ += 4;
  return value;
}

}  // namespace lumen::io
