// The one reader of binary headers: bounded, little-endian, checked at every step.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "lib/base/error.h"

namespace lumen::io {

static_assert(std::endian::native == std::endian::little,
              "mapped tensors are used in place, so the machine must be little-endian");

// A position in a span of bytes. Every read checks the bytes that remain and throws
// Error(kMalformed) with the offset instead of reading past the end. Cheap to copy; the bytes must
// outlive it.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  // The next value of an integer or floating-point type, unaligned.
  template <typename T>
  requires std::is_arithmetic_v<T> T read() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }

  // The next `count` bytes, not copied.
  std::span<const std::byte> bytes(uint64_t count) {
    return {take(count), static_cast<size_t>(count)};
  }
  std::string_view text(uint64_t count) {
    return {reinterpret_cast<const char*>(take(count)), static_cast<size_t>(count)};
  }
  void skip(uint64_t count) { take(count); }

  // Believes that `count` items follow only if that many of the smallest possible size fit into
  // the bytes that remain: a corrupt count must not allocate memory. `what` names them.
  void expect_items(uint64_t count, uint64_t min_bytes, std::string_view what) const {
    if (count > remaining() / min_bytes) {
      fail(ErrorKind::kMalformed, "byte ", offset_, ": ", count, " ", what, " of at least ",
           min_bytes, " bytes do not fit into the ", remaining(),
           " bytes that remain (truncated or corrupt file?)");
    }
  }

 private:
  const std::byte* take(uint64_t count) {
    if (count > remaining()) {
      fail(ErrorKind::kMalformed, "byte ", offset_, ": ", count, " bytes needed but only ",
           remaining(), " remain (truncated or corrupt file?)");
    }
    const std::byte* data = bytes_.data() + offset_;
    offset_ += count;
    return data;
  }

  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

}  // namespace lumen::io
