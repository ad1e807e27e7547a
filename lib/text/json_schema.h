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
// most one space or a newline with an indentation, and a value of no type is of the types that its
// keywords are about. oneOf is taken as anyOf.
//
// Known are type, enum, const, properties, required, additionalProperties, unevaluatedProperties,
// minProperties (as many as are required, or 1), maxProperties, patternProperties (one pattern) and
// propertyNames where no properties are named, prefixItems, items, minItems, maxItems, uniqueItems
// (of items that are one of at most 8 values), minLength, maxLength, pattern (see json_pattern),
// format (date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri, byte, int32,
// int64, float, double; password and binary say nothing, and none does beside a pattern), minimum,
// maximum and their exclusive forms, multipleOf (whole numbers up to 1000, and 0.5, 0.25, 0.01 and
// the like), anyOf, oneOf, allOf of what can be joined, not (of nothing, of types, of values of an
// enum), $ref within the schema, nullable, and annotations, which mean nothing. Throws
// Error(kUnsupported) "PLACE: #/properties/a: …" for any other keyword and kMalformed for what is
// no schema, allows no value or goes beyond limits::kGrammar*.
Grammar json_schema_grammar(const io::Json& schema, const std::string& place);

}  // namespace lumen::text
