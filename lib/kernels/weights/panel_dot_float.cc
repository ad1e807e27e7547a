#include <cstring>

#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/weights/panel_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/panel_dot_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/weights/short_panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::VFromD<Tag>;

// Element types of the weights: a panel holds kColumns columns together, and load(p, column) gives
// one of them for a vector of rows.
struct PanelF32 {
  using Storage = float;
  static constexpr int kColumns = 1;
  static HWY_INLINE Vector load(const float* p, int) { return hn::LoadU(Tag(), p); }
};
struct PanelF16 {
  using Storage = uint16_t;
  static constexpr int kColumns = 1;
  static HWY_INLINE Vector load(const uint16_t* p, int) { return load_half(Tag(), p); }
};
// Two columns in each word: the upper half of a word is the second.
struct PanelBF16 {
  using Storage = uint16_t;
  static constexpr int kColumns = 2;
  static HWY_INLINE Vector load(const uint16_t* p, int column) {
    const hn::RebindToUnsigned<Tag> d;
    return column_of(hn::BitCast(d, hn::LoadU(PairTag(), p)), column);
  }
  static HWY_INLINE Vector column_of(hn::VFromD<hn::RebindToUnsigned<Tag>> both, int column) {
    const hn::RebindToUnsigned<Tag> d;
    const auto bits = column == 0 ? hn::ShiftLeft<16>(both) : hn::And(both, hn::Set(d, 0xFFFF0000));
    return hn::BitCast(Tag(), bits);
  }
};

// Sums of one panel with kRows rows of x. Loops over them are unrolled to keep them in registers,
// see ../README.md.
template <class Type, int kRows>
struct FloatSums {
  static constexpr int kLanes = hn::MaxLanes(Tag());
  static constexpr int kParts = kPanelRows / kLanes;
  // Four chains of multiply-adds cover their latency (4 cycles, one a cycle): the columns of a step
  // go round the chains, what is left at the end of a row begins with the first again.
  static constexpr int kChains = kParts >= 4 ? 1 : 4 / kParts;
  static constexpr int kStep = kChains > Type::kColumns ? kChains : Type::kColumns;

  HWY_INLINE FloatSums() {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int chain = 0; chain < kChains; ++chain) {
        HWY_UNROLL(4)
        for (int part = 0; part < kParts; ++part) sum[r][chain][part] = hn::Zero(Tag());
      }
    }
  }

  // Adds kCount columns from the k-th on.
  template <int kCount>
  HWY_INLINE void add(const typename Type::Storage* p, const float* x, int64_t x_stride) {
    HWY_UNROLL(4)
    for (int i = 0; i < kCount; ++i) {
      constexpr int kTogether = Type::kColumns;
      HWY_UNROLL(4)
      for (int part = 0; part < kParts; ++part) {
        const auto* from = p + (i / kTogether * kPanelRows + part * kLanes) * kTogether;
        add_column(i, part, Type::load(from, i % kTogether), x, x_stride);
      }
    }
  }

  // Adds a group of scaled numbers of a short panel, without its patches.
  HWY_INLINE void add_group(const std::byte* group, const float* x, int64_t x_stride) {
    add_block<0>(group, x, x_stride);
    add_block<1>(group, x, x_stride);
  }

  // Its columns from 4 kBlock on, one after another, so that no more numbers of x are in registers.
  template <int kBlock>
  HWY_INLINE void add_block(const std::byte* group, const float* x, int64_t x_stride) {
    PairVector pairs[2][kParts];
    HWY_UNROLL(4)
    for (int part = 0; part < kParts; ++part) {
      unpack_block<kBlock>(group, part * 2 * kPairLanes, pairs[0][part], pairs[1][part]);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      HWY_UNROLL(4)
      for (int part = 0; part < kParts; ++part) {
        const auto both = hn::BitCast(hn::RebindToUnsigned<Tag>(), pairs[i / 2][part]);
        add_column(4 * kBlock + i, part, PanelBF16::column_of(both, i % 2), x, x_stride);
      }
    }
  }

  // Adds column i of a step, whose numbers of the part's rows are `v`.
  HWY_INLINE void add_column(int i, int part, Vector v, const float* x, int64_t x_stride) {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      auto& s = sum[r][i % kChains][part];
      s = hn::MulAdd(v, hn::Set(Tag(), x[r * x_stride + i]), s);
    }
  }

  HWY_INLINE void store(float (*out)[kPanelRows]) {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int part = 0; part < kParts; ++part) {
        auto total = sum[r][0][part];
        if constexpr (kChains == 2) total = hn::Add(total, sum[r][1][part]);
        if constexpr (kChains == 4) {
          total =
              hn::Add(hn::Add(total, sum[r][1][part]), hn::Add(sum[r][2][part], sum[r][3][part]));
        }
        hn::StoreU(total, Tag(), out[r] + part * kLanes);
      }
    }
  }

  Vector sum[kRows][kChains][kParts];
};

// Panels of a matrix: sum(index, x, x_stride, out) multiplies one with kRows rows of x.
template <class Type>
struct FloatPanels {
  const Weight& w;

