#include "lib/kernels/weights/dot_rows_vnni.h"

#include "lib/kernels/simd/x86_intrinsics.h"
#include "lib/kernels/weights/iq4_values.h"
#include "lib/kernels/weights/mxfp4_values.h"

#if HWY_ARCH_X86_64

#include <cstring>

// Everything up to HWY_POP_ATTRIBUTES is compiled for this instruction set and reached only through
// dot_rows_vnni. No function template of the standard library may be instantiated in between.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")

namespace lumen::kernels {
namespace {

// As in dot_rows_float.cc.
constexpr int64_t kPrefetchBytes = 3072;

HWY_INLINE void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes), _MM_HINT_T0);
}

template <typename T>
HWY_INLINE T load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

HWY_INLINE float half_at(const uint8_t* p) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load<uint16_t>(p))));
}

HWY_INLINE __m512i repeat_16(const uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

HWY_INLINE __m512i repeat_32(const uint8_t* p) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

HWY_INLINE __m512i load_64(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}

// Bits shifted right by `low` in the lower half of the vector and by `high` in the upper; bytes
// receive bits of their neighbours, which the caller masks off. Negative: to the left.
HWY_INLINE __m512i rotate_halves(__m512i v, int low, int high) {
  const __m512i counts =
      _mm512_inserti64x4(_mm512_set1_epi64(low & 63), _mm256_set1_epi64x(high & 63), 1);
  return _mm512_rorv_epi64(v, counts);
}

HWY_INLINE __m512i bytes(int value) {
  return _mm512_set1_epi8(static_cast<char>(value));
}

// ---- Formats of 32 elements: codes(p, q) gives those of two blocks.

// The nibbles of the 16 bytes at p and of those at q, elements in order.
HWY_INLINE __m512i nibbles(const uint8_t* p, const uint8_t* q) {
  const __m512i pairs = _mm512_inserti64x4(
      repeat_16(p),
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q))), 1);
  const __m512i counts = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0);
  return _mm512_and_si512(_mm512_srlv_epi64(pairs, counts), bytes(15));
}

HWY_INLINE __m512i add_fifth_bits(__m512i codes, const uint8_t* p, const uint8_t* q) {
  const uint64_t bits = load<uint32_t>(p) | uint64_t{load<uint32_t>(q)} << 32;
  return _mm512_mask_add_epi8(codes, bits, codes, bytes(16));
}

struct Q8_0 {
  static constexpr DType kType = DType::kQ8_0;
  static constexpr int kOffset = 128, kMinAt = -1;
  static HWY_INLINE __m512i codes(const uint8_t* p, const uint8_t* q) {
    const __m512i low =
        _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2)));
    const __m512i both =
        _mm512_inserti64x4(low, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 2)), 1);
    return _mm512_xor_si512(both, bytes(0x80));
  }
};

struct Q4_0 {
  static constexpr DType kType = DType::kQ4_0;
  static constexpr int kOffset = 8, kMinAt = -1;
  static HWY_INLINE __m512i codes(const uint8_t* p, const uint8_t* q) {
    return nibbles(p + 2, q + 2);
  }
};

struct Q4_1 {
  static constexpr DType kType = DType::kQ4_1;
  static constexpr int kOffset = 0, kMinAt = 2;
  static HWY_INLINE __m512i codes(const uint8_t* p, const uint8_t* q) {
    return nibbles(p + 4, q + 4);
  }
};

struct Q5_0 {
  static constexpr DType kType = DType::kQ5_0;
  static constexpr int kOffset = 16, kMinAt = -1;
  static HWY_INLINE __m512i codes(const uint8_t* p, const uint8_t* q) {
    return add_fifth_bits(nibbles(p + 6, q + 6), p + 2, q + 2);
  }
};

struct Q5_1 {
  static constexpr DType kType = DType::kQ5_1;
  static constexpr int kOffset = 0, kMinAt = 2;
  static HWY_INLINE __m512i codes(const uint8_t* p, const uint8_t* q) {
    return add_fifth_bits(nibbles(p + 8, q + 8), p + 4, q + 4);
  }
};

