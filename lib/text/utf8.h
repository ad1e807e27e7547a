// UTF-8 that arrives in pieces, and how long texts may become.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::text {

// Bytes of the character that begins with `lead`, by its upper bits alone: how llama.cpp and
// sentencepiece walk over text that may not be valid. The text may end earlier.
inline size_t character_bytes(char lead) {
  constexpr uint8_t kBytes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return kBytes[static_cast<uint8_t>(lead) >> 4];
}

// Throws Error(kResource) if normalizing has made a text longer than 1 GiB: rules of a file could
// replace every character by a long text.
void check_normalized_size(size_t bytes);

// Appends `bytes` to `out` with U+FFFD for every maximal part that is not well-formed (Unicode 15,
// section 3.9). Returns how many bytes were consumed: all of them `at_end`, else all but a
// character at the end that is incomplete so far. Allocates only if `out` must grow.
size_t append_valid_utf8(std::string& out, std::string_view bytes, bool at_end);

}  // namespace lumen::text
