// Python's operators on values. All throw Failure where Python raises.
#pragma once

#include <optional>
#include <string_view>

#include "lib/text/jinja/value.h"

namespace lumen::text::jinja {

// "str", "int", "NoneType", …: Python's name of the type.
std::string_view type_name(const Value& value);

// "'x' is undefined", as jinja2 says when an undefined value is used.
[[noreturn]] void refuse_undefined(const Value& value);

bool truth(const Value& value);

// ==. Never fails for lack of an order; values of different types differ.
bool equals(Heap& heap, const Value& a, const Value& b, int depth = 0);

// Negative, zero, positive. Refuses types without an order; `symbol` is for the message.
int compare(Heap& heap, const Value& a, const Value& b, std::string_view symbol, int depth = 0);
// a < b, a <= b, …; differs from compare for NaN.
enum class Relation { kLess, kLessEqual, kGreater, kGreaterEqual };
bool ordered(Heap& heap, const Value& a, const Value& b, Relation relation);

// For dict keys: equal values have equal hashes. Refuses lists and dicts.
size_t hash_value(Heap& heap, const Value& value, int depth = 0);

Value add(Heap& heap, const Value& a, const Value& b);
Value subtract(const Value& a, const Value& b);
Value multiply(Heap& heap, const Value& a, const Value& b);
Value divide(const Value& a, const Value& b);
Value floor_divide(const Value& a, const Value& b);
Value modulo(Heap& heap, const Value& a, const Value& b);
Value power(const Value& a, const Value& b);
Value negate(const Value& a);
Value plus(const Value& a);

// `item in container`.
bool contains(Heap& heap, const Value& container, const Value& item);

// len(); nullopt if the type has no length.
std::optional<int64_t> length(const Value& value);

// What iterating over `value` yields; spends a generator. Refuses what Python cannot iterate.
Values iterate(Heap& heap, const Value& value);
bool iterable(const Value& value);

// `value` as an index or count; refuses anything but int and bool. `what` names it.
int64_t to_index(const Value& value, std::string_view what);

}  // namespace lumen::text::jinja
