// ggml's quantised blocks taken apart: one struct per format, for the target being compiled.
//
// Every format stores blocks of kBlock consecutive elements in kBytes bytes, divided into
// sub-blocks of kSub elements with one scale (and, where kHasMin, one offset) each:
//
//   value[i] = scale[i / kSub] · code[i] + min[i / kSub]
//
// unpack() writes the kBlock codes in element order, and the scales and mins such that this
// formula in float32, rounded after each operation, gives ggml's reference value bit for bit.
// Layouts: ggml's block structs (gguf specification); offsets are given at each format.

#if defined(LUMEN_KERNELS_QUANT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_QUANT_BLOCKS_INL_H_
#undef LUMEN_KERNELS_QUANT_BLOCKS_INL_H_
#else
#define LUMEN_KERNELS_QUANT_BLOCKS_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/piece-inl.h"
#include "lib/kernels/weights/iq4_values.h"
#include "lib/kernels/weights/mxfp4_values.h"
#include "lib/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

inline constexpr int kMaxBlock = 256;
inline constexpr int kMaxSubBlocks = 16;

// Sixteen bytes, and thirty-two where a vector holds them: loops below step by the lane count.
using Bytes16 = hn::CappedTag<uint8_t, 16>;
using Bytes32 = hn::CappedTag<uint8_t, 32>;

HWY_INLINE uint32_t load_u32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

HWY_INLINE uint64_t load_u64(const uint8_t* p) {
  uint64_t value;
  std::memcpy(&value, p, 8);
  return value;
}

template <class D>
HWY_INLINE void store_codes(D d, hn::VFromD<D> v, int8_t* q) {
  hn::StoreU(hn::BitCast(hn::RebindToSigned<D>(), v), hn::RebindToSigned<D>(), q);
}

// Stores 16 + 16 codes, at once where a vector holds both halves: a load wider than the last store
// to its address would have to wait until that store reaches the cache.
template <class D, class V>
HWY_INLINE void store_halves(D d, V low, V upper, int8_t* q) {
  if constexpr (hn::MaxLanes(d) == 32) {
    store_codes(d, hn::Combine(d, upper, low), q);
  } else {
    store_codes(d, low, q);
    store_codes(d, upper, q + 16);
  }
}

// Sixteen bytes that hold 1 << 4 where the corresponding bit of `bits` is set.
HWY_INLINE hn::VFromD<Bytes16> fifth_bits(uint32_t bits) {
  const Bytes16 d;
  alignas(16) static constexpr uint8_t kByte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  alignas(16) static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                   1, 2, 4, 8, 16, 32, 64, 128};
  const auto word =
      hn::BitCast(d, hn::Set(hn::Repartition<uint16_t, Bytes16>(), static_cast<uint16_t>(bits)));
  const auto bit = hn::Load(d, kBit);
  const auto spread = hn::And(hn::TableLookupBytes(word, hn::Load(d, kByte)), bit);
  return hn::IfThenElseZero(hn::Eq(spread, bit), hn::Set(d, uint8_t{16}));
}

// 32 four-bit codes: byte j holds element j below and element j + 16 above; `high` supplies fifth
// bits (0 for none), `offset` is subtracted.
template <bool kFifth>
LUMEN_PIECE void unpack_nibbles(const uint8_t* p, uint32_t high, uint8_t offset, int8_t* q) {
  const Bytes16 d;
  const auto v = hn::LoadU(d, p);
  auto low = hn::And(v, hn::Set(d, uint8_t{15}));
  auto upper = hn::ShiftRight<4>(v);
  if constexpr (kFifth) {
    low = hn::Or(low, fifth_bits(high));
    upper = hn::Or(upper, fifth_bits(high >> 16));
  }
  low = hn::Sub(low, hn::Set(d, offset));
  upper = hn::Sub(upper, hn::Set(d, offset));
  store_halves(Bytes32(), low, upper, q);
}

// f16 d; i8 q[32].
struct Q8_0 {
  static constexpr DType kType = DType::kQ8_0;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = false;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    scale[0] = load_f16(p);
    std::memcpy(q, p + 2, 32);
  }
};

// f16 d; u8 nibbles[16]; code − 8.
struct Q4_0 {
  static constexpr DType kType = DType::kQ4_0;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = false;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    scale[0] = load_f16(p);
    unpack_nibbles<false>(p + 2, 0, 8, q);
  }
};

// f16 d, m; u8 nibbles[16].
struct Q4_1 {
  static constexpr DType kType = DType::kQ4_1;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = true;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float* min) {
    scale[0] = load_f16(p);
    min[0] = load_f16(p + 2);
    unpack_nibbles<false>(p + 4, 0, 0, q);
  }
};

