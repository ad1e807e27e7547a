// Keywords of JSON Schemas: which there are, and their values, checked.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/json.h"

namespace lumen::text::grammar {

// Where in a schema something stands, as "#/properties/a"; errors begin with it.
using Place = const std::string&;

template <typename... Parts>
[[noreturn]] void malformed(Place place, const Parts&... parts) {
  fail(ErrorKind::kMalformed, printable(place, 200), ": ", parts...);
}
template <typename... Parts>
[[noreturn]] void unsupported(Place place, const Parts&... parts) {
  fail(ErrorKind::kUnsupported, printable(place, 200), ": ", parts...);
}

// A keyword that says something about a schema but not about its values: title, default, ….
bool is_annotation(std::string_view keyword);

// Throws Error(kUnsupported) for a keyword of `schema`, an object, that is not known.
void check_keywords(const io::Json& schema, Place place);

// Whether beside annotations there are no keywords but these.
bool says_only(const io::Json& schema, std::initializer_list<std::string_view> keywords);

// A member that must be of a kind, if it is there: an object, an array that is not empty, a whole
// number from 0. Else Error(kMalformed).
const io::Json* object_member(const io::Json& schema, const char* key, Place place);
const io::Json* array_member(const io::Json& schema, const char* key, Place place);
std::optional<uint32_t> count_member(const io::Json& schema, const char* key, Place place);

// `value`, which must be a text.
std::string text_of(const io::Json& value, Place place);

// Whether `schema` has "nullable": true.
bool is_nullable(const io::Json& schema, Place place);

// The types that a schema names, or whose keywords it has; none: any.
std::vector<std::string> types_of(const io::Json& schema, Place place);

}  // namespace lumen::text::grammar
