// Vectors of half and bfloat16 bits to and from float, for the target being compiled.

#if defined(LUMEN_KERNELS_FLOAT16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_FLOAT16_INL_H_
#undef LUMEN_KERNELS_FLOAT16_INL_H_
#else
#define LUMEN_KERNELS_FLOAT16_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "lib/kernels/simd/first_lanes-inl.h"
#include "lib/kernels/simd/piece-inl.h"
#include "lib/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Whether the target converts halves in hardware (F16C, NEON).
inline constexpr bool kNativeHalf =
    HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;

// One value at any address: the rows of a file need not be aligned.
HWY_INLINE uint16_t load_bits(const void* x) {
  uint16_t bits;
  std::memcpy(&bits, x, sizeof(bits));
  return bits;
}

HWY_INLINE void store_bits(uint16_t bits, uint16_t* y) {
  std::memcpy(y, &bits, sizeof(bits));
}

// float(x[i]) for Lanes(df) halves given as bits. Exact for all values, infinities and NaNs.
template <class DF>
LUMEN_PIECE hn::VFromD<DF> load_half(DF df, const uint16_t* x) {
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::LoadU(du16, x);
  if constexpr (kNativeHalf) {
    return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), bits));
  }
  // Exponent and mantissa moved into float's places read as value · 2^-112, subnormals included.
  const hn::RebindToUnsigned<DF> du;
  const auto wide = hn::PromoteTo(du, bits);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7FFFu)));
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x7F800000u));
  const auto is_special = hn::Gt(magnitude, hn::Set(du, 0x0F7FFFFFu));
  return hn::BitCast(df, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
}

// float(x[i]) for Lanes(df) bfloat16 given as bits.
template <class DF>
HWY_INLINE hn::VFromD<DF> load_bfloat(DF df, const uint16_t* x) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::LoadU(hn::Rebind<uint16_t, DF>(), x);
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

// v, which is not NaN, rounded to nearest even in the upper halves; what the lower ones hold means
// nothing.
template <class DF>
HWY_INLINE hn::VFromD<hn::RebindToUnsigned<DF>> number_in_upper(DF, hn::VFromD<DF> v) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);
}
// The same of any v, NaN staying NaN.
template <class DF>
LUMEN_PIECE hn::VFromD<hn::RebindToUnsigned<DF>> bfloat_in_upper(DF df, hn::VFromD<DF> v) {
  const hn::RebindToUnsigned<DF> du;
  const auto quiet = hn::Or(hn::BitCast(du, v), hn::Set(du, 0x400000u));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  return hn::IfThenElse(is_nan, quiet, number_in_upper(df, v));
}

// Rounds to nearest even; NaN stays NaN.
template <class DF>
LUMEN_PIECE void store_bfloat(DF df, hn::VFromD<DF> v, uint16_t* y) {
  const auto result = hn::ShiftRight<16>(bfloat_in_upper(df, v));
  hn::StoreU(
      hn::DemoteTo(hn::Rebind<uint16_t, DF>(), hn::BitCast(hn::RebindToSigned<DF>(), result)),
      hn::Rebind<uint16_t, DF>(), y);
}

// The same of two vectors.
template <class DF>
LUMEN_PIECE void store_bfloats(DF df, hn::VFromD<DF> v, hn::VFromD<DF> w, uint16_t* y) {
  const hn::Repartition<uint16_t, DF> du16;
  const auto store = [&](auto first, auto second) HWY_ATTR {
    hn::StoreU(hn::ConcatOdd(du16, hn::BitCast(du16, second), hn::BitCast(du16, first)), du16, y);
  };
  // A branch takes less than two blends where masks have no registers of their own. The sum is NaN
  // wherever one of both is, and of opposite infinities.
  constexpr bool kBranches = HWY_TARGET > HWY_AVX3;
  if constexpr (kBranches) {
    if (HWY_LIKELY(hn::AllFalse(df, hn::IsNaN(hn::Add(v, w))))) {
      return store(number_in_upper(df, v), number_in_upper(df, w));
    }
  }
  store(bfloat_in_upper(df, v), bfloat_in_upper(df, w));
}

