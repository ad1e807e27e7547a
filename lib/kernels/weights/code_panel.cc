#include "lib/kernels/weights/code_panel.h"

#include <algorithm>
#include <cstring>

#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/weights/panel_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/code_panel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/piece-inl.h"
#include "lib/kernels/weights/quant_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Whole vectors of at most sixteen words; a vector of n words holds four words each of n / 4 rows
// before, and one word each of n rows after a transposition.
using Words = hn::CappedTag<uint32_t, kPanelRows>;
using WordVector = hn::VFromD<Words>;

// Sixteen bytes at p and, further up, at p + step, p + 2 · step … as far as a vector holds them.
template <class D>
HWY_INLINE hn::VFromD<D> load_quarters(D d, const uint8_t* p, int64_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::BitCast(d, hn::LoadU(hn::CappedTag<uint8_t, 16>(), p));
  } else {
    const hn::Half<D> half;
    constexpr int64_t kQuarters = hn::MaxLanes(half) / 4;
    return hn::Combine(d, load_quarters(half, p + kQuarters * step, step),
                       load_quarters(half, p, step));
  }
}

// Transposes four words each of sixteen rows, `stride` bytes apart: store(c, at, v) gets word c of
// rows `at` onwards.
template <class Store>
LUMEN_PIECE void transpose_words(const uint8_t* x, int64_t stride, const Store& store) {
  const Words d;
  const hn::Repartition<uint64_t, Words> d64;
  constexpr int kLanes = hn::MaxLanes(d);
  for (int at = 0; at < kPanelRows; at += kLanes) {
    const uint8_t* p = x + at * stride;
    const auto r0 = load_quarters(d, p, 4 * stride);
    const auto r1 = load_quarters(d, p + stride, 4 * stride);
    const auto r2 = load_quarters(d, p + 2 * stride, 4 * stride);
    const auto r3 = load_quarters(d, p + 3 * stride, 4 * stride);
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    store(0, at, hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)));
    store(1, at, hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)));
    store(2, at, hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)));
    store(3, at, hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)));
  }
}

// Sixteen rows of `cols` codes, `stride` apart, into a panel's order.
LUMEN_PIECE void transpose_codes(const uint8_t* q, int64_t stride, int cols, int added,
                                 uint8_t* codes) {
  const hn::Repartition<uint8_t, Words> d8;
  const auto add = hn::Set(d8, static_cast<uint8_t>(added));
  for (int k = 0; k < cols; k += 16) {
    transpose_words(q + k, stride, [&](int c, int at, WordVector v) HWY_ATTR {
      hn::Store(hn::Add(hn::BitCast(d8, v), add), d8, codes + 16 * k + 64 * c + 4 * at);
    });
  }
}

// [16][subs] floats to [subs][16].
LUMEN_PIECE void transpose_scales(const float* x, int subs, float* to) {
  const hn::RebindToFloat<Words> df;
  for (int s = 0; s < subs; s += 4) {
    transpose_words(reinterpret_cast<const uint8_t*>(x + s), subs * int64_t{sizeof(float)},
                    [&](int c, int at, WordVector v)
                        HWY_ATTR { hn::Store(hn::BitCast(df, v), df, to + 16 * (s + c) + at); });
  }
}

// One block of sixteen rows, `stride` bytes apart, of which `rows` exist.
template <class Format>
HWY_INLINE void expand_block(const uint8_t* p, int64_t stride, int64_t rows, int added,
                             uint8_t* codes, float* scale, float* min) {
  constexpr int kBlock = kBlockOf<Format>, kSubs = kBlock / Format::kSub;
  if constexpr (Format::kType == DType::kQ8_0) {
    if (rows == kPanelRows) {
      transpose_codes(p + 2, stride, kBlock, added, codes);
      for (int j = 0; j < kPanelRows; ++j) scale[j] = load_f16(p + j * stride);
      return;
    }
  }
  HWY_ALIGN int8_t q[kPanelRows * kBlock];
  HWY_ALIGN float scales[kPanelRows * kSubs], mins[kPanelRows * kSubs];
  for (int64_t j = 0; j < rows; ++j) {
    Format::unpack(p + j * stride, q + j * kBlock, scales + j * kSubs, mins + j * kSubs);
  }
  if (rows < kPanelRows) {
    std::memset(q + rows * kBlock, 0, (kPanelRows - rows) * kBlock);
    std::memset(scales + rows * kSubs, 0, (kPanelRows - rows) * kSubs * sizeof(float));
    std::memset(mins + rows * kSubs, 0, (kPanelRows - rows) * kSubs * sizeof(float));
  }
  transpose_codes(reinterpret_cast<const uint8_t*>(q), kBlock, kBlock, added, codes);
  if constexpr (kSubs == 1) {
    std::memcpy(scale, scales, sizeof scales);
    if constexpr (Format::kHasMin) std::memcpy(min, mins, sizeof mins);
  } else {
    transpose_scales(scales, kSubs, scale);
    if constexpr (Format::kHasMin) transpose_scales(mins, kSubs, min);
  }
}

template <class Format>
void expand_codes_of(const Weight& w, int64_t row, int64_t rows, int64_t k, int64_t cols, int added,
                     const CodePanel& to) {
  constexpr CodeForm kForm = code_form(Format::kType);
  static_assert(kForm.sub == Format::kSub && kForm.has_min == Format::kHasMin);
  constexpr int kBlock = kBlockOf<Format>;
  const int64_t stride = row_bytes(Format::kType, w.cols);
  const uint8_t* p =
      static_cast<const uint8_t*>(w.data) + row * stride + row_bytes(Format::kType, k);
  for (int64_t at = 0; at < cols; at += kBlock, p += kBytesOf<Format>) {
    expand_block<Format>(p, stride, rows, added, to.codes + kPanelRows * at,
                         to.scale + kPanelRows * at / Format::kSub,
                         kForm.has_min ? to.min + kPanelRows * at / Format::kSub : nullptr);
  }
}

void expand_codes_kernel(const Weight& w, int64_t row, int64_t rows, int64_t k, int64_t cols,
                         int added, const CodePanel& to) {
  with_format(w.dtype, [&](auto format) HWY_ATTR {
    expand_codes_of<decltype(format)>(w, row, rows, k, cols, added, to);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(expand_codes_kernel);
}  // namespace

void expand_codes(const Weight& w, int64_t row, int64_t rows, int64_t k, int64_t cols, int added,
                  const CodePanel& to) {
  if (w.layout == Layout::kPanels) {
    LUMEN_CHECK(row % kPanelRows == 0);
    if (rows > 0) return expand_panel(w, row / kPanelRows, k, cols, added, to);
    // The panel would begin where the matrix ends.
    const CodeForm form = code_form(w.dtype);
    const int64_t scales = cols / form.sub * kPanelRows;
    std::memset(to.codes, 0, cols * kPanelRows);
    std::fill_n(to.scale, scales, 0.0f);
    if (form.has_min) std::fill_n(to.min, scales, 0.0f);
    return;
  }
  HWY_DYNAMIC_DISPATCH(expand_codes_kernel)(w, row, rows, k, cols, added, to);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
