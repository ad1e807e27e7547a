#include "lib/kernels/short_panels.h"

#include <algorithm>
#include <cstring>

#include "lib/kernels/panels.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/short_panels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/weights/short_panels-inl.h"

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

// The largest magnitude in a row of 16-bit floats, as bfloat16 bits.
uint16_t largest_magnitude(DType dtype, const std::byte* row, int64_t cols) {
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
  return largest;
}

// bfloat16's bits of an exponent alone, which are a power of two.
constexpr uint16_t kExponent = 255 << 7, kOne = 127 << 7;

// Numbers of some rows and two columns taken apart; `lost` is not 0 where one needs a patch.
struct SplitPair {
  PairVector lower, codes, lost;
};

HWY_INLINE SplitPair split(const uint16_t* numbers, PairVector shift) {
  const PairTag d;
  const auto bits = hn::LoadU(d, numbers);
  const auto scaled = hn::Sub(bits, shift);
  const auto is_zero = hn::Eq(hn::And(bits, hn::Set(d, 0x7FFF)), hn::Zero(d));
  // h, beyond 7 or negative where it has no place.
  const auto upper = hn::And(hn::ShiftRight<8>(scaled), hn::Set(d, 0x7F));
  const auto h = hn::IfThenZeroElse(is_zero, hn::Sub(upper, hn::Set(d, kLeastUpper)));
  const auto sign = hn::And(hn::ShiftRight<12>(bits), hn::Set(d, 8));
  const auto none = hn::VecFromMask(d, hn::Eq(h, hn::Zero(d)));
  return {.lower = hn::IfThenZeroElse(is_zero, hn::And(scaled, hn::Set(d, 255))),
          .codes = hn::Or(hn::And(h, hn::Set(d, 7)), sign),
          .lost = hn::Or(hn::AndNot(hn::Set(d, 7), h), hn::IfThenZeroElse(is_zero, none))};
}

// In each 128 bits the bytes that the numbers of `first` are, then those of `second`.
HWY_INLINE void store_bytes(PairVector first, PairVector second, std::byte* to) {
  alignas(16) static constexpr uint8_t kOrder[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                     1, 3, 5, 7, 9, 11, 13, 15};
  const ByteTag d;
  const auto mixed = hn::BitCast(d, hn::Or(first, hn::ShiftLeft<8>(second)));
  const auto bytes = hn::TableLookupBytes(mixed, hn::LoadDup128(d, kOrder));
  hn::StoreU(bytes, d, reinterpret_cast<uint8_t*>(to));
}

// False if the group needs patches.
HWY_INLINE bool pack_group(const uint16_t* numbers, const uint16_t* shifts, std::byte* group) {
  const PairTag d;
  bool kept = true;
  for (int lane = 0; lane < kPairNumbers; lane += kPairLanes) {
    const auto shift = hn::LoadU(d, shifts + lane);
    const uint16_t* from = numbers + lane;
    const SplitPair pair[4] = {split(from, shift), split(from + kPairNumbers, shift),
                               split(from + 2 * kPairNumbers, shift),
                               split(from + 3 * kPairNumbers, shift)};
    std::byte* to = group + 2 * lane;
    store_bytes(hn::Or(pair[0].codes, hn::ShiftLeft<4>(pair[2].codes)),
                hn::Or(pair[1].codes, hn::ShiftLeft<4>(pair[3].codes)), to);
    store_bytes(pair[0].lower, pair[1].lower, to + kBlockBytes);
    store_bytes(pair[2].lower, pair[3].lower, to + 2 * kBlockBytes);
    const auto lost =
        hn::Or(hn::Or(pair[0].lost, pair[1].lost), hn::Or(pair[2].lost, pair[3].lost));
    kept &= hn::AllTrue(d, hn::Eq(lost, hn::Zero(d)));
  }
  return kept;
}

// Takes patches down, one after another.
class PatchWriter {
 public:
  PatchWriter(std::byte* patches, int64_t bytes)
      : next_(patches), end_(patches + bytes - sizeof(ShortPatch)) {}