// v rounded so, as floats.
template <class DF>
LUMEN_PIECE hn::VFromD<DF> rounded_to_bfloat(DF df, hn::VFromD<DF> v) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(df, hn::And(bfloat_in_upper(df, v), hn::Set(du, 0xFFFF0000u)));
}

// Rounds to nearest even; NaN stays NaN.
template <class DF>
LUMEN_PIECE void store_half(DF df, hn::VFromD<DF> v, uint16_t* y) {
  if constexpr (kNativeHalf) {
    const auto half = hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), v);
    hn::StoreU(hn::BitCast(hn::Rebind<uint16_t, DF>(), half), hn::Rebind<uint16_t, DF>(), y);
  } else {
    float lanes[hn::MaxLanes(df)];
    hn::StoreU(v, df, lanes);
    for (size_t i = 0; i < hn::Lanes(df); ++i) store_bits(to_f16(lanes[i]).bits, y + i);
  }
}

// A half as a type of its own, where plain bits are bfloat16.
struct HalfBits {
  uint16_t bits;
};

// Numbers that are those of a vector, or bfloat16 or halves given as bits, for kernels that read or
// write any of them.
template <class D>
HWY_INLINE hn::VFromD<D> load_numbers(D d, const hn::TFromD<D>* x) {
  return hn::LoadU(d, x);
}
template <class DF>
HWY_INLINE hn::VFromD<DF> load_numbers(DF df, const uint16_t* x) {
  return load_bfloat(df, x);
}
template <class DF>
HWY_INLINE hn::VFromD<DF> load_numbers(DF df, const HalfBits* x) {
  return load_half(df, &x->bits);
}
template <class DF>
HWY_INLINE void store_numbers(DF df, hn::VFromD<DF> v, float* y) {
  hn::StoreU(v, df, y);
}
template <class DF>
HWY_INLINE void store_numbers(DF df, hn::VFromD<DF> v, uint16_t* y) {
  store_bfloat(df, v, y);
}
template <class DF>
HWY_INLINE void store_numbers(DF df, hn::VFromD<DF> v, HalfBits* y) {
  store_half(df, v, &y->bits);
}
HWY_INLINE float number(float x) {
  return x;
}
HWY_INLINE float number(uint16_t bits) {
  return to_float(bf16{bits});
}
HWY_INLINE float number(HalfBits x) {
  return to_float(f16{x.bits});
}
HWY_INLINE void store_number(float v, float* y) {
  *y = v;
}
HWY_INLINE void store_number(float v, uint16_t* y) {
  *y = to_bf16(v).bits;
}

// load_first and store_first (first_lanes-inl.h) of those that are narrow.
template <class DF, class T>
requires(sizeof(T) < sizeof(hn::TFromD<DF>)) HWY_INLINE hn::VFromD<DF> load_first(DF df, const T* x,
                                                                                  int64_t count) {
  T lanes[hn::MaxLanes(DF())] = {};
  std::memcpy(lanes, x, static_cast<size_t>(count) * sizeof(T));
  return load_numbers(df, lanes);
}
template <class DF, class T>
requires(sizeof(T) < sizeof(hn::TFromD<DF>)) HWY_INLINE
    void store_first(hn::VFromD<DF> v, DF df, T* y, int64_t count) {
  T lanes[hn::MaxLanes(DF())];
  store_numbers(df, v, lanes);
  std::memcpy(y, lanes, static_cast<size_t>(count) * sizeof(T));
}

// body(T()), where kernels read and write numbers of `dtype`, float32 or narrower, as T.
template <class Body>
HWY_INLINE void with_number_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBF16:
      return body(uint16_t());
    case DType::kF16:
      return body(HalfBits());
    default:
      return body(float());
  }
}

// One half at any address.
HWY_INLINE float load_f16(const void* x) {
  const uint16_t bits = load_bits(x);
  return hn::GetLane(load_half(hn::CappedTag<float, 1>(), &bits));
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_FLOAT16_INL_H_
