// JSON Schema (https://json-schema.org/draft/2020-12) as a grammar of the values it allows.
#pragma once

#include <string>

#include "lib/io/json.h"
#include "lib/text/grammar.h"

namespace lumen::text {

// The grammar of JSON texts that `schema`, an object or a boolean, allows. It may allow less than
// the schema: objects have their properties in the order of the schema, and others only where
// "additionalProperties" says so or no properties are named; arrays with "prefixItems" have others
// only with "items"; numbers have at most 16 digits before and after the point, white space is at
// most one space or a newline with an indentation, a value of no type is of the types that its
// keywords are about, texts other than given ones have no escapes, and different items of more than
// 8 values are in the order of the schema. oneOf is taken as anyOf.
//
// Known are type, enum, const, properties, required, additionalProperties, unevaluatedProperties,
// minProperties (as many as are required, or 1), maxProperties, patternProperties (others than
// those named only where all patterns have one schema and fit none of these names), propertyNames
// where no properties are named, dependentRequired, dependentSchemas and dependencies, prefixItems,
// items, minItems, maxItems, contains, minContains and maxContains beside items alone, uniqueItems
// (of items that are one of given values), minLength, maxLength, pattern (see json_pattern), format
// (date, time, date-time, duration, uuid, uuid4, email, hostname, ipv4, ipvanyaddress, ipv6, uri,
// regex, byte, base64, int8 to int64, uint8 to uint64, float, double; password, binary and path say
// nothing, and none does beside a pattern), minimum, maximum and their exclusive forms, multipleOf
// (whole numbers up to 1000, and 0.5, 0.25, 0.01 and the like), anyOf, oneOf, allOf of what can be
// joined, not and if with then and else (of what grammar::negated knows), $ref within the schema,
// nullable, and annotations, which mean nothing.
//
// uniqueItems of free values is refused, and cannot be had by looking at a text while it is made:
// that an item differs from all before it is no property of a context-free language, whose states
// here merge all ways to derive a text, so that none knows which array an item is of; and to forbid
// the end of an equal item is not enough, because an item that has begun may have no other end left
// (of the integers 0 to 3 when all have been, or of "a" where maxLength is 1).
//
// Throws
// Error(kUnsupported) "PLACE: #/properties/a: …" for any other keyword and kMalformed for what is
// no schema, allows no value or goes beyond limits::kGrammar*.
Grammar json_schema_grammar(const io::Json& schema, const std::string& place);

}  // namespace lumen::text
