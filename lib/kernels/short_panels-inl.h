// The parts of a short panel (short_panels.h) and its numbers in vectors, for the target being
// compiled.

#if defined(LUMEN_KERNELS_SHORT_PANELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_SHORT_PANELS_INL_H_
#undef LUMEN_KERNELS_SHORT_PANELS_INL_H_
#else
#define LUMEN_KERNELS_SHORT_PANELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/kernels/float16-inl.h"
#include "lib/kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Columns of a group, and its bytes.
inline constexpr int64_t kGroupColumns = 8;
inline constexpr int64_t kGroupNumbers = kGroupColumns * kPanelRows;
inline constexpr int64_t kGroupBytes = kGroupNumbers / 2 * 3;
// Numbers of a pair of columns: of the vectors below one lane each.
inline constexpr int kPairNumbers = 2 * kPanelRows;

// bfloat16's fields.
inline constexpr uint16_t kExponentBits = 0x7F80, kOtherBits = 0x807F;
inline constexpr uint16_t kKeptBits = 15 << 7;  // of an exponent less its base

struct ShortPatch {
  static constexpr uint32_t kEnd = UINT32_MAX;  // the place of what ends a list
  uint32_t place, bits;
};

// Where the parts of a panel stand in a matrix of `rows` rows.
template <class Byte>
struct ShortPanelParts {
  ShortPanelParts(Byte* matrix, int64_t rows, int64_t cols, int64_t index) {
    const int64_t panels = (rows + kPanelRows - 1) / kPanelRows, bytes = short_panel_bytes(cols);
    base = matrix + index * bytes;
    groups = base + kPairNumbers * sizeof(uint16_t);
    patches = matrix + panels * bytes + index * short_panel_patch_bytes(cols);
  }
  Byte *base, *groups, *patches;
};

// The patches of a panel, group by group.
class ShortPatches {
 public:
  // From number `first` of the panel on.
  ShortPatches(const std::byte* patches, int64_t first) : next_(patches) {
    while (place() < first) next_ += sizeof(ShortPatch);
  }

  // The place of the next one.
  int64_t place() const { return load().place; }

  // Puts those of a group, whose first number is number `first` of the panel, into its numbers.
  void apply(int64_t first, uint16_t* numbers) {
    for (ShortPatch patch; (patch = load()).place < first + kGroupNumbers;) {
      store_bits(static_cast<uint16_t>(patch.bits), numbers + (patch.place - first));
      next_ += sizeof(ShortPatch);
    }
  }

 private:
  ShortPatch load() const {
    ShortPatch patch;
    std::memcpy(&patch, next_, sizeof patch);
    return patch;
  }

  const std::byte* next_;
};

using PairTag = hn::CappedTag<uint16_t, kPairNumbers>;
using PairVector = hn::VFromD<PairTag>;
inline constexpr int kPairLanes = hn::MaxLanes(PairTag());

// The fields of a group and the numbers of the panel's rows from lane `lane` of a pair on.
HWY_INLINE PairVector load_pair(const void* numbers, int lane) {
  return hn::LoadU(PairTag(), static_cast<const uint16_t*>(numbers) + lane);
}

// kPair's exponents out of those of a group, at bit 7.
template <int kPair>
HWY_INLINE PairVector kept_exponents(PairVector exponents) {
  constexpr int kShift = 7 - 4 * kPair;
  if constexpr (kShift > 0) exponents = hn::ShiftLeft<kShift>(exponents);
  if constexpr (kShift < 0) exponents = hn::ShiftRight<-kShift>(exponents);
  return hn::And(exponents, hn::Set(PairTag(), kKeptBits));
}

// What a row keeps of an exponent, 0 of none and of zero, to the exponent.
HWY_INLINE PairVector whole_exponents(PairVector kept, PairVector base) {
  const PairTag d;
  return hn::IfThenElseZero(hn::Ne(kept, hn::Zero(d)), hn::Add(kept, base));
}

// The bfloat16 numbers of a pair of columns from lane `lane` on.
template <int kPair>
HWY_INLINE PairVector short_pair(const std::byte* group, int lane, PairVector exponents,
                                 PairVector base) {
  const PairTag d;
  const hn::RebindToSigned<PairTag> di;
  const auto* rest = reinterpret_cast<const int8_t*>(group) + kPairNumbers * sizeof(uint16_t) +
                     kPair * kPairNumbers + lane;
  const auto wide =
      hn::BitCast(d, hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, PairTag>(), rest)));
  const auto exponent = whole_exponents(kept_exponents<kPair>(exponents), base);
  return hn::OrAnd(exponent, wide, hn::Set(d, kOtherBits));
}

// All numbers of a group, but for patches.
HWY_INLINE void unpack_group(const std::byte* group, const std::byte* base, uint16_t* numbers) {
  const PairTag d;
  for (int lane = 0; lane < kPairNumbers; lane += kPairLanes) {
    const auto exponents = load_pair(group, lane), bases = load_pair(base, lane);
    uint16_t* to = numbers + lane;
    hn::StoreU(short_pair<0>(group, lane, exponents, bases), d, to);
    hn::StoreU(short_pair<1>(group, lane, exponents, bases), d, to + kPairNumbers);
    hn::StoreU(short_pair<2>(group, lane, exponents, bases), d, to + 2 * kPairNumbers);
    hn::StoreU(short_pair<3>(group, lane, exponents, bases), d, to + 3 * kPairNumbers);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_SHORT_PANELS_INL_H_