// The bytes of `table`, of sixteen, that the nibbles name.
HWY_INLINE __m512i looked_up(__m512i table, const uint8_t* p, const uint8_t* q) {
  return _mm512_shuffle_epi8(table, nibbles(p, q));
}

HWY_INLINE __m512i table_of(const int8_t* sixteen) {
  return repeat_16(reinterpret_cast<const uint8_t*>(sixteen));
}

// The numbers that the nibbles stand for, 128 more of each.
HWY_INLINE __m512i iq4_codes(const uint8_t* p, const uint8_t* q) {
  return looked_up(_mm512_xor_si512(table_of(kIq4Values), bytes(0x80)), p, q);
}

struct IQ4_NL {
  static constexpr DType kType = DType::kIQ4_NL;
  static constexpr int kOffset = 128, kMinAt = -1;
  static HWY_INLINE __m512i codes(const uint8_t* p, const uint8_t* q) {
    return iq4_codes(p + 2, q + 2);
  }
};

struct MXFP4 {
  static constexpr DType kType = DType::kMXFP4;
  static constexpr int kOffset = kMxfp4Offset, kMinAt = -1;
  static HWY_INLINE __m512i codes(const uint8_t* p, const uint8_t* q) {
    return looked_up(table_of(kMxfp4Codes), p + 1, q + 1);
  }
};

// The first kCount of four halves, kStride bytes apart, as floats [a, b, c, d, a, b, …]; 0 for the
// others.
template <int kCount, int kStride>
HWY_INLINE __m512 repeat_halves(const uint8_t* p) {
  uint64_t bits = 0;
  for (int i = 0; i < kCount; ++i) bits |= uint64_t{load<uint16_t>(p + i * kStride)} << (16 * i);
  return _mm512_cvtph_ps(_mm256_set1_epi64x(static_cast<int64_t>(bits)));
}

// The same of MXFP4's exponents, as scales of kMxfp4Values.
template <int kCount, int kStride>
HWY_INLINE __m512 repeat_exponents(const uint8_t* p) {
  int bits[4] = {};
  for (int i = 0; i < kCount; ++i) bits[i] = int{p[i * kStride]} << 23;
  const __m128i four = _mm_setr_epi32(bits[0], bits[1], bits[2], bits[3]);
  return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_broadcast_i32x4(four)), _mm512_set1_ps(0.5f));
}

// The scales of kCount blocks.
template <class Format, int kCount>
HWY_INLINE __m512 repeat_scales(const uint8_t* p) {
  constexpr int kBytes = info(Format::kType).block_bytes;
  if constexpr (Format::kType == DType::kMXFP4) {
    return repeat_exponents<kCount, kBytes>(p);
  } else {
    return repeat_halves<kCount, kBytes>(p);
  }
}

// kCount floats next to each other, in the same way.
template <int kCount>
HWY_INLINE __m512 repeat_floats(const float* p) {
  if constexpr (kCount == 4) {
    return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
  } else {
    static_assert(kCount == 1);
    return _mm512_maskz_mov_ps(0x1111, _mm512_set1_ps(*p));
  }
}

// Of [a, b, c, d, …], eight lanes of a and eight of b, or of c and d.
template <int kPair>
HWY_INLINE __m512 spread_pair(__m512 four) {
  const __m512i lanes =
      _mm512_inserti64x4(_mm512_set1_epi32(2 * kPair), _mm256_set1_epi32(2 * kPair + 1), 1);
  return _mm512_permutexvar_ps(lanes, four);
}

// Sums of one row of weights with kRows rows of x.
template <int kRows>
struct Sums {
  __m512 product[kRows][2];  // in turn, against the latency of the multiply-add
  __m512 min[kRows];
};

template <int kRows>
HWY_INLINE void clear(Sums<kRows>& sums) {
  for (int r = 0; r < kRows; ++r) {
    sums.product[r][0] = sums.product[r][1] = sums.min[r] = _mm512_setzero_ps();
  }
}

