#include "lib/base/random.h"

#include <cmath>
#include <numbers>

namespace lumen {

std::array<uint32_t, 4> Philox::block(uint64_t index) const {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                               static_cast<uint32_t>(stream_),
                               static_cast<uint32_t>(stream_ >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed_), k1 = static_cast<uint32_t>(seed_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

uint32_t Philox::next_u32() {
  const uint64_t index = offset_ / 4;
  if (index != words_block_) words_ = block(index), words_block_ = index;
  return words_[offset_++ % 4];
}

uint64_t Philox::next_u64() {
  const uint64_t low = next_u32();
  return low | (uint64_t{next_u32()} << 32);
}

double Philox::uniform() {
  return static_cast<double>(next_u64() >> 11) * 0x1p-53;
}

double Philox::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  const double angle = 2 * std::numbers::pi * uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

uint64_t Philox::below(uint64_t bound) {
  // Lemire, "Fast Random Integer Generation in an Interval", 2019.
  for (;;) {
    const uint64_t x = next_u64();
    const auto product = static_cast<unsigned __int128>(x) * bound;
    if (static_cast<uint64_t>(product) >= -bound % bound)
      return static_cast<uint64_t>(product >> 64);
  }
}

}  // namespace lumen
