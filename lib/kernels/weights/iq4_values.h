// What the 4-bit types IQ4_NL and IQ4_XS have in common (ggml's block_iq4_nl and block_iq4_xs).
#pragma once

#include <cstdint>
#include <cstring>

namespace lumen::kernels {

// The number that a nibble stands for, of which the block's scale makes a weight: close together
// near zero, where weights are dense.
alignas(16) inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// The eight scales of a block of IQ4_XS, offset by 32, a byte each from the lowest.
inline uint64_t iq4_xs_scales(const uint8_t* block) {
  uint16_t high;
  uint32_t low;
  std::memcpy(&high, block + 2, sizeof high);
  std::memcpy(&low, block + 4, sizeof low);
  uint64_t scales = 0;
  for (int i = 0; i < 8; ++i) {
    const uint64_t scale = (low >> (4 * i) & 15) | (high >> (2 * i) & 3) << 4;
    scales |= scale << (8 * i);
  }
  return scales;
}

}  // namespace lumen::kernels