// Where the rows of x are, for sub-blocks of one size.
struct Operand {
  const int8_t* codes;
  const float *scale, *sum;
  int64_t cols, subs;  // strides of the rows
};

HWY_INLINE __m512 dot(__m512i weight_codes, __m512i x_codes) {
  return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), weight_codes, x_codes));
}

// Adds kCount blocks (4 or 1) of the weights from `block` on.
template <class Format, int kRows, int kCount>
HWY_INLINE void add_blocks(const uint8_t* w, const Operand& x, int64_t block, Sums<kRows>& sums) {
  constexpr int kBytes = info(Format::kType).block_bytes;
  const uint8_t* p = w + block * kBytes;
  for (int line = 0; line < kCount * kBytes; line += 64) prefetch(p + line);
  const __m512 scale = repeat_scales<Format, kCount>(p);
  __m512 min = scale;
  if constexpr (Format::kMinAt > 0) min = repeat_halves<kCount, kBytes>(p + Format::kMinAt);
  const __m512i first = Format::codes(p, kCount == 4 ? p + kBytes : p);
  for (int r = 0; r < kRows; ++r) {
    const int64_t at = r * x.subs + block;
    const int8_t* x_codes = x.codes + r * x.cols + 32 * block;
    const __m512 factor = _mm512_mul_ps(scale, repeat_floats<kCount>(x.scale + at));
    sums.min[r] = _mm512_fmadd_ps(min, repeat_floats<kCount>(x.sum + at), sums.min[r]);
    const __m512i xv =
        kCount == 4 ? _mm512_loadu_si512(x_codes) : _mm512_maskz_loadu_epi8(0xFFFFFFFF, x_codes);
    sums.product[r][0] =
        _mm512_fmadd_ps(dot(first, xv), spread_pair<0>(factor), sums.product[r][0]);
    if constexpr (kCount == 4) {
      const __m512i second = Format::codes(p + 2 * kBytes, p + 3 * kBytes);
      sums.product[r][1] = _mm512_fmadd_ps(dot(second, _mm512_loadu_si512(x_codes + 64)),
                                           spread_pair<1>(factor), sums.product[r][1]);
    }
  }
}

template <class Format, int kRows>
HWY_INLINE void dot_row_32(const uint8_t* w, const Operand& x, float* out) {
  Sums<kRows> sums;
  clear(sums);
  int64_t block = 0;
  for (; block + 4 <= x.subs; block += 4) add_blocks<Format, kRows, 4>(w, x, block, sums);
  for (; block < x.subs; ++block) add_blocks<Format, kRows, 1>(w, x, block, sums);
  // Every block's min stands in four lanes.
  constexpr float kMinFactor = (Format::kMinAt > 0 ? 1.0f : -Format::kOffset) / 4.0f;
  for (int r = 0; r < kRows; ++r) {
    const __m512 products = _mm512_add_ps(sums.product[r][0], sums.product[r][1]);
    out[r] =
        _mm512_reduce_add_ps(_mm512_fmadd_ps(sums.min[r], _mm512_set1_ps(kMinFactor), products));
  }
}

// ---- Formats of 256 elements: codes<g>(p) gives elements 64 g to 64 g + 63.

struct Scales {
  __m512 scale, min;  // per sub-block; zero in lanes that have none
};

HWY_INLINE __m512 small_integers(__m128i sixteen, float factor) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen)), _mm512_set1_ps(factor));
}

// As Q4_K and Q5_K of quant_blocks-inl.h.
HWY_INLINE Scales scales_k4(const uint8_t* p) {
  const uint32_t a = load<uint32_t>(p + 4), b = load<uint32_t>(p + 8), c = load<uint32_t>(p + 12);
  constexpr uint32_t k6 = 0x3F3F3F3F, k4 = 0x0F0F0F0F, k2 = 0x30303030;
  const uint64_t scales = (a & k6) | uint64_t{(c & k4) | ((a >> 2) & k2)} << 32;
  const uint64_t mins = (b & k6) | uint64_t{((c >> 4) & k4) | ((b >> 2) & k2)} << 32;
  return {small_integers(_mm_cvtsi64_si128(static_cast<int64_t>(scales)), half_at(p)),
          small_integers(_mm_cvtsi64_si128(static_cast<int64_t>(mins)), -half_at(p + 2))};
}

