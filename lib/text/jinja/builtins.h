// The filters, tests, functions and methods of the language, by name.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "lib/text/jinja/value.h"

namespace lumen::text::jinja {

// A filter, a test or a function. `subject` is what the filter or test is applied to, or the object
// of a method; missing for a function.
struct Builtin {
  std::string_view name;
  Value (*run)(Interpreter& interpreter, const Value& subject, Arguments& arguments);
};

// nullptr if there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
// The method `name` of `object`'s type; nullptr if it has none a template may call.
const Builtin* find_method(const Value& object, std::string_view name);
// The global variable `name`; missing if there is none.
Value find_global(Interpreter& interpreter, std::string_view name);

// Arguments by parameter: element i is the value for names[i], missing if it was not given.
// Refuses too many arguments, unknown or doubled names, and fewer than `required` given.
template <size_t N>
using Bound = std::array<Value, N>;
void parameters(std::string_view function, Arguments& arguments,
                std::span<const std::string_view> names, size_t required, std::span<Value> out);
template <size_t N>
Bound<N> parameters(std::string_view function, Arguments& arguments,
                    const std::string_view (&names)[N], size_t required = 0) {
  Bound<N> out;
  parameters(function, arguments, std::span<const std::string_view>(names), required, out);
  return out;
}
// Refuses any argument.
void no_parameters(std::string_view function, const Arguments& arguments);

// Tables of one family each, joined by find_…
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> conversion_filters();
std::span<const Builtin> wrapping_filters();

}  // namespace lumen::text::jinja
