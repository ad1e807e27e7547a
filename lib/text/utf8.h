// UTF-8 that arrives in pieces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lumen::text {

// Appends `bytes` to `out` with U+FFFD for every maximal part that is not well-formed (Unicode 15,
// section 3.9). Returns how many bytes were consumed: all of them `at_end`, else all but a
// character at the end that is incomplete so far. Allocates only if `out` must grow.
size_t append_valid_utf8(std::string& out, std::string_view bytes, bool at_end);

}  // namespace lumen::text
