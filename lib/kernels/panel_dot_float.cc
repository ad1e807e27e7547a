#include "lib/kernels/panel_dot.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/panel_dot_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/float16-inl.h"

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
    const auto both = hn::BitCast(d, hn::LoadU(hn::Repartition<uint16_t, Tag>(), p));
    const auto bits = column == 0 ? hn::ShiftLeft<16>(both) : hn::And(both, hn::Set(d, 0xFFFF0000));
    return hn::BitCast(Tag(), bits);
  }
};

// Sums of one panel with kRows rows of x. Loops over them are unrolled to keep them in registers,
// see README.md.
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
        const auto v = Type::load(from, i % kTogether);
        HWY_UNROLL(4)
        for (int r = 0; r < kRows; ++r) {
          auto& s = sum[r][i % kChains][part];
          s = hn::MulAdd(v, hn::Set(Tag(), x[r * x_stride + i]), s);
        }
      }
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

template <class Type, int kRows>
void sum_float_panel(const typename Type::Storage* panel, const float* x, int64_t x_stride,
                     int64_t cols, float (*out)[kPanelRows]) {
  using Sums = FloatSums<Type, kRows>;
  Sums sums;
  int64_t k = 0;
  for (; k + Sums::kStep <= cols; k += Sums::kStep) {
    const auto* p = panel + k * kPanelRows;
    for (size_t line = 0; line < Sums::kStep * kPanelRows * sizeof *p; line += 64) {
      fetch_panel_ahead(reinterpret_cast<const char*>(p) + line);
    }
    sums.template add<Sums::kStep>(p, x + k, x_stride);
  }
  for (; k < cols; k += Type::kColumns) {
    sums.template add<Type::kColumns>(panel + k * kPanelRows, x + k, x_stride);
  }
  sums.store(out);
}

template <class Type>
void dot_float_panels(const Weight& w, int64_t begin, int64_t end, const float* x, int64_t x_stride,
                      int64_t m, float* y, int64_t y_stride) {
  // As many rows of x as leave registers for the weights: 16 of 32 hold sums, or 8 of 16.
  constexpr int kMost = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;
  for (int64_t first = begin / kPanelRows * kPanelRows; first < end; first += kPanelRows) {
    const auto* panel = static_cast<const typename Type::Storage*>(w.data) + first * w.cols;
    const int64_t from = begin > first ? begin : first;
    const int64_t to = end < first + kPanelRows ? end : first + kPanelRows;
    for (int64_t row = 0, count; row < m; row += count) {
      HWY_ALIGN float out[kMost][kPanelRows];
      const float* rows = x + row * x_stride;
      count = m - row >= kMost ? kMost : 1;
      if (count == kMost) {
        sum_float_panel<Type, kMost>(panel, rows, x_stride, w.cols, out);
      } else {
        sum_float_panel<Type, 1>(panel, rows, x_stride, w.cols, out);
      }
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = from; j < to; ++j) y[(row + r) * y_stride + j - begin] = out[r][j - first];
      }
    }
  }
}

void dot_panels_float_kernel(const Weight& w, int64_t begin, int64_t end, const float* x,
                             int64_t x_stride, int64_t m, float* y, int64_t y_stride) {
  switch (w.dtype) {
    case DType::kF32:
      return dot_float_panels<PanelF32>(w, begin, end, x, x_stride, m, y, y_stride);
    case DType::kF16:
      return dot_float_panels<PanelF16>(w, begin, end, x, x_stride, m, y, y_stride);
    case DType::kBF16:
      return dot_float_panels<PanelBF16>(w, begin, end, x, x_stride, m, y, y_stride);
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
