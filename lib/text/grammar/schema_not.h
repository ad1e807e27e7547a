// The keyword "not" of JSON Schemas.
#pragma once

#include "lib/io/json.h"
#include "lib/text/grammar/schema_keywords.h"

namespace lumen::text::grammar {

// The schema that allows what `schema`, an object with the keyword, allows, without it: what is
// excluded is nothing, everything, types, or values of its enum. Throws Error(kUnsupported) naming
// `place` for anything else.
io::Json without_not(const io::Json& schema, Place place);

}  // namespace lumen::text::grammar
