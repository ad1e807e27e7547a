// Vectors of float32 as the numbers of bfloat16 panels (bf16_panels.h), included by kernel files
// once per Highway target: one part, or a second one with what rounding left.
#if defined(LUMEN_KERNELS_BF16_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_BF16_PARTS_INL_H_
#undef LUMEN_KERNELS_BF16_PARTS_INL_H_
#else
#define LUMEN_KERNELS_BF16_PARTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using PartsFloat = hn::ScalableTag<float>;
using PartsVector = hn::Vec<PartsFloat>;
using PartsBits = hn::RebindToUnsigned<PartsFloat>;

// The bits of x rounded to bfloat16 (nearest), in the upper halves; anything below. A NaN stays
// one.
HWY_INLINE hn::Vec<PartsBits> round_part(PartsVector x) {
  const PartsBits d;
  return hn::Add(hn::BitCast(d, x), hn::Set(d, 0x8000u));
}
HWY_INLINE hn::Vec<PartsBits> upper_half(hn::Vec<PartsBits> bits) {
  return hn::And(bits, hn::Set(PartsBits(), 0xFFFF0000u));
}
// What rounding to `bits` left of x, rounded likewise.
HWY_INLINE hn::Vec<PartsBits> round_rest(PartsVector x, hn::Vec<PartsBits> bits) {
  return round_part(hn::Sub(x, hn::BitCast(PartsFloat(), upper_half(bits))));
}
// Lanes of two numbers, `first` below: depths 2i and 2i + 1 of some rows of PanelOrder::kPairs.
HWY_INLINE void store_pair(hn::Vec<PartsBits> first, hn::Vec<PartsBits> second, uint16_t* to) {
  const PartsBits d;
  hn::StoreU(hn::Or(hn::ShiftRight<16>(first), upper_half(second)), d,
             reinterpret_cast<uint32_t*>(to));
}
// One behind the other: depths of one row of PanelOrder::kRows.
HWY_INLINE void store_row(hn::Vec<PartsBits> first, hn::Vec<PartsBits> second, uint16_t* to) {
  const hn::Repartition<uint16_t, PartsBits> d;
  hn::StoreU(hn::ConcatOdd(d, hn::BitCast(d, second), hn::BitCast(d, first)), d, to);
}

// Both of float32 numbers, number `at` of `high` on, with what rounding left in `low` if there are
// two parts.
template <bool kTwoParts>
HWY_INLINE void store_pair_of(PartsVector first, PartsVector second, uint16_t* high, uint16_t* low,
                              int64_t at) {
  const auto bits0 = round_part(first), bits1 = round_part(second);
  store_pair(bits0, bits1, high + at);
  if constexpr (kTwoParts)
    store_pair(round_rest(first, bits0), round_rest(second, bits1), low + at);
}
template <bool kTwoParts>
HWY_INLINE void store_row_of(PartsVector first, PartsVector second, uint16_t* high, uint16_t* low,
                             int64_t at) {
  const auto bits0 = round_part(first), bits1 = round_part(second);
  store_row(bits0, bits1, high + at);
  if constexpr (kTwoParts) store_row(round_rest(first, bits0), round_rest(second, bits1), low + at);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
