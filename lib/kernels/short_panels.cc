#include "lib/kernels/short_panels.h"

#include <algorithm>
#include <cstring>

#include "lib/kernels/panels.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/short_panels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/float16-inl.h"
#include "lib/kernels/short_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Columns that are packed or unpacked at a time: their numbers stay in L1.
constexpr int64_t kPieceColumns = 256;
using Piece = uint16_t[kPieceColumns * kPanelRows];

using WordTag = hn::CappedTag<float, kPanelRows>;
constexpr int kWordLanes = hn::MaxLanes(WordTag());

// Two columns of a float16 panel as a pair of bfloat16; false if that is not exact.
HWY_INLINE bool narrow_pair(const uint16_t* halves, uint16_t* numbers) {
  const hn::RebindToUnsigned<WordTag> d;
  bool exact = true;
  for (int row = 0; row < kPanelRows; row += kWordLanes) {
    const auto first = hn::BitCast(d, load_half(WordTag(), halves + row));
    const auto second = hn::BitCast(d, load_half(WordTag(), halves + kPanelRows + row));
    const auto lost = hn::And(hn::Or(first, second), hn::Set(d, 0xFFFFu));
    exact &= hn::AllTrue(d, hn::Eq(lost, hn::Zero(d)));
    const auto both = hn::Or(hn::ShiftRight<16>(first), hn::And(second, hn::Set(d, 0xFFFF0000u)));
    hn::StoreU(hn::BitCast(PairTag(), both), PairTag(), numbers + 2 * row);
  }
  return exact;
}

HWY_INLINE void widen_pair(const uint16_t* numbers, uint16_t* halves) {
  const hn::RebindToUnsigned<WordTag> d;
  for (int row = 0; row < kPanelRows; row += kWordLanes) {
    const auto both = hn::BitCast(d, hn::LoadU(PairTag(), numbers + 2 * row));
    const auto second = hn::And(both, hn::Set(d, 0xFFFF0000u));
    store_half(WordTag(), hn::BitCast(WordTag(), hn::ShiftLeft<16>(both)), halves + row);
    store_half(WordTag(), hn::BitCast(WordTag(), second), halves + kPanelRows + row);
  }
}

// The base of a row with the largest exponent `largest`, both at bit 7.
uint16_t base_of(uint16_t largest) {
  return static_cast<uint16_t>(std::max(0, largest - kKeptBits));
}

// The largest exponent of a row of 16-bit floats.
uint16_t largest_exponent(DType dtype, const std::byte* row, int64_t cols) {
  const hn::ScalableTag<uint16_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* x = reinterpret_cast<const uint16_t*>(row);
  auto magnitudes = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    magnitudes = hn::Max(magnitudes, hn::And(hn::LoadU(d, x + i), hn::Set(d, 0x7FFF)));
  }
  uint16_t each[hn::MaxLanes(d)];
  hn::StoreU(magnitudes, d, each);
  uint16_t largest = *std::max_element(each, each + lanes);
  for (; i < cols; ++i) {
    largest = std::max(largest, static_cast<uint16_t>(load_bits(x + i) & 0x7FFF));
  }
  if (dtype == DType::kF16) {
    const float value = load_f16(&largest);
    std::memcpy(&largest, reinterpret_cast<const std::byte*>(&value) + 2, sizeof largest);
  }
  return largest & kExponentBits;
}

// Packs what is of pair kPair from lane `lane` on; false if an exponent is not kept.
template <int kPair>
HWY_INLINE bool pack_pair(const uint16_t* numbers, int lane, PairVector base, PairVector& exponents,
                          std::byte* group) {
  const PairTag d;
  constexpr int kShift = 7 - 4 * kPair;
  const auto bits = hn::LoadU(d, numbers + kPair * kPairNumbers + lane);
  const auto exponent = hn::And(bits, hn::Set(d, kExponentBits));
  const auto above = hn::And(hn::Sub(exponent, base), hn::Set(d, kKeptBits));
  const auto kept = hn::IfThenElseZero(hn::Ne(exponent, hn::Zero(d)), above);
  if constexpr (kShift > 0) exponents = hn::Or(exponents, hn::ShiftRight<kShift>(kept));
  if constexpr (kShift < 0) exponents = hn::Or(exponents, hn::ShiftLeft<-kShift>(kept));
  const auto sign = hn::ShiftRight<8>(hn::And(bits, hn::Set(d, 0x8000)));
  const auto rest = hn::Or(sign, hn::And(bits, hn::Set(d, 0x7F)));
  const hn::Rebind<uint8_t, PairTag> d8;
  auto* to = reinterpret_cast<uint8_t*>(group) + kPairNumbers * sizeof(uint16_t);
  hn::StoreU(hn::TruncateTo(d8, rest), d8, to + kPair * kPairNumbers + lane);
  return hn::AllTrue(d, hn::Eq(whole_exponents(kept, base), exponent));
}

