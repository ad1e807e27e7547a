// Parts of JSON Schemas: what keywords there are, and two schemas as one.
#pragma once

#include <string>
#include <string_view>

#include "lib/io/json.h"

namespace lumen::text::grammar {

// A keyword that says something about a schema but not about its values: title, default, ….
bool is_annotation(std::string_view keyword);

// The schema that allows what both allow. Throws Error(kUnsupported) naming `place` for keywords
// that stand in both and cannot be joined.
io::Json merge_schemas(const io::Json& a, const io::Json& b, const std::string& place);

}  // namespace lumen::text::grammar
