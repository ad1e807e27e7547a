// Keywords of JSON Schemas that say what a value is not, or what it is if it is something else:
// "not", "if", "dependentRequired" and the like, as choices among schemas without them.
#pragma once

#include <vector>

#include "lib/io/json.h"
#include "lib/text/grammar/schema_keywords.h"

namespace lumen::text::grammar {

// Schemas each of which allows only values that `schema` does not; together all of them, but for
// numbers where integers are excluded, and values that more than one part of a oneOf allows. Of
// "not" they have only values (enum), and $ref. Throws Error(kUnsupported) naming `place` for
// keywords of which that cannot be said.
std::vector<io::Json> negated(const io::Json& schema, Place place);

// Whether "not" of `schema`, if it is there, is a list of values (enum), which strings can leave
// out.
bool excludes_values(const io::Json& schema);

// The schema that allows what `schema`, an object with the keyword "not", allows; a list of values
// stays where there is no enum. Throws Error as negated.
io::Json without_not(const io::Json& schema, Place place);

// Whether `schema` has one of if, dependentRequired, dependentSchemas and dependencies.
bool has_conditions(const io::Json& schema);

// Takes these keywords out of `schema`: what they came to, schemas that all hold beside it, each a
// choice (anyOf). Throws Error as negated.
std::vector<io::Json> take_conditions(io::Json& schema, Place place);

}  // namespace lumen::text::grammar
