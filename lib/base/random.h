// Random numbers: a counter-based generator, the same on every machine and for any thread count.
#pragma once

#include <array>
#include <cstdint>

namespace lumen {

// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11).
// The n-th block of four words is a pure function of (seed, stream, n). Copyable, 32 bytes.
class Philox {
 public:
  explicit Philox(uint64_t seed, uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  // Four words of block `index`, without touching the state.
  std::array<uint32_t, 4> block(uint64_t index) const;

  uint32_t next_u32();
  uint64_t next_u64();
  // Uniform in [0, 1), 53 bits.
  double uniform();
  // Standard normal (Box-Muller, both values used).
  double normal();
  // Uniform integer in [0, bound), bound ≥ 1, without modulo bias.
  uint64_t below(uint64_t bound);

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

}  // namespace lumen
