// Hashing for the tables of the tokenizers: fast, and different in every process so that a file
// cannot be made to collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace lumen::text {

// Varies with the address space layout of the process.
inline uint64_t hash_seed() {
  static const char anchor = 0;
  return reinterpret_cast<uintptr_t>(&anchor) * 0x9E3779B97F4A7C15u;
}

__extension__ using Uint128 = unsigned __int128;  // no -Wpedantic of whoever includes this

// Folded 64 × 64 → 128 bit product.
inline uint64_t hash_mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<Uint128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kOdd1 = 0xA0761D6478BD642F, kOdd2 = 0xE7037ED1A0B428DB;
  uint64_t state = hash_seed() ^ hash_mix(text.size() ^ kOdd2, kOdd1);
  const char* data = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    state = hash_mix(state ^ word, kOdd1);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < left; ++i) tail |= uint64_t{static_cast<uint8_t>(data[i])} << (8 * i);
  return hash_mix(state ^ tail, kOdd2);
}

}  // namespace lumen::text
