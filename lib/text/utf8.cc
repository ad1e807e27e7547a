#include "lib/text/utf8.h"

#include <cstdint>

#include "lib/base/error.h"

namespace lumen::text {
namespace {

// How far the bytes at the beginning of `bytes` go as one character: all of it (`complete`), or
// the longest part that could still become one.
struct Extent {
  size_t length;
  bool complete;
};

Extent first_character(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {1, true};
  const size_t size = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (size == 0) return {1, false};
  uint8_t low = 0x80, high = 0xBF;  // of the second byte: no overlong forms, surrogates, > U+10FFFF
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  size_t length = 1;
  while (length < size && length < bytes.size() && at(length) >= low && at(length) <= high) {
    ++length;
    low = 0x80;
    high = 0xBF;
  }
  return {length, length == size};
}

bool can_grow(std::string_view bytes, Extent extent) {
  return !extent.complete && extent.length == bytes.size() &&
         static_cast<uint8_t>(bytes[0]) >= 0xC2 && static_cast<uint8_t>(bytes[0]) < 0xF5;
}

}  // namespace

void check_normalized_size(size_t bytes) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  if (bytes > kMaxBytes) {
    fail(ErrorKind::kResource, "normalizing makes the text longer than ", human_bytes(kMaxBytes));
  }
}

size_t append_valid_utf8(std::string& out, std::string_view bytes, bool at_end) {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const std::string_view rest = bytes.substr(pos);
    const Extent extent = first_character(rest);
    if (extent.complete) {
      out += rest.substr(0, extent.length);
    } else if (!at_end && can_grow(rest, extent)) {
      break;
    } else {
      out += "\uFFFD";
    }
    pos += extent.length;
  }
  return pos;
}

}  // namespace lumen::text
