// The format specification mini-language of Python numbers and strings, shared by `%` and format().
#pragma once

#include <string>
#include <string_view>

#include "lib/text/jinja/value.h"

namespace lumen::text::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, or 0: the default of the type
  char sign = '-';
  bool alternate = false;  // '#'
  int64_t width = 0;
  char grouping = 0;  // ',' or '_'
  int64_t precision = -1;
  char type = 0;
};

// Reads "[[fill]align][sign][#][0][width][grouping][.precision][type]". Refuses anything else.
FormatSpec parse_format_spec(std::string_view text);

std::string format_text(Heap& heap, std::string_view text, const FormatSpec& spec);
// Types b c d o x X n and 0; `integer` is an int or bool.
std::string format_integer(Heap& heap, int64_t integer, const FormatSpec& spec);
// Types e E f F g G n % and 0.
std::string format_real(Heap& heap, double real, const FormatSpec& spec);
// What format(value, spec) of Python gives.
std::string format_value(Heap& heap, const Value& value, std::string_view spec);

}  // namespace lumen::text::jinja