struct Q4_K {
  static constexpr DType kType = DType::kQ4_K;
  static constexpr int kSub = 32, kOffset = 0;
  static HWY_INLINE Scales scales(const uint8_t* p) { return scales_k4(p); }
  template <int kGroup>
  static HWY_INLINE __m512i codes(const uint8_t* p) {
    return _mm512_and_si512(rotate_halves(repeat_32(p + 16 + 32 * kGroup), 0, 4), bytes(15));
  }
};

struct Q5_K {
  static constexpr DType kType = DType::kQ5_K;
  static constexpr int kSub = 32, kOffset = 0;
  static HWY_INLINE Scales scales(const uint8_t* p) { return scales_k4(p); }
  template <int kGroup>
  static HWY_INLINE __m512i codes(const uint8_t* p) {
    const __m512i low =
        _mm512_and_si512(rotate_halves(repeat_32(p + 48 + 32 * kGroup), 0, 4), bytes(15));
    const __m512i high = rotate_halves(repeat_32(p + 16), 2 * kGroup - 4, 2 * kGroup - 3);
    return _mm512_or_si512(low, _mm512_and_si512(high, bytes(16)));
  }
};

struct Q6_K {
  static constexpr DType kType = DType::kQ6_K;
  static constexpr int kSub = 16, kOffset = 32;
  static HWY_INLINE Scales scales(const uint8_t* p) {
    const auto sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 192));
    const __m512 scale = small_integers(sixteen, half_at(p + 208));
    return {scale, scale};
  }
  template <int kGroup>
  static HWY_INLINE __m512i codes(const uint8_t* p) {
    constexpr int kHalf = kGroup / 2, kUpper = kGroup % 2;
    const __m512i nibble = load_64(p + 64 * kHalf);
    const __m512i low = _mm512_and_si512(kUpper ? _mm512_srli_epi16(nibble, 4) : nibble, bytes(15));
    const __m512i high =
        rotate_halves(repeat_32(p + 128 + 32 * kHalf), 4 * kUpper - 4, 4 * kUpper - 2);
    return _mm512_or_si512(low, _mm512_and_si512(high, bytes(0x30)));
  }
};

struct Q2_K {
  static constexpr DType kType = DType::kQ2_K;
  static constexpr int kSub = 16, kOffset = 0;
  static HWY_INLINE Scales scales(const uint8_t* p) {
    const auto both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i mask = _mm_set1_epi8(15);
    return {small_integers(_mm_and_si128(both, mask), half_at(p + 80)),
            small_integers(_mm_and_si128(_mm_srli_epi16(both, 4), mask), -half_at(p + 82))};
  }
  template <int kGroup>
  static HWY_INLINE __m512i codes(const uint8_t* p) {
    constexpr int kHalf = kGroup / 2, kUpper = kGroup % 2;
    const __m512i v = rotate_halves(repeat_32(p + 16 + 32 * kHalf), 4 * kUpper, 4 * kUpper + 2);
    return _mm512_and_si512(v, bytes(3));
  }
};

