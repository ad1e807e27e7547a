// TOML 1.0: a reader that knows where everything stands, and a writer for what it reads.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lib/io/json.h"

namespace lumen::io {

struct TomlPosition {
  int line = 0, column = 0;  // from 1
};

// A document as JSON values: tables are objects (keys sorted), integers 64-bit, floats doubles,
// which may be infinite or NaN. Places are JSON pointers: "/data/train/0/path".
struct TomlDocument {
  Json root = Json::object();
  std::map<std::string, TomlPosition> keys;    // where a key is written
  std::map<std::string, TomlPosition> values;  // where its value begins; also of array elements
};

// Parses `text`. Throws Error(kMalformed) "PLACE:LINE:COLUMN: …" for what is no TOML (duplicate
// keys included), is nested more than limits::kJsonDepth deep, beyond limits::kToml…, or
// is a date or time, which nothing of Lumen takes. `place` is the file's name.
TomlDocument parse_toml(std::string_view text, const std::string& place);

// One value as TOML would have it after "key = ": a number, true, "text", an array.
// Throws Error(kMalformed).
Json parse_toml_value(std::string_view text, const std::string& place);

// `value` in TOML on one line: floats keep a point or an exponent, text is escaped. Not for null.
std::string toml_value(const Json& value);

// Appends `name` to the place `pointer`.
std::string toml_pointer(std::string pointer, std::string_view name);

}  // namespace lumen::io
