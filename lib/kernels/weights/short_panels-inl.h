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

#include "lib/kernels/matmul.h"
#include "lib/kernels/simd/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Columns of a group and its bytes: upper ones, then two blocks of lower ones.
inline constexpr int64_t kGroupColumns = 8;
inline constexpr int64_t kGroupNumbers = kGroupColumns * kPanelRows;
inline constexpr int64_t kBlockBytes = kGroupNumbers / 2;
inline constexpr int64_t kGroupBytes = 3 * kBlockBytes;
static_assert(short_panel_bytes(kGroupColumns) - short_panel_bytes(0) == kGroupBytes);
inline constexpr int kPairNumbers = 2 * kPanelRows;  // of two columns

// h counts from here: 2 · (kLeastUpper + 7) + 1 is the exponent of numbers in [1, 2).
inline constexpr int kLeastUpper = 56;

struct ShortPatch {
  static constexpr uint32_t kEnd = UINT32_MAX;  // the place of what ends a list
  uint32_t place;
  uint16_t bits, scaled;
};
static_assert(short_panel_patch_bytes(2048) >= 129 * int64_t{sizeof(ShortPatch)});

// Where the parts of a panel stand in a matrix of `rows` rows.
template <class Byte>
struct ShortPanelParts {
  ShortPanelParts(Byte* matrix, int64_t rows, int64_t cols, int64_t index) {
    const int64_t panels = (rows + kPanelRows - 1) / kPanelRows, bytes = short_panel_bytes(cols);
    scales = matrix + index * bytes;
    groups = scales + kPanelRows * sizeof(float);
    patches = matrix + panels * bytes + index * short_panel_patch_bytes(cols);
  }
  Byte *scales, *groups, *patches;
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

  // Puts member `kBits` of those of a group, whose first number is number `first` of the panel,
  // into its numbers.
  template <uint16_t ShortPatch::*kBits>
  void apply(int64_t first, uint16_t* numbers) {
    for (ShortPatch patch; (patch = load()).place < first + kGroupNumbers;) {
      store_bits(patch.*kBits, numbers + (patch.place - first));
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

// A vector holds two columns of some rows, or four columns of them as bytes.
using ByteTag = hn::CappedTag<uint8_t, kBlockBytes>;
using ByteVector = hn::VFromD<ByteTag>;
using PairTag = hn::Repartition<uint16_t, ByteTag>;
using PairVector = hn::VFromD<PairTag>;
inline constexpr int kPairLanes = hn::MaxLanes(PairTag());

HWY_INLINE ByteVector load_bytes(const std::byte* group, int64_t at) {
  return hn::LoadU(ByteTag(), reinterpret_cast<const uint8_t*>(group) + at);
}

// Sign and upper seven bits of the exponent for each 8 sign + h.
HWY_INLINE ByteVector upper_bytes(ByteVector codes) {
  constexpr uint8_t kFirst = kLeastUpper, kSign = 128;
  // clang-format off
  alignas(16) static constexpr uint8_t kTable[16] = {
      0, kFirst + 1, kFirst + 2, kFirst + 3, kFirst + 4, kFirst + 5, kFirst + 6, kFirst + 7,
      kSign, kSign + kFirst + 1, kSign + kFirst + 2, kSign + kFirst + 3,
      kSign + kFirst + 4, kSign + kFirst + 5, kSign + kFirst + 6, kSign + kFirst + 7};
  // clang-format on
  return hn::TableLookupBytes(hn::LoadDup128(ByteTag(), kTable), codes);
}

// The scaled numbers of pairs 2 kBlock and 2 kBlock + 1 of a group, of the rows of byte `at` of its
// upper bytes and on.
template <int kBlock>
HWY_INLINE void unpack_block(const std::byte* group, int64_t at, PairVector& first,
                             PairVector& second) {
  const ByteTag d;
  const PairTag d16;
  const auto both = load_bytes(group, at);
  const auto codes = kBlock == 0 ? hn::And(both, hn::Set(d, 15)) : hn::ShiftRight<4>(both);
  const auto upper = upper_bytes(codes);
  const auto lower = load_bytes(group, (1 + kBlock) * kBlockBytes + at);
  first = hn::BitCast(d16, hn::InterleaveLower(d, lower, upper));
  second = hn::BitCast(d16, hn::InterleaveUpper(d, lower, upper));
}

// All numbers of a group, but for patches: finish(scaled, lane) of every vector of scaled ones,
// which begins at lane `lane` of its pair.
template <class Finish>
HWY_INLINE void unpack_group(const std::byte* group, uint16_t* numbers, const Finish& finish) {
  const PairTag d;
  for (int lane = 0; lane < kPairNumbers; lane += kPairLanes, numbers += kPairLanes) {
    PairVector first, second;
    unpack_block<0>(group, 2 * lane, first, second);
    hn::StoreU(finish(first, lane), d, numbers);
    hn::StoreU(finish(second, lane), d, numbers + kPairNumbers);
    unpack_block<1>(group, 2 * lane, first, second);
    hn::StoreU(finish(first, lane), d, numbers + 2 * kPairNumbers);
    hn::StoreU(finish(second, lane), d, numbers + 3 * kPairNumbers);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_SHORT_PANELS_INL_H_
