// The byte-level alphabet of GPT-2: a printable character for every byte
// (https://github.com/openai/gpt-2, function bytes_to_unicode).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lumen::text {

// The character of a byte, as UTF-8: itself if it is printable in Latin-1, else U+0100 and up.
std::string_view byte_character(uint8_t byte);

// The byte of a character, or -1 if it is not of the alphabet.
int byte_of_character(uint32_t c);

// Bytes that occur in no UTF-8 text; vocabularies may lack them.
inline bool never_in_utf8(int byte) {
  return byte == 0xC0 || byte == 0xC1 || byte > 0xF4;
}

// The bytes that a token spells; nothing if it has a character that is not of the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view token);

}  // namespace lumen::text