struct Q3_K {
  static constexpr DType kType = DType::kQ3_K;
  static constexpr int kSub = 16, kOffset = 4;
  static HWY_INLINE Scales scales(const uint8_t* p) {
    const uint32_t a = load<uint32_t>(p + 96), b = load<uint32_t>(p + 100);
    const uint32_t c = load<uint32_t>(p + 104);
    constexpr uint32_t k4 = 0x0F0F0F0F, k2 = 0x03030303;
    const __m128i packed = _mm_set_epi32(static_cast<int>(((b >> 4) & k4) | (((c >> 6) & k2) << 4)),
                                         static_cast<int>(((a >> 4) & k4) | (((c >> 4) & k2) << 4)),
                                         static_cast<int>((b & k4) | (((c >> 2) & k2) << 4)),
                                         static_cast<int>((a & k4) | ((c & k2) << 4)));
    const __m512 scale = small_integers(_mm_sub_epi8(packed, _mm_set1_epi8(32)), half_at(p + 108));
    return {scale, scale};
  }
  template <int kGroup>
  static HWY_INLINE __m512i codes(const uint8_t* p) {
    constexpr int kHalf = kGroup / 2, kUpper = kGroup % 2;
    const __m512i v = rotate_halves(repeat_32(p + 32 + 32 * kHalf), 4 * kUpper, 4 * kUpper + 2);
    const __m512i high = rotate_halves(repeat_32(p), 2 * kGroup - 2, 2 * kGroup - 1);
    return _mm512_or_si512(_mm512_and_si512(v, bytes(3)), _mm512_and_si512(high, bytes(4)));
  }
};

struct IQ4_XS {
  static constexpr DType kType = DType::kIQ4_XS;
  static constexpr int kSub = 32, kOffset = 128;
  static HWY_INLINE Scales scales(const uint8_t* p) {
    const __m128i eight = _mm_cvtsi64_si128(static_cast<int64_t>(iq4_xs_scales(p)));
    const __m512 scale = _mm512_maskz_mov_ps(
        0x00FF, small_integers(_mm_sub_epi8(eight, _mm_set1_epi8(32)), half_at(p)));
    return {scale, scale};
  }
  template <int kGroup>
  static HWY_INLINE __m512i codes(const uint8_t* p) {
    return iq4_codes(p + 8 + 32 * kGroup, p + 24 + 32 * kGroup);
  }
};

// Lane i of the products of group kGroup belongs to sub-block (64 · kGroup + 4 i) / kSub.
template <int kSub, int kGroup>
HWY_INLINE __m512 spread_group(__m512 factors) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i sub = _mm512_add_epi32(_mm512_srli_epi32(lane, kSub == 16 ? 2 : 3),
                                       _mm512_set1_epi32(64 / kSub * kGroup));
  return _mm512_permutexvar_ps(sub, factors);
}

template <class Format, int kGroup, int kRows>
HWY_INLINE void add_group(const uint8_t* w, const Operand& x, int64_t k, const __m512* factors,
                          Sums<kRows>& sums) {
  const __m512i codes = Format::template codes<kGroup>(w);
  for (int r = 0; r < kRows; ++r) {
    const __m512i xv = _mm512_loadu_si512(x.codes + r * x.cols + k + 64 * kGroup);
    __m512& sum = sums.product[r][kGroup % 2];
    sum = _mm512_fmadd_ps(dot(codes, xv), spread_group<Format::kSub, kGroup>(factors[r]), sum);
  }
}

template <class Format, int kRows>
HWY_INLINE void dot_row_256(const uint8_t* w, const Operand& x, float* out) {
  Sums<kRows> sums;
  clear(sums);
  constexpr __mmask16 kSubs = Format::kSub == 16 ? 0xFFFF : 0x00FF;
  for (int64_t k = 0; k < x.cols; k += 256, w += info(Format::kType).block_bytes) {
    for (int line = 0; line < info(Format::kType).block_bytes; line += 64) prefetch(w + line);
    const Scales scales = Format::scales(w);
    __m512 factors[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = r * x.subs + k / Format::kSub;
      factors[r] = _mm512_mul_ps(scales.scale, _mm512_maskz_loadu_ps(kSubs, x.scale + at));
      sums.min[r] =
          _mm512_fmadd_ps(scales.min, _mm512_maskz_loadu_ps(kSubs, x.sum + at), sums.min[r]);
    }
    add_group<Format, 0>(w, x, k, factors, sums);
    add_group<Format, 1>(w, x, k, factors, sums);
    add_group<Format, 2>(w, x, k, factors, sums);
    add_group<Format, 3>(w, x, k, factors, sums);
  }
  constexpr float kMinFactor = Format::kOffset == 0 ? 1.0f : -Format::kOffset;
  for (int r = 0; r < kRows; ++r) {
    const __m512 products = _mm512_add_ps(sums.product[r][0], sums.product[r][1]);
    out[r] =
        _mm512_reduce_add_ps(_mm512_fmadd_ps(sums.min[r], _mm512_set1_ps(kMinFactor), products));
  }
}