  // Those of a group whose first number is number `first` of the panel; false if there are too many
  // or one cannot be scaled.
  bool add_group(const uint16_t* numbers, const uint16_t* shifts, int64_t first) {
    for (int i = 0; i < kGroupNumbers; ++i) {
      const uint16_t bits = numbers[i];
      const int magnitude = bits & 0x7FFF, shift = static_cast<int16_t>(shifts[i % kPairNumbers]);
      if (magnitude == 0 || (magnitude - shift) >> 8 > kLeastUpper) continue;
      const float factor = to_float(bf16{static_cast<uint16_t>(kOne - shift)});
      const float value = to_float(bf16{bits});
      const bf16 scaled = to_bf16(value * factor);
      if (to_float(scaled) / factor != value || next_ == end_) return false;
      put({static_cast<uint32_t>(first + i), bits, scaled.bits});
    }
    return true;
  }
  void finish() { put({ShortPatch::kEnd, 0, 0}); }

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
  // What the exponents of a row, twice each, are more than those of its scaled numbers.
  uint16_t shifts[kPairNumbers] = {};
  float scales[kPanelRows];
  std::fill_n(scales, kPanelRows, 1.0f);
  for (int64_t row = 0; row < rows; ++row) {
    const uint16_t largest = largest_magnitude(w.dtype, from + row * stride, w.cols) & kExponent;
    if (largest == kExponent) return false;
    if (largest == 0) continue;
    shifts[2 * row] = shifts[2 * row + 1] = static_cast<uint16_t>(largest - kOne);
    scales[row] = to_float(bf16{largest});
  }
  std::memcpy(parts.scales, scales, sizeof scales);
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
      if (pack_group(numbers + i, shifts, group)) continue;
      if (!patches.add_group(numbers + i, shifts, k * kPanelRows + i)) return false;
    }
  }
  patches.finish();
  return true;
}

// Numbers of the rows from lane `lane` of a pair on from scaled ones.
HWY_INLINE PairVector unscale(PairVector scaled, const std::byte* scales, int lane) {
  const PairTag d;
  const hn::Repartition<uint32_t, PairTag> d32;
  const auto scale = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(scales) + lane / 2);
  const auto twice = hn::BitCast(d, hn::Or(scale, hn::ShiftRight<16>(scale)));
  const auto is_zero = hn::Eq(hn::And(scaled, hn::Set(d, kExponent)), hn::Zero(d));
  const auto shift = hn::Sub(twice, hn::Set(d, kOne));
  return hn::Add(scaled, hn::IfThenZeroElse(is_zero, shift));
}

template <DType kType>
void unpack(const Weight& w, int64_t index, int64_t k, int64_t cols, std::byte* panel) {
  const ShortPanelParts parts(static_cast<const std::byte*>(w.data), w.rows, w.cols, index);
  const auto finish = [&parts](PairVector scaled, int lane)
                          HWY_ATTR { return unscale(scaled, parts.scales, lane); };
  ShortPatches patches(parts.patches, k * kPanelRows);
  const std::byte* group = parts.groups + k / kGroupColumns * kGroupBytes;
  for (int64_t at = k; at < k + cols; at += kGroupColumns, group += kGroupBytes) {
    HWY_ALIGN uint16_t narrow[kGroupNumbers];
    auto* const to = reinterpret_cast<uint16_t*>(panel) + (at - k) * kPanelRows;
    uint16_t* const numbers = kType == DType::kBF16 ? to : narrow;
    unpack_group(group, numbers, finish);
    patches.apply<&ShortPatch::bits>(at * kPanelRows, numbers);
    if constexpr (kType == DType::kF16) {
      for (int i = 0; i < kGroupNumbers; i += kPairNumbers) widen_pair(numbers + i, to + i);
    }
  }
}

void unpack_short_panel_kernel(const Weight& w, int64_t index, int64_t k, int64_t cols,
                               std::byte* panel) {
  w.dtype == DType::kF16 ? unpack<DType::kF16>(w, index, k, cols, panel)
                         : unpack<DType::kBF16>(w, index, k, cols, panel);
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

bool fast_short_panels() {
  return uses_avx2();
}

bool pack_short_panel(const Weight& w, int64_t index, std::byte* matrix) {
  return HWY_DYNAMIC_DISPATCH(pack_short_panel_kernel)(w, index, matrix);
}

void unpack_short_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, std::byte* panel) {
  HWY_DYNAMIC_DISPATCH(unpack_short_panel_kernel)(w, index, k, cols, panel);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
