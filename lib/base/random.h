// Random engines: Philox, counter-based, the same for any thread count, is what everything uses by
// default; xoshiro256++ is faster in sequence; mt19937 is for streams that match PyTorch's.
// Distributions over all of them: generator.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lumen {

// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11).
// The n-th block of four words is a pure function of (seed, stream, n). Copyable; not thread-safe,
// but for block().
class Philox {
 public:
  explicit Philox(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  // Four words of block `index`, without touching the state. In the header because blocks one after
  // another are computed at the same time where they are not calls.
  std::array<uint32_t, 4> block(uint64_t index) const {
    uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream_), c3 = static_cast<uint32_t>(stream_ >> 32);
    uint32_t k0 = static_cast<uint32_t>(seed_), k1 = static_cast<uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return {c0, c1, c2, c3};
  }

  uint32_t next_u32();
  uint64_t next_u64();
  // Uniform in [0, 1), 53 bits.
  double uniform();
  // Standard normal (Box-Muller, both values used).
  double normal();
  // Uniform integer in [0, bound), bound ≥ 1, without modulo bias.
  uint64_t below(uint64_t bound);

  uint64_t seed() const { return seed_; }
  uint64_t stream() const { return stream_; }
  // Position in the stream, in words; setting it makes runs resumable.
  uint64_t offset() const { return offset_; }
  void set_offset(uint64_t words) { offset_ = words, has_spare_ = false; }

 private:
  uint64_t seed_, stream_, offset_ = 0;
  std::array<uint32_t, 4> words_{};
  uint64_t words_block_ = ~uint64_t{0};
  double spare_ = 0;
  bool has_spare_ = false;
};

// xoshiro256++ 1.0 (Blackman & Vigna, "Scrambled Linear Pseudorandom Number Generators", 2021).
class Xoshiro256 {
 public:
  using State = std::array<uint64_t, 4>;  // not all zero

  // The state from splitmix64, as its authors recommend.
  explicit Xoshiro256(uint64_t seed);
  explicit Xoshiro256(const State& state) : state_(state) {}

  uint64_t next_u64();
  uint32_t next_u32() { return static_cast<uint32_t>(next_u64() >> 32); }
  // 2^128 steps at once: streams for several users of one seed.
  void jump();

  const State& state() const { return state_; }

 private:
  State state_;
};

// MT19937 (Matsumoto & Nishimura 1998), 32 bits at a time.
class Mt19937 {
 public:
  static constexpr int kWords = 624;
  struct State {
    std::array<uint32_t, kWords> words;
    int used;  // 0 … kWords words of this block are given out
  };

  // Uses the low 32 bits of the seed, as PyTorch does.
  explicit Mt19937(uint64_t seed);
  explicit Mt19937(const State& state) : state_(state) {}

  uint32_t next_u32() {
    if (state_.used == kWords) renew();
    uint32_t y = state_.words[static_cast<size_t>(state_.used++)];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return y ^ (y >> 18);
  }
  // High word first, as PyTorch.
  uint64_t next_u64() {
    const uint64_t high = next_u32();
    return (high << 32) | next_u32();
  }

  const State& state() const { return state_; }

 private:
  void renew();

  State state_;
};

}  // namespace lumen