// ---- All formats.

template <class Format, int kRows>
HWY_INLINE void dot_row(const uint8_t* w, const QuantizedRows& x, int64_t row, float* out) {
  if constexpr (info(Format::kType).block_elements == 32) {
    const int64_t subs = x.cols / 32;
    dot_row_32<Format, kRows>(
        w, {x.codes + row * x.cols, x.scale_32 + row * subs, x.sum_32 + row * subs, x.cols, subs},
        out);
  } else {
    const int64_t subs = x.cols / Format::kSub;
    const float* scale = Format::kSub == 16 ? x.scale_16 : x.scale_32;
    const float* sum = Format::kSub == 16 ? x.sum_16 : x.sum_32;
    dot_row_256<Format, kRows>(
        w, {x.codes + row * x.cols, scale + row * subs, sum + row * subs, x.cols, subs}, out);
  }
}

template <class Format>
void dot_rows(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
              float* y, int64_t y_stride) {
  const int64_t bytes = row_bytes(Format::kType, w.cols);
  const auto* row = static_cast<const uint8_t*>(w.data) + begin * bytes;
  for (int64_t j = 0; j < end - begin; ++j, row += bytes) {
    float out[4];
    for (int64_t r = 0; r < m;) {
      const int64_t count = m - r >= 4 ? 4 : m - r >= 2 ? 2 : 1;
      if (count == 4) {
        dot_row<Format, 4>(row, x, r, out);
      } else if (count == 2) {
        dot_row<Format, 2>(row, x, r, out);
      } else {
        dot_row<Format, 1>(row, x, r, out);
      }
      for (int64_t i = 0; i < count; ++i) y[(r + i) * y_stride + j] = out[i];
      r += count;
    }
  }
}

}  // namespace

void dot_rows_vnni(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
                   float* y, int64_t y_stride) {
  switch (w.dtype) {
    case DType::kQ8_0:
      return dot_rows<Q8_0>(w, begin, end, x, m, y, y_stride);
    case DType::kQ4_0:
      return dot_rows<Q4_0>(w, begin, end, x, m, y, y_stride);
    case DType::kQ4_1:
      return dot_rows<Q4_1>(w, begin, end, x, m, y, y_stride);
    case DType::kQ5_0:
      return dot_rows<Q5_0>(w, begin, end, x, m, y, y_stride);
    case DType::kQ5_1:
      return dot_rows<Q5_1>(w, begin, end, x, m, y, y_stride);
    case DType::kQ2_K:
      return dot_rows<Q2_K>(w, begin, end, x, m, y, y_stride);
    case DType::kQ3_K:
      return dot_rows<Q3_K>(w, begin, end, x, m, y, y_stride);
    case DType::kQ4_K:
      return dot_rows<Q4_K>(w, begin, end, x, m, y, y_stride);
    case DType::kQ5_K:
      return dot_rows<Q5_K>(w, begin, end, x, m, y, y_stride);
    case DType::kQ6_K:
      return dot_rows<Q6_K>(w, begin, end, x, m, y, y_stride);
    case DType::kIQ4_NL:
      return dot_rows<IQ4_NL>(w, begin, end, x, m, y, y_stride);
    case DType::kIQ4_XS:
      return dot_rows<IQ4_XS>(w, begin, end, x, m, y, y_stride);
    case DType::kMXFP4:
      return dot_rows<MXFP4>(w, begin, end, x, m, y, y_stride);
    default:
      LUMEN_CHECK(!"a quantised weight");
  }
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#else  // not x86-64

namespace lumen::kernels {

void dot_rows_vnni(const Weight&, int64_t, int64_t, const QuantizedRows&, int64_t, float*,
                   int64_t) {
  LUMEN_CHECK(!"VNNI");
}

}  // namespace lumen::kernels

#endif  // HWY_ARCH_X86_64