// f16 d; u32 fifth bits; u8 nibbles[16]; code − 16.
struct Q5_0 {
  static constexpr DType kType = DType::kQ5_0;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = false;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    scale[0] = load_f16(p);
    unpack_nibbles<true>(p + 6, load_u32(p + 2), 16, q);
  }
};

// f16 d, m; u32 fifth bits; u8 nibbles[16].
struct Q5_1 {
  static constexpr DType kType = DType::kQ5_1;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = true;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float* min) {
    scale[0] = load_f16(p);
    min[0] = load_f16(p + 2);
    unpack_nibbles<true>(p + 8, load_u32(p + 4), 0, q);
  }
};

// out[i] = factor · (byte i of `packed` − offset) for the eight bytes from the lowest, each a T.
template <typename T>
LUMEN_PIECE void scale_bytes(uint64_t packed, int offset, float factor, float* out) {
  const hn::CappedTag<float, 8> df;
  constexpr size_t kLanes = hn::MaxLanes(df);
  using Word = std::conditional_t<kLanes == 8, uint64_t, uint32_t>;
  const hn::Rebind<int32_t, decltype(df)> di;
  const hn::Rebind<T, decltype(df)> bytes;
  for (size_t i = 0; i < 8; i += kLanes) {
    const auto word = hn::Set(hn::CappedTag<Word, 1>(), static_cast<Word>(packed >> (8 * i)));
    const auto v = hn::PromoteTo(di, hn::BitCast(bytes, word));
    const auto shifted = hn::ConvertTo(df, hn::Sub(v, hn::Set(di, offset)));
    hn::StoreU(hn::Mul(shifted, hn::Set(df, factor)), df, out + i);
  }
}

HWY_INLINE uint64_t join(uint32_t low, uint32_t high) {
  return low | uint64_t{high} << 32;
}

// Q2_K: u8 scale | min << 4 [16]; u8 codes[64]; f16 d, dmin. Of each half of 128 elements, byte l
// of its 32 holds elements l, l + 32, l + 64, l + 96, two bits each from the lowest.
struct Q2_K {
  static constexpr DType kType = DType::kQ2_K;
  static constexpr int kSub = 16;
  static constexpr bool kHasMin = true;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float* min) {
    constexpr uint64_t k4 = 0x0F0F0F0F0F0F0F0F;
    const float scale_factor = load_f16(p + 80), min_factor = -load_f16(p + 82);
    for (int i = 0; i < 16; i += 8) {
      scale_bytes<uint8_t>(load_u64(p + i) & k4, 0, scale_factor, scale + i);
      scale_bytes<uint8_t>((load_u64(p + i) >> 4) & k4, 0, min_factor, min + i);
    }
    const Bytes32 d;
    const auto mask = hn::Set(d, uint8_t{3});
    for (int half = 0; half < 2; ++half) {
      for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
        const auto v = hn::LoadU(d, p + 16 + 32 * half + l);
        int8_t* out = q + 128 * half + l;
        store_codes(d, hn::And(v, mask), out);
        store_codes(d, hn::And(hn::ShiftRight<2>(v), mask), out + 32);
        store_codes(d, hn::And(hn::ShiftRight<4>(v), mask), out + 64);
        store_codes(d, hn::ShiftRight<6>(v), out + 96);
      }
    }
  }
};

// Q3_K: u8 high bits[32]; u8 low two bits[64] as in Q2_K; u8 scales[12]; f16 d. Bit b of high
// byte l belongs to element l + 32 b; code = low + 4·high − 4. Scales are 6 bits, offset by 32.
struct Q3_K {
  static constexpr DType kType = DType::kQ3_K;
  static constexpr int kSub = 16;
  static constexpr bool kHasMin = false;

  template <int kBit, class D, class V>
  static HWY_INLINE void store(D d, V low, V high, int8_t* q) {
    const auto bit = hn::Set(d, static_cast<uint8_t>(1 << kBit));
    const auto clear = hn::Eq(hn::And(high, bit), hn::Zero(d));
    const auto code = hn::And(low, hn::Set(d, uint8_t{3}));
    store_codes(d, hn::Sub(code, hn::IfThenElseZero(clear, hn::Set(d, uint8_t{4}))), q);
  }

  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    const uint32_t a = load_u32(p + 96), b = load_u32(p + 100), c = load_u32(p + 104);
    constexpr uint32_t k4 = 0x0F0F0F0F, k2 = 0x03030303;
    const uint64_t first_eight =
        join((a & k4) | ((c & k2) << 4), (b & k4) | (((c >> 2) & k2) << 4));
    const uint64_t last_eight =
        join(((a >> 4) & k4) | (((c >> 4) & k2) << 4), ((b >> 4) & k4) | (((c >> 6) & k2) << 4));
    scale_bytes<uint8_t>(first_eight, 32, load_f16(p + 108), scale);
    scale_bytes<uint8_t>(last_eight, 32, load_f16(p + 108), scale + 8);
    const Bytes32 d;
    for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
      const auto high = hn::LoadU(d, p + l);
      const auto first = hn::LoadU(d, p + 32 + l);
      const auto second = hn::LoadU(d, p + 64 + l);
      store<0>(d, first, high, q + l);
      store<1>(d, hn::ShiftRight<2>(first), high, q + l + 32);
      store<2>(d, hn::ShiftRight<4>(first), high, q + l + 64);
      store<3>(d, hn::ShiftRight<6>(first), high, q + l + 96);
      store<4>(d, second, high, q + l + 128);
      store<5>(d, hn::ShiftRight<2>(second), high, q + l + 160);
      store<6>(d, hn::ShiftRight<4>(second), high, q + l + 192);
      store<7>(d, hn::ShiftRight<6>(second), high, q + l + 224);
    }
  }
};