// False if the group needs patches.
HWY_INLINE bool pack_group(const uint16_t* numbers, const uint16_t* base, std::byte* group) {
  const PairTag d;
  bool kept = true;
  for (int lane = 0; lane < kPairNumbers; lane += kPairLanes) {
    const auto bases = hn::LoadU(d, base + lane);
    auto exponents = hn::Zero(d);
    kept &= pack_pair<0>(numbers, lane, bases, exponents, group);
    kept &= pack_pair<1>(numbers, lane, bases, exponents, group);
    kept &= pack_pair<2>(numbers, lane, bases, exponents, group);
    kept &= pack_pair<3>(numbers, lane, bases, exponents, group);
    hn::StoreU(exponents, d, reinterpret_cast<uint16_t*>(group) + lane);
  }
  return kept;
}

// Takes patches down, one after another.
class PatchWriter {
 public:
  PatchWriter(std::byte* patches, int64_t bytes)
      : next_(patches), end_(patches + bytes - sizeof(ShortPatch)) {}

  // Those of a group whose first number is number `first` of the panel; false if too many.
  bool add_group(const uint16_t* numbers, const uint16_t* base, int64_t first) {
    for (int i = 0; i < kGroupNumbers; ++i) {
      const int exponent = numbers[i] & kExponentBits, above = exponent - base[i % kPairNumbers];
      if (exponent == 0 || (above > 0 && above <= kKeptBits)) continue;
      if (next_ == end_) return false;
      put({static_cast<uint32_t>(first + i), numbers[i]});
    }
    return true;
  }
  void finish() { put({ShortPatch::kEnd, 0}); }

 private:
  void put(const ShortPatch& patch) {
    std::memcpy(next_, &patch, sizeof patch);
    next_ += sizeof patch;
  }

  std::byte *next_, *end_;
};

bool pack_short_panel_kernel(const Weight& w, int64_t index, std::byte* matrix) {
  const ShortPanelParts parts(matrix, w.rows, w.cols, index);
  const int64_t first = index * kPanelRows, rows = std::min(kPanelRows, w.rows - first);
  const int64_t stride = row_bytes(w.dtype, w.cols);
  const auto* from = static_cast<const std::byte*>(w.data) + first * stride;
  uint16_t base[kPairNumbers] = {};
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t largest = largest_exponent(w.dtype, from + row * stride, w.cols);
    base[2 * row] = base[2 * row + 1] = base_of(largest);
  }
  std::memcpy(parts.base, base, sizeof base);
  PatchWriter patches(parts.patches, short_panel_patch_bytes(w.cols));
  std::byte* group = parts.groups;
  for (int64_t k = 0; k < w.cols; k += kPieceColumns) {
    HWY_ALIGN Piece stored, narrowed;
    const int64_t cols = std::min(kPieceColumns, w.cols - k);
    pack_panel(w, index, k, cols, reinterpret_cast<std::byte*>(stored));
    if (w.dtype == DType::kF16) {
      for (int64_t i = 0; i < cols * kPanelRows; i += kPairNumbers) {
        if (!narrow_pair(stored + i, narrowed + i)) return false;
      }
    }
    const uint16_t* numbers = w.dtype == DType::kF16 ? narrowed : stored;
    for (int64_t i = 0; i < cols * kPanelRows; i += kGroupNumbers, group += kGroupBytes) {
      if (pack_group(numbers + i, base, group)) continue;
      if (!patches.add_group(numbers + i, base, k * kPanelRows + i)) return false;
    }
  }
  patches.finish();
  return true;
}

void unpack_short_panel_kernel(const Weight& w, int64_t index, int64_t k, int64_t cols,
                               std::byte* panel) {
  const ShortPanelParts parts(static_cast<const std::byte*>(w.data), w.rows, w.cols, index);
  ShortPatches patches(parts.patches, k * kPanelRows);
  const std::byte* group = parts.groups + k / kGroupColumns * kGroupBytes;
  for (int64_t at = k; at < k + cols; at += kGroupColumns, group += kGroupBytes) {
    auto* const to = reinterpret_cast<uint16_t*>(panel) + (at - k) * kPanelRows;
    if (w.dtype == DType::kBF16) {
      unpack_group(group, parts.base, to);
      patches.apply(at * kPanelRows, to);
      continue;
    }
    HWY_ALIGN uint16_t numbers[kGroupNumbers];
    unpack_group(group, parts.base, numbers);
    patches.apply(at * kPanelRows, numbers);
    for (int i = 0; i < kGroupNumbers; i += kPairNumbers) widen_pair(numbers + i, to + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(pack_short_panel_kernel);
HWY_EXPORT(unpack_short_panel_kernel);
}  // namespace

bool has_short_panels(DType dtype, int64_t cols) {
  return (dtype == DType::kF16 || dtype == DType::kBF16) && cols > 0 && cols % 8 == 0 &&
         matrix_bytes(Layout::kShortPanels, dtype, kPanelRows, cols) <
             matrix_bytes(Layout::kPanels, dtype, kPanelRows, cols);
}

bool pack_short_panel(const Weight& w, int64_t index, std::byte* matrix) {
  return HWY_DYNAMIC_DISPATCH(pack_short_panel_kernel)(w, index, matrix);
}

void unpack_short_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, std::byte* panel) {
  HWY_DYNAMIC_DISPATCH(unpack_short_panel_kernel)(w, index, k, cols, panel);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
