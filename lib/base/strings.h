// Strings: locale-free concatenation and safe printing of text that came from a file.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lumen {

namespace internal {
inline void append(std::string& out, std::string_view text) {
  out += text;
}
inline void append(std::string& out, char c) {
  out += c;
}
template <std::same_as<bool> T>  // a template, or string literals would convert to bool
void append(std::string& out, T b) {
  out += b ? "true" : "false";
}
template <typename T>
requires(std::is_arithmetic_v<T> && !std::same_as<T, bool> &&
         !std::same_as<T, char>) void append(std::string& out, T value) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}
}  // namespace internal

// Concatenates strings and numbers; numbers in shortest round-trip form, never by locale.
template <typename... Parts>
std::string str(const Parts&... parts) {
  std::string out;
  (internal::append(out, parts), ...);
  return out;
}

// Text from a file or the user, made safe to print: invalid UTF-8, control and
// bidirectional-override characters as \xNN or \u{NNNN}, cut with "…" after `max_columns`.
std::string printable(std::string_view text, size_t max_columns = 80);

// printable(), in single quotes.
std::string quoted(std::string_view text, size_t max_columns = 80);
// For std::string itself, or argument-dependent lookup would prefer std::quoted of <iomanip>.
inline std::string quoted(const std::string& text, size_t max_columns = 80) {
  return quoted(std::string_view(text), max_columns);
}
inline std::string quoted(const char* text, size_t max_columns = 80) {
  return quoted(std::string_view(text), max_columns);
}
inline std::string quoted(std::string& text, size_t max_columns = 80) {
  return quoted(std::string_view(text), max_columns);
}

// `parts` one after the other with `separator` between them; empty ones at the front vanish.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// "1.5 GiB", "312 MiB", "17 bytes".
std::string human_bytes(uint64_t bytes);

// A decimal number with commas between each three digits before its point: "12,345.6".
std::string group_digits(std::string number);

// `value` with `digits` digits after the point, never by locale.
std::string fixed(double value, int digits);

// True if `text` is well-formed UTF-8 (no surrogates, no overlong forms, ≤ U+10FFFF).
bool is_valid_utf8(std::string_view text);

// Appends `bytes` to `out` with U+FFFD for every maximal part that is not well-formed (Unicode 15,
// section 3.9). Returns how many bytes were consumed: all of them `at_end`, else all but a
// character at the end that is incomplete so far. Allocates only if `out` must grow.
size_t append_valid_utf8(std::string& out, std::string_view bytes, bool at_end);

// `text` with every maximal invalid sequence replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

// Number of bytes at the end of `text` that are a proper prefix of one UTF-8 sequence (0..3);
// a streaming printer holds these back until the rest arrives.
size_t incomplete_utf8_suffix(std::string_view text);

// Appends the UTF-8 form of `code_point` (≤ 0x10FFFF).
void append_utf8(std::string& out, uint32_t code_point);

// Decodes one code point of valid UTF-8 at `pos` and advances `pos`. Invalid bytes give U+FFFD
// and advance by one.
uint32_t next_code_point(std::string_view text, size_t& pos);

// The word of `words` nearest to `word` by edit distance, whatever the case of ASCII letters, or ""
// if none is near enough to be meant: for "did you mean".
std::string nearest(std::string_view word, const std::vector<std::string>& words);

// Whether all of `text` matches `pattern`, in which * stands for any characters, also none, and ?
// for one byte; everything else for itself.
bool matches_pattern(std::string_view text, std::string_view pattern);

// Whole-string parse of a number in C notation; false if anything is left over or out of range.
bool parse_number(std::string_view text, int64_t& value);
bool parse_number(std::string_view text, double& value);

}  // namespace lumen
