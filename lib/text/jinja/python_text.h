// Python's view of text: code points of UTF-8, character classes, case.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/jinja/case_tables.h"
#include "lib/text/jinja/heap.h"

namespace lumen::text::jinja {

// All functions expect valid UTF-8.

using Pieces = std::vector<std::string_view, HeapAllocator<std::string_view>>;

int64_t count_code_points(std::string_view text);

// Byte offset of code point number `index` (≥ 0); text.size() if there are fewer.
size_t offset_of(std::string_view text, int64_t index);

// The code points of `text`, as pieces of it.
Pieces code_points(std::string_view text);

// str.isspace of one code point; also what `\s` of a regular expression means.
bool is_space(uint32_t code_point);
// A line boundary of str.splitlines.
bool is_line_break(uint32_t code_point);

bool has_property(std::span<const Range> property, uint32_t code_point);
bool is_alphabetic(uint32_t code_point);
bool is_decimal(uint32_t code_point);
bool is_titlecase(uint32_t code_point);
bool is_printable(uint32_t code_point);

// The distinct code points of a text.
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view characters);
  bool contains(uint32_t code_point) const;

 private:
  std::vector<uint32_t, HeapAllocator<uint32_t>> sorted_;
};

// `text` without white space (or, if given, without `characters`) at its ends.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text, const CharacterSet& characters);
std::string_view strip_right(std::string_view text, const CharacterSet& characters);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_casefold(std::string_view text);
std::string to_title(std::string_view text);        // str.title
std::string to_capitalized(std::string_view text);  // str.capitalize
std::string swap_case(std::string_view text);

// Appends repr() of a str: quoted, with escapes.
void append_quoted(TextBuilder& out, std::string_view text);

}  // namespace lumen::text::jinja
