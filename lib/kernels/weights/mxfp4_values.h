// MXFP4, four bits a weight (OCP Microscaling Formats 1.0, 2023; ggml's block_mxfp4): a byte e for
// the scale 2^(e − 127), then 32 numbers of a sign, two bits of exponent and one of significand.
#pragma once

#include <bit>
#include <cstdint>

namespace lumen::kernels {

// The exponent of a block that stands for no numbers.
inline constexpr int kMxfp4None = 255;

// Twice the number that a nibble stands for, and 2^(e − 128), which makes a weight of it. Exact for
// e from 2 to 254; smaller scales may count as 0, and kMxfp4None makes none.
alignas(16) inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

// The same numbers counted from 0, kMxfp4Offset more of each.
inline constexpr int kMxfp4Offset = 16;
alignas(16) inline constexpr int8_t kMxfp4Codes[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                                       16, 15, 14, 13, 12, 10, 8,  4};

inline float mxfp4_scale(uint8_t exponent) {
  return 0.5f * std::bit_cast<float>(uint32_t{exponent} << 23);
}

}  // namespace lumen::kernels
