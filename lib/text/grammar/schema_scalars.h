// What JSON Schemas say of values that contain no others: enum and const, strings, numbers.
#pragma once

#include "lib/text/grammar/json_values.h"
#include "lib/text/grammar/schema_keywords.h"

namespace lumen::text::grammar {

// The expressions, made in json.rules(), of the values that `schema` at `place` allows: those of
// enum and const; strings; numbers, with `is_integer` whole ones. Throw Error(kMalformed) where no
// value is allowed and kUnsupported for keywords that do not go together.
ExpressionId listed_values(JsonValues& json, const io::Json& schema, Place place);
ExpressionId string_values(JsonValues& json, const io::Json& schema, Place place);
ExpressionId number_values(JsonValues& json, const io::Json& schema, Place place, bool is_integer);

}  // namespace lumen::text::grammar
