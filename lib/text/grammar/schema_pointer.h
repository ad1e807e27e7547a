// Parts of JSON Schemas by their place, and properties by the patterns of their names.
#pragma once

#include <string>
#include <string_view>

#include "lib/io/json.h"
#include "lib/text/grammar/schema_keywords.h"

namespace lumen::text::grammar {

// "/key" as a JSON pointer has it (RFC 6901).
std::string step(std::string_view key);

// The part of the schema `root` that a $ref names. Throws Error(kUnsupported) for another document
// and kMalformed if there is none.
const io::Json& resolve(const io::Json& root, const std::string& target, Place place);

// Whether `pattern`, a regular expression, is found in the name of a property.
bool name_fits(const std::string& pattern, const std::string& name);

// What the property `name`, of `content`, may be by the patternProperties of `schema` too.
io::Json with_patterns(const io::Json& schema, const std::string& name, const io::Json& content);

}  // namespace lumen::text::grammar
