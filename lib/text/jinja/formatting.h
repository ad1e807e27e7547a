// From values to text: str(), repr(), JSON, HTML escaping, and the two formatting languages.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lib/text/jinja/value.h"

namespace lumen::text::jinja {

// repr() of a float: shortest digits that read back, "1e-05", "1e+16", "inf", "nan".
std::string float_text(double value);

void append_str(TextBuilder& out, const Value& value);
void append_repr(TextBuilder& out, const Value& value, int depth = 0);
std::string to_str(Heap& heap, const Value& value);
std::string to_repr(Heap& heap, const Value& value);

// `value` itself if it is a string, else its str().
Value as_text(Heap& heap, const Value& value);

// json.dumps(value, …) as transformers' tojson calls it. Refuses what JSON cannot hold.
struct JsonStyle {
  bool ensure_ascii = false;
  bool multiline = false;  // an indent was given
  std::string indent;      // per level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

// `&<>'"` as HTML entities; Markup is not escaped again. The result is Markup.
Value escape_html(Heap& heap, const Value& value);
std::string escape_html(std::string_view text);

// `a + b` of two strings; escapes the one that is not Markup if the other is.
Value concatenate(Heap& heap, const Value& a, const Value& b);

// `format % values`.
Value percent_format(Heap& heap, const Value& format, const Value& values);

// format.format(*positional, **named); `field` resolves `.name` and `[key]` of replacement fields.
using FieldLookup = std::function<Value(const Value& object, const Value& key, bool attribute)>;
std::string brace_format(Heap& heap, std::string_view format, const Arguments& arguments,
                         const FieldLookup& field, bool escape);

}  // namespace lumen::text::jinja
