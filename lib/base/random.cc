#include "lib/base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace lumen {

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

Xoshiro256::Xoshiro256(uint64_t seed) {
  for (uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

uint64_t Xoshiro256::next_u64() {
  auto& s = state_;
  const uint64_t result = std::rotl(s[0] + s[3], 23) + s[0];
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

void Xoshiro256::jump() {
  constexpr uint64_t kPolynomial[] = {0x180ec6d33cfd0aba, 0xd5a61266f0c9392c, 0xa9582618e03fc9aa,
                                      0x39abdc4529b1661c};
  State sum{};
  for (const uint64_t word : kPolynomial) {
    for (int bit = 0; bit < 64; ++bit) {
      if (word >> bit & 1) {
        for (int i = 0; i < 4; ++i) sum[i] ^= state_[i];
      }
      next_u64();
    }
  }
  state_ = sum;
}

Mt19937::Mt19937(uint64_t seed) {
  auto& words = state_.words;
  words[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kWords; ++i) {
    words[i] = 1812433253u * (words[i - 1] ^ (words[i - 1] >> 30)) + i;
  }
  state_.used = kWords;
}

// In three loops, so that no index is taken modulo kWords and they become vectors.
void Mt19937::renew() {
  constexpr size_t kFar = 397, kCount = kWords, kFirst = kCount - kFar;
  uint32_t* const words = state_.words.data();
  const auto twisted = [](uint32_t word, uint32_t next) {
    constexpr uint32_t kHighBit = 0x80000000;
    const uint32_t y = (word & kHighBit) | (next & ~kHighBit);
    return (y >> 1) ^ ((0 - (y & 1)) & 0x9908b0df);
  };
  for (size_t i = 0; i < kFirst; ++i) words[i] = words[i + kFar] ^ twisted(words[i], words[i + 1]);
  for (size_t i = kFirst; i + 1 < kCount; ++i) {
    words[i] = words[i - kFirst] ^ twisted(words[i], words[i + 1]);
  }
  words[kCount - 1] = words[kFar - 1] ^ twisted(words[kCount - 1], words[0]);
  state_.used = 0;
}

}  // namespace lumen
