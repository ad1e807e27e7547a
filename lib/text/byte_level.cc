#include "lib/text/byte_level.h"

#include <array>

#include "lib/base/strings.h"

namespace lumen::text {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t c = is_printable(byte) ? static_cast<uint32_t>(byte) : next++;
      append_utf8(characters[static_cast<size_t>(byte)], c);
      bytes[c] = static_cast<int16_t>(byte);
    }
  }
  std::array<std::string, 256> characters;
  std::array<int16_t, 256 + 68> bytes;
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_character(uint8_t byte) {
  return alphabet().characters[byte];
}

int byte_of_character(uint32_t c) {
  return c < alphabet().bytes.size() ? alphabet().bytes[c] : -1;
}

std::optional<std::string> bytes_of_spelling(std::string_view token) {
  std::string out;
  for (size_t pos = 0; pos < token.size();) {
    const int byte = byte_of_character(next_code_point(token, pos));
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

}  // namespace lumen::text
