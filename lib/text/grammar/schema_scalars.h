// What JSON Schemas say of values that contain no others: enum and const, strings, numbers.
#pragma once

#include <vector>

#include "lib/text/grammar/json_values.h"
#include "lib/text/grammar/schema_keywords.h"

namespace lumen::text::grammar {

// The values of enum and const of `schema` at `place` that have its type, each once. Throws
// Error(kMalformed) if there are none and kUnsupported for keywords that do not go together.
std::vector<io::Json> listed_values(const io::Json& schema, Place place);

// The keywords that bound numbers and the lengths of texts.
inline constexpr const char* kBounds[] = {"minimum",          "maximum",   "exclusiveMinimum",
                                          "exclusiveMaximum", "minLength", "maxLength"};

// Whether `value` is of the types and within the bounds of `schema` at `place`. Throws
// Error(kMalformed) for those that are none.
bool keeps_bounds(const io::Json& value, const io::Json& schema, Place place);

// The expressions, made in json.rules(), of the strings and numbers that `schema` at `place`
// allows, with `is_integer` whole ones. Throw Error(kMalformed) where no value is allowed and
// kUnsupported for keywords that do not go together.
ExpressionId string_values(JsonValues& json, const io::Json& schema, Place place);
ExpressionId number_values(JsonValues& json, const io::Json& schema, Place place, bool is_integer);

}  // namespace lumen::text::grammar
