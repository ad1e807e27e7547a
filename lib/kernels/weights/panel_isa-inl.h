// What the instruction sets that panel_formats-inl.h is compiled for have in common, for the
// target being compiled.

#if defined(LUMEN_KERNELS_PANEL_ISA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_PANEL_ISA_INL_H_
#undef LUMEN_KERNELS_PANEL_ISA_INL_H_
#else
#define LUMEN_KERNELS_PANEL_ISA_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/piece-inl.h"
#include "lib/kernels/weights/iq4_values.h"
#include "lib/kernels/weights/mxfp4_values.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// All of Isa (panel_formats-inl.h, panel_sums-inl.h) but kMostRows, kMostCode, kSignedOffset and
// Sum, with vectors of at most kMostLanes words.
template <size_t kMostLanes>
struct PanelIsa {
  using FloatTag = hn::CappedTag<float, kMostLanes>;
  using IntTag = hn::RebindToSigned<FloatTag>;
  using ByteTag = hn::Repartition<uint8_t, FloatTag>;

  static constexpr int kLanes = hn::MaxLanes(FloatTag());
  using Floats = hn::VFromD<FloatTag>;
  using Ints = hn::VFromD<IntTag>;
  using Codes = hn::VFromD<ByteTag>;

  static LUMEN_PIECE Codes load(const uint8_t* p) { return hn::LoadU(ByteTag(), p); }
  static LUMEN_PIECE Codes mask(Codes v, uint8_t bits) {
    return hn::And(v, hn::Set(ByteTag(), bits));
  }
  static LUMEN_PIECE Codes join(Codes a, Codes b) { return hn::Or(a, b); }
  static LUMEN_PIECE Codes add_bytes(Codes v, int value) {
    return hn::Add(v, hn::Set(ByteTag(), static_cast<uint8_t>(value)));
  }
  static LUMEN_PIECE void store_bytes(Codes v, uint8_t* p) { hn::Store(v, ByteTag(), p); }
  static LUMEN_PIECE Ints words_of(Codes v) { return hn::BitCast(IntTag(), v); }
  static LUMEN_PIECE auto unsigned_words_of(Codes v) {
    return hn::BitCast(hn::RebindToUnsigned<IntTag>(), v);
  }
  template <int kBits>
  static LUMEN_PIECE Codes shift_left(Codes v) {
    return hn::BitCast(ByteTag(), hn::ShiftLeft<kBits>(words_of(v)));
  }
  template <int kBits>
  static LUMEN_PIECE Codes shift_right(Codes v) {
    return hn::BitCast(ByteTag(), hn::ShiftRight<kBits>(unsigned_words_of(v)));
  }
  static LUMEN_PIECE Codes upper_nibbles(Codes v) { return hn::ShiftRight<4>(v); }
  static LUMEN_PIECE Codes look_up(const int8_t* table, Codes v) {
    const auto sixteen = hn::LoadDup128(ByteTag(), reinterpret_cast<const uint8_t*>(table));
    return hn::TableLookupBytes(sixteen, v);
  }
  static LUMEN_PIECE Codes shift_right_by(Codes v, int bits) {
    return hn::BitCast(ByteTag(), hn::ShiftRightSame(unsigned_words_of(v), bits));
  }
  // No struct around it: GCC 12 copies one that holds a vector by way of memory.
  using Factor = Floats;
  template <int kOffset>
  static LUMEN_PIECE Factor factor(Floats d) {
    return d;
  }
  template <int kByte, int kOffset>
  static LUMEN_PIECE Floats byte(Codes v, Factor d) {
    auto byte = hn::And(hn::ShiftRight<8 * kByte>(words_of(v)), hn::Set(IntTag(), 255));
    if constexpr (kOffset != 0) byte = hn::Sub(byte, hn::Set(IntTag(), kOffset));
    return mul(to_float(byte), d);
  }
  static LUMEN_PIECE Floats halves(const uint8_t* p) {
    return load_half(FloatTag(), reinterpret_cast<const uint16_t*>(p));
  }
  static LUMEN_PIECE Floats mxfp4_scales(const uint8_t* p) {
    const auto v = hn::LoadU(hn::Rebind<uint8_t, FloatTag>(), p);
    const auto words = hn::PromoteTo(hn::RebindToUnsigned<IntTag>(), v);
    return hn::Mul(hn::BitCast(FloatTag(), hn::ShiftLeft<23>(words)), hn::Set(FloatTag(), 0.5f));
  }
  static LUMEN_PIECE Codes short_words(const uint8_t* p) {
    const auto v =
        hn::LoadU(hn::Rebind<uint16_t, FloatTag>(), reinterpret_cast<const uint16_t*>(p));
    return hn::BitCast(ByteTag(), hn::PromoteTo(hn::RebindToUnsigned<IntTag>(), v));
  }
  static LUMEN_PIECE Floats signed_bytes(const uint8_t* p) {
    const auto v = hn::LoadU(hn::Rebind<int8_t, FloatTag>(), reinterpret_cast<const int8_t*>(p));
    return to_float(hn::PromoteTo(IntTag(), v));
  }
  static LUMEN_PIECE Ints repeat_int(int32_t value) { return hn::Set(IntTag(), value); }
  static LUMEN_PIECE Floats set(float value) { return hn::Set(FloatTag(), value); }
  static LUMEN_PIECE Floats mul(Floats a, Floats b) { return hn::Mul(a, b); }
  static LUMEN_PIECE Floats fma(Floats a, Floats b, Floats c) { return hn::MulAdd(a, b, c); }
  static LUMEN_PIECE Floats to_float(Ints v) { return hn::ConvertTo(FloatTag(), v); }
  static LUMEN_PIECE void store(Floats v, float* p) { hn::StoreU(v, FloatTag(), p); }
};

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_PANEL_ISA_INL_H_
