// Walking over UTF-8 as the peers do, and how long texts may become.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/base/strings.h"

namespace lumen::text {

// Bytes of the character that begins with `lead`, by its upper bits alone: how llama.cpp and
// sentencepiece walk over text that may not be valid. The text may end earlier.
inline size_t character_bytes(char lead) {
  constexpr uint8_t kBytes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return kBytes[static_cast<uint8_t>(lead) >> 4];
}

// Whether `text` is one character, in valid UTF-8.
inline bool is_one_character(std::string_view text) {
  return !text.empty() && text.size() == character_bytes(text[0]) && is_valid_utf8(text);
}

// What SentencePiece writes for a space (U+2581).
inline constexpr std::string_view kSpaceMark = "▁";

// Throws Error(kResource) if normalizing has made a text longer than 1 GiB: rules of a file could
// replace every character by a long text.
void check_normalized_size(size_t bytes);

}  // namespace lumen::text
