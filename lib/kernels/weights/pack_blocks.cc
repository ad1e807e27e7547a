#include "lib/kernels/weights/pack_blocks.h"

#include <cstring>

#include "lib/base/check.h"

namespace lumen::kernels {
namespace {

void put_half(float value, uint8_t* p) {
  const uint16_t bits = to_f16(value).bits;
  std::memcpy(p, &bits, 2);
}

// Byte i holds the low four bits of code i below and of code i + `apart` above.
void pack_nibbles(const uint8_t* codes, int apart, uint8_t* p) {
  for (int i = 0; i < apart; ++i) {
    p[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + apart] & 15) << 4);
  }
}

// The eight 6-bit scales and mins of Q4_K and Q5_K.
void pack_scales_k4(const float* s, const float* m, uint8_t* p) {
  for (int i = 0; i < 4; ++i) {
    const auto low_s = static_cast<uint32_t>(s[i]), high_s = static_cast<uint32_t>(s[i + 4]);
    const auto low_m = static_cast<uint32_t>(m[i]), high_m = static_cast<uint32_t>(m[i + 4]);
    p[i] = static_cast<uint8_t>(low_s | (high_s >> 4) << 6);
    p[i + 4] = static_cast<uint8_t>(low_m | (high_m >> 4) << 6);
    p[i + 8] = static_cast<uint8_t>((high_s & 15) | (high_m & 15) << 4);
  }
}

// Of each half of 128 codes, byte l of 32 holds the low two bits of codes l, l + 32, l + 64 and l +
// 96.
void pack_pairs(const uint8_t* codes, uint8_t* p) {
  for (int half = 0; half < 2; ++half, codes += 128, p += 32) {
    for (int l = 0; l < 32; ++l) {
      p[l] = static_cast<uint8_t>((codes[l] & 3) | (codes[l + 32] & 3) << 2 |
                                  (codes[l + 64] & 3) << 4 | (codes[l + 96] & 3) << 6);
    }
  }
}

// Bit b of byte l of 32 is bit `bit` of code l + 32 b.
void pack_bits(const uint8_t* codes, int bit, uint8_t* p) {
  for (int l = 0; l < 32; ++l) {
    uint32_t bits = 0;
    for (int b = 0; b < 8; ++b) {
      bits |= static_cast<uint32_t>(codes[l + 32 * b] >> bit & 1) << b;
    }
    p[l] = static_cast<uint8_t>(bits);
  }
}

void pack_q2_k(const uint8_t* codes, const SuperScales& scales, uint8_t* p) {
  for (int i = 0; i < 16; ++i) {
    p[i] = static_cast<uint8_t>(static_cast<int>(scales.s[i]) | static_cast<int>(scales.m[i]) << 4);
  }
  pack_pairs(codes, p + 16);
  put_half(scales.d, p + 80);
  put_half(scales.e, p + 82);
}

void pack_q3_k(const uint8_t* codes, const SuperScales& scales, uint8_t* p) {
  pack_bits(codes, 2, p);
  pack_pairs(codes, p + 32);
  uint32_t s[16];
  for (int i = 0; i < 16; ++i) s[i] = static_cast<uint32_t>(static_cast<int>(scales.s[i]) + 32);
  for (int i = 0; i < 8; ++i) p[96 + i] = static_cast<uint8_t>((s[i] & 15) | (s[i + 8] & 15) << 4);
  for (int i = 0; i < 4; ++i) {
    p[104 + i] = static_cast<uint8_t>(s[i] >> 4 | (s[i + 4] >> 4) << 2 | (s[i + 8] >> 4) << 4 |
                                      (s[i + 12] >> 4) << 6);
  }
  put_half(scales.d, p + 108);
}

void pack_iq4_xs(const uint8_t* codes, const SuperScales& scales, uint8_t* p) {
  put_half(scales.d, p);
  uint32_t high = 0, low = 0;
  for (int i = 0; i < 8; ++i) {
    const auto s = static_cast<uint32_t>(static_cast<int>(scales.s[i]) + 32);
    low |= (s & 15) << (4 * i);
    high |= s >> 4 << (2 * i);
  }
  const auto pairs = static_cast<uint16_t>(high);
  std::memcpy(p + 2, &pairs, sizeof pairs);
  std::memcpy(p + 4, &low, sizeof low);
  for (int sub = 0; sub < 8; ++sub) pack_nibbles(codes + 32 * sub, 16, p + 8 + 16 * sub);
}

void pack_q6_k(const uint8_t* codes, const SuperScales& scales, uint8_t* p) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* c = codes + 128 * half;
    pack_nibbles(c, 64, p + 64 * half);
    for (int l = 0; l < 32; ++l) {
      p[128 + 32 * half + l] = static_cast<uint8_t>(c[l] >> 4 | (c[l + 32] >> 4) << 2 |
                                                    (c[l + 64] >> 4) << 4 | (c[l + 96] >> 4) << 6);
    }
  }
  for (int i = 0; i < 16; ++i) p[192 + i] = static_cast<uint8_t>(static_cast<int>(scales.s[i]));
  put_half(scales.d, p + 208);
}

}  // namespace

void pack_block(DType dtype, const uint8_t* codes, float scale, float min, uint8_t* block) {
  put_half(scale, block);
  block += 2;
  if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1) {
    put_half(min, block);
    block += 2;
  }
  if (dtype == DType::kQ5_0 || dtype == DType::kQ5_1) {
    uint32_t fifth = 0;
    for (int i = 0; i < 32; ++i) fifth |= static_cast<uint32_t>(codes[i] >> 4) << i;
    std::memcpy(block, &fifth, 4);
    block += 4;
  }
  pack_nibbles(codes, 16, block);
}

void pack_mxfp4(const uint8_t* codes, int exponent, uint8_t* block) {
  *block = static_cast<uint8_t>(exponent);
  pack_nibbles(codes, 16, block + 1);
}

void pack_super_block(DType dtype, const uint8_t* codes, const SuperScales& scales,
                      uint8_t* block) {
  if (dtype == DType::kQ2_K) return pack_q2_k(codes, scales, block);
  if (dtype == DType::kQ3_K) return pack_q3_k(codes, scales, block);
  if (dtype == DType::kQ6_K) return pack_q6_k(codes, scales, block);
  if (dtype == DType::kIQ4_XS) return pack_iq4_xs(codes, scales, block);
  LUMEN_CHECK(dtype == DType::kQ4_K || dtype == DType::kQ5_K);
  put_half(scales.d, block);
  put_half(scales.e, block + 2);
  pack_scales_k4(scales.s, scales.m, block + 4);
  block += 16;
  if (dtype == DType::kQ5_K) {
    pack_bits(codes, 4, block);
    block += 32;
  }
  for (int part = 0; part < 4; ++part) pack_nibbles(codes + 64 * part, 32, block + 32 * part);
}

}  // namespace lumen::kernels
