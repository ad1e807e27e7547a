// Two JSON Schemas as one.
#pragma once

#include <string>

#include "lib/io/json.h"

namespace lumen::text::grammar {

// The schema that allows what both allow. Throws Error(kUnsupported) naming `place` for keywords
// that stand in both and cannot be joined.
io::Json merge_schemas(const io::Json& a, const io::Json& b, const std::string& place);

}  // namespace lumen::text::grammar