// The eight 6-bit scales and mins of Q4_K and Q5_K, packed in 12 bytes.
LUMEN_PIECE void unpack_scales_k4(const uint8_t* p, float* scale, float* min) {
  const uint32_t a = load_u32(p + 4), b = load_u32(p + 8), c = load_u32(p + 12);
  constexpr uint32_t k6 = 0x3F3F3F3F, k4 = 0x0F0F0F0F, k2 = 0x30303030;
  scale_bytes<uint8_t>(join(a & k6, (c & k4) | ((a >> 2) & k2)), 0, load_f16(p), scale);
  scale_bytes<uint8_t>(join(b & k6, ((c >> 4) & k4) | ((b >> 2) & k2)), 0, -load_f16(p + 2), min);
}

// Q4_K: f16 d, dmin; u8 scales[12]; u8 codes[128]. Byte l of each 32 holds element l of 64 below
// and element l + 32 above.
struct Q4_K {
  static constexpr DType kType = DType::kQ4_K;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = true;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float* min) {
    unpack_scales_k4(p, scale, min);
    const Bytes32 d;
    const auto mask = hn::Set(d, uint8_t{15});
    for (int part = 0; part < 4; ++part) {
      for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
        const auto v = hn::LoadU(d, p + 16 + 32 * part + l);
        store_codes(d, hn::And(v, mask), q + 64 * part + l);
        store_codes(d, hn::ShiftRight<4>(v), q + 64 * part + 32 + l);
      }
    }
  }
};

// Q5_K: f16 d, dmin; u8 scales[12]; u8 fifth bits[32]; u8 codes[128] as in Q4_K. Bit b of fifth
// byte l belongs to element l + 32 b.
struct Q5_K {
  static constexpr DType kType = DType::kQ5_K;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = true;

  template <int kPart, class D, class V>
  static HWY_INLINE void store(D d, const uint8_t* p, V high, int8_t* q) {
    const auto v = hn::LoadU(d, p + 32 * kPart);
    const auto sixteen = hn::Set(d, uint8_t{16});
    const auto even = hn::And(shift_to_bit4<2 * kPart>(high), sixteen);
    const auto odd = hn::And(shift_to_bit4<2 * kPart + 1>(high), sixteen);
    store_codes(d, hn::Or(hn::And(v, hn::Set(d, uint8_t{15})), even), q + 64 * kPart);
    store_codes(d, hn::Or(hn::ShiftRight<4>(v), odd), q + 64 * kPart + 32);
  }

  // Moves bit kBit to bit 4; the other bits become anything.
  template <int kBit, class V>
  static HWY_INLINE V shift_to_bit4(V v) {
    if constexpr (kBit < 4) {
      return hn::ShiftLeft<4 - kBit>(v);
    } else {
      return hn::ShiftRight<kBit - 4>(v);
    }
  }

  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float* min) {
    unpack_scales_k4(p, scale, min);
    const Bytes32 d;
    for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
      const auto high = hn::LoadU(d, p + 16 + l);
      store<0>(d, p + 48 + l, high, q + l);
      store<1>(d, p + 48 + l, high, q + l);
      store<2>(d, p + 48 + l, high, q + l);
      store<3>(d, p + 48 + l, high, q + l);
    }
  }
};

