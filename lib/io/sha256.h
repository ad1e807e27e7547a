// SHA-256 (FIPS 180-4): what the content of a file is called by, as sha256sum prints it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lumen::io {

// A hash in the making. Copyable; not thread-safe.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }

  // 64 lower-case hexadecimal digits. Call once, last.
  std::string hex();

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> tail_{};
  uint64_t bytes_ = 0;
};

// The hash of `bytes`.
std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace lumen::io