  template <int kRows>
  void sum(int64_t index, const float* x, int64_t x_stride, float (*out)[kPanelRows]) const {
    using Storage = typename Type::Storage;
    using Sums = FloatSums<Type, kRows>;
    const auto* panel = static_cast<const Storage*>(w.data) + index * kPanelRows * w.cols;
    Sums sums;
    int64_t k = 0;
    for (; k + Sums::kStep <= w.cols; k += Sums::kStep) {
      const auto* p = panel + k * kPanelRows;
      for (size_t line = 0; line < Sums::kStep * kPanelRows * sizeof *p; line += 64) {
        fetch_panel_ahead<kRows>(reinterpret_cast<const char*>(p) + line);
      }
      sums.template add<Sums::kStep>(p, x + k, x_stride);
    }
    for (; k < w.cols; k += Type::kColumns) {
      sums.template add<Type::kColumns>(panel + k * kPanelRows, x + k, x_stride);
    }
    sums.store(out);
  }
};

// The same bits as bfloat16 panels give: the columns go round the same chains, and a power of two
// commutes with rounding (but where float32 ends).
struct ShortPanels {
  const Weight& w;

  template <int kRows>
  void sum(int64_t index, const float* x, int64_t x_stride, float (*out)[kPanelRows]) const {
    const ShortPanelParts parts(static_cast<const std::byte*>(w.data), w.rows, w.cols, index);
    __builtin_prefetch(parts.patches + short_panel_patch_bytes(w.cols));  // of the next panel
    ShortPatches patches(parts.patches, 0);
    int64_t patched = patches.place();
    using Sums = FloatSums<PanelBF16, kRows>;
    Sums sums;
    const std::byte* group = parts.groups;
    for (int64_t k = 0; k < w.cols; k += kGroupColumns, group += kGroupBytes) {
      for (int64_t line = 0; line < kGroupBytes; line += 64) fetch_panel_ahead<kRows>(group + line);
      if (HWY_LIKELY(patched >= (k + kGroupColumns) * kPanelRows)) {
        sums.add_group(group, x + k, x_stride);
        continue;
      }
      HWY_ALIGN uint16_t numbers[kGroupNumbers];
      unpack_group(group, numbers, [](PairVector scaled, int) HWY_ATTR { return scaled; });
      patches.apply<&ShortPatch::scaled>(k * kPanelRows, numbers);
      patched = patches.place();
      for (int64_t i = 0; i < kGroupColumns; i += Sums::kStep) {
        sums.template add<Sums::kStep>(numbers + i * kPanelRows, x + k + i, x_stride);
      }
    }
    sums.store(out);
    float scales[kPanelRows];
    std::memcpy(scales, parts.scales, sizeof scales);
    for (int r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < kPanelRows; ++j) out[r][j] *= scales[j];
    }
  }
};

template <class Panels>
void dot_panels_of(const Panels& panels, int64_t begin, int64_t end, const float* x,
                   int64_t x_stride, int64_t m, float* y, int64_t y_stride) {
  // As many rows of x as leave registers for the weights: 16 of 32 hold sums, or 8 of 16.
  constexpr int kMost = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;
  for (int64_t first = begin / kPanelRows * kPanelRows; first < end; first += kPanelRows) {
    const int64_t index = first / kPanelRows;
    const int64_t from = begin > first ? begin : first;
    const int64_t to = end < first + kPanelRows ? end : first + kPanelRows;
    for (int64_t row = 0, count; row < m; row += count) {
      HWY_ALIGN float out[kMost][kPanelRows];
      const float* rows = x + row * x_stride;
      count = m - row >= kMost ? kMost : 1;
      if (count == kMost) {
        panels.template sum<kMost>(index, rows, x_stride, out);
      } else {
        panels.template sum<1>(index, rows, x_stride, out);
      }
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = from; j < to; ++j) y[(row + r) * y_stride + j - begin] = out[r][j - first];
      }
    }
  }
}

void dot_panels_float_kernel(const Weight& w, int64_t begin, int64_t end, const float* x,
                             int64_t x_stride, int64_t m, float* y, int64_t y_stride) {
  const auto dot = [&](const auto& panels) {
    dot_panels_of(panels, begin, end, x, x_stride, m, y, y_stride);
  };
  if (w.layout == Layout::kShortPanels) return dot(ShortPanels{w});
  switch (w.dtype) {
    case DType::kF32:
      return dot(FloatPanels<PanelF32>{w});
    case DType::kF16:
      return dot(FloatPanels<PanelF16>{w});
    case DType::kBF16:
      return dot(FloatPanels<PanelBF16>{w});
    default:
      LUMEN_CHECK(!"a float weight in panels");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(dot_panels_float_kernel);
}  // namespace

void dot_panels_float(const Weight& w, int64_t begin, int64_t end, const float* x, int64_t x_stride,
                      int64_t m, float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(dot_panels_float_kernel)(w, begin, end, x, x_stride, m, y, y_stride);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
