// What Python's str methods compute, for the methods and the filters of the same names. Texts are
// valid UTF-8; positions and counts are in code points unless they say bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/text/jinja/python_text.h"
#include "lib/text/jinja/value.h"

namespace lumen::text::jinja {

// str.find and str.rfind in linear time; npos if `wanted` is not there. Positions in bytes.
size_t find(Heap& heap, std::string_view text, std::string_view wanted, size_t pos = 0);
size_t find_last(Heap& heap, std::string_view text, std::string_view wanted);

// `limit` < 0: no limit.
std::string replace(Heap& heap, std::string_view text, std::string_view old,
                    std::string_view replacement, int64_t limit);
Pieces split(Heap& heap, std::string_view text, int64_t limit);
Pieces split(Heap& heap, std::string_view text, std::string_view separator, int64_t limit);
Pieces split_right(Heap& heap, std::string_view text, int64_t limit);
Pieces split_right(Heap& heap, std::string_view text, std::string_view separator, int64_t limit);
Pieces split_lines(Heap& heap, std::string_view text, bool keep_ends);

// `text` between `left` and `right` times `fill` (one code point).
std::string pad(Heap& heap, std::string_view text, int64_t left, int64_t right,
                std::string_view fill);
std::string center(Heap& heap, std::string_view text, int64_t width, std::string_view fill);

// int(text, base) and float(text); false where Python raises ValueError.
bool parse_python_int(std::string_view text, int64_t base, int64_t& value);
bool parse_python_float(std::string_view text, double& value);

}  // namespace lumen::text::jinja