// Q6_K: u8 low nibbles[128]; u8 high pairs[64]; i8 scales[16]; f16 d. Of each half of 128
// elements, nibble byte l of its 64 holds element l below and l + 64 above, and byte l of its 32
// high bytes holds elements l, l + 32, l + 64, l + 96 from the lowest pair; code − 32.
struct Q6_K {
  static constexpr DType kType = DType::kQ6_K;
  static constexpr int kSub = 16;
  static constexpr bool kHasMin = false;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    scale_bytes<int8_t>(load_u64(p + 192), 0, load_f16(p + 208), scale);
    scale_bytes<int8_t>(load_u64(p + 200), 0, load_f16(p + 208), scale + 8);
    const Bytes32 d;
    const auto low4 = hn::Set(d, uint8_t{15});
    const auto pair = hn::Set(d, uint8_t{0x30});
    const auto offset = hn::Set(d, uint8_t{32});
    for (int half = 0; half < 2; ++half) {
      for (size_t l = 0; l < 32; l += hn::Lanes(d)) {
        const auto first = hn::LoadU(d, p + 64 * half + l);
        const auto second = hn::LoadU(d, p + 64 * half + 32 + l);
        const auto high = hn::LoadU(d, p + 128 + 32 * half + l);
        const auto h0 = hn::And(hn::ShiftLeft<4>(high), pair);
        const auto h1 = hn::And(hn::ShiftLeft<2>(high), pair);
        const auto h2 = hn::And(high, pair);
        const auto h3 = hn::And(hn::ShiftRight<2>(high), pair);
        int8_t* out = q + 128 * half + l;
        store_codes(d, hn::Sub(hn::Or(hn::And(first, low4), h0), offset), out);
        store_codes(d, hn::Sub(hn::Or(hn::And(second, low4), h1), offset), out + 32);
        store_codes(d, hn::Sub(hn::Or(hn::ShiftRight<4>(first), h2), offset), out + 64);
        store_codes(d, hn::Sub(hn::Or(hn::ShiftRight<4>(second), h3), offset), out + 96);
      }
    }
  }
};

// 16 bytes of nibbles, byte j with element j below and element j + 16 above, as the codes of a
// table of sixteen.
LUMEN_PIECE void unpack_iq4_nibbles(const uint8_t* p, int8_t* q, const int8_t* codes = kIq4Values) {
  const Bytes16 d;
  const auto table = hn::BitCast(d, hn::Load(hn::RebindToSigned<Bytes16>(), codes));
  const auto v = hn::LoadU(d, p);
  const auto low = hn::TableLookupBytes(table, hn::And(v, hn::Set(d, uint8_t{15})));
  const auto upper = hn::TableLookupBytes(table, hn::ShiftRight<4>(v));
  store_halves(Bytes32(), low, upper, q);
}

// f16 d; u8 nibbles[16].
struct IQ4_NL {
  static constexpr DType kType = DType::kIQ4_NL;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = false;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    scale[0] = load_f16(p);
    unpack_iq4_nibbles(p + 2, q);
  }
};

// u8 exponent; u8 nibbles[16].
struct MXFP4 {
  static constexpr DType kType = DType::kMXFP4;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = false;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    scale[0] = mxfp4_scale(p[0]);
    unpack_iq4_nibbles(p + 1, q, kMxfp4Values);
  }
};

// IQ4_XS: f16 d; u16 upper pairs of the eight 6-bit scales; u8 their lower nibbles[4]; then for
// each sub-block u8 nibbles[16] as in IQ4_NL. Scales are offset by 32.
struct IQ4_XS {
  static constexpr DType kType = DType::kIQ4_XS;
  static constexpr int kSub = 32;
  static constexpr bool kHasMin = false;
  static LUMEN_PIECE void unpack(const uint8_t* p, int8_t* q, float* scale, float*) {
    scale_bytes<uint8_t>(iq4_xs_scales(p), 32, load_f16(p), scale);
    for (int sub = 0; sub < 8; ++sub) unpack_iq4_nibbles(p + 8 + 16 * sub, q + 32 * sub);
  }
};

// Elements and bytes of a block, from the one table of formats.
template <class Format>
inline constexpr int kBlockOf = info(Format::kType).block_elements;
template <class Format>
inline constexpr int kBytesOf = info(Format::kType).block_bytes;

// Calls f with a value of the format struct of `dtype`, which must be quantised.
template <class F>
HWY_INLINE void with_format(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kQ8_0:
      return f(Q8_0{});
    case DType::kQ4_0:
      return f(Q4_0{});
    case DType::kQ4_1:
      return f(Q4_1{});
    case DType::kQ5_0:
      return f(Q5_0{});
    case DType::kQ5_1:
      return f(Q5_1{});
    case DType::kQ2_K:
      return f(Q2_K{});
    case DType::kQ3_K:
      return f(Q3_K{});
    case DType::kQ4_K:
      return f(Q4_K{});
    case DType::kQ5_K:
      return f(Q5_K{});
    case DType::kQ6_K:
      return f(Q6_K{});
    case DType::kIQ4_NL:
      return f(IQ4_NL{});
    case DType::kIQ4_XS:
      return f(IQ4_XS{});
    case DType::kMXFP4:
      return f(MXFP4{});
    default:
      LUMEN_CHECK(!"a quantised type");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_QUANT_BLOCKS_INL_H_
