// Products of quantised weights in panels (panels.h) with int8 activations, and panels taken apart,
// written once for all instruction sets.
//
// Included like panel_formats-inl.h, and behind it. Of Isa it needs besides:
//
//   kMostRows            rows of x that are multiplied at once
//   Ints                 a vector of kLanes int32
//   fma, to_float, store
//   Sum<most>            Σ code · xcode per word, of codes in [0, most], or int8 if most is 0:
//                        start(begin), add<n>(codes, x) for n = 0, 1, … in order, total<bits>(),
//                        which shifts it to the right. `begin` is what the int32 sum starts from.
//
// kMostCode is up to which `most` is worth a multiplication without shifting codes down; `begin`
// has to take kSignedOffset off again. Lane j of a sum is row j's.

// ---- Sums.

// Rows of x, with what belongs to sub-blocks of one size; strides `cols` and `subs`.
struct PanelOperand {
  const int8_t* codes;
  const float *scale, *sum;
  const int32_t* code_sum;
  int64_t cols, subs;
};

template <class Format>
HWY_INLINE PanelOperand panel_operand(const QuantizedRows& x, int64_t row) {
  constexpr bool kHalf = Format::kSub == 16;
  const int64_t subs = x.cols / Format::kSub, at = row * subs;
  return {x.codes + row * x.cols,
          (kHalf ? x.scale_16 : x.scale_32) + at,
          (kHalf ? x.sum_16 : x.sum_32) + at,
          (kHalf ? x.codes_16 : x.codes_32) + at,
          x.cols,
          subs};
}

template <class Format, int kIndex>
using PanelSum = typename Isa::template Sum<(Format::kMost << Format::template kShift<kIndex>)>;

// x holds the codes of each row from this sub-block on.
template <class Format, int kRows, int kIndex, int kQuad>
HWY_INLINE void add_quads(const uint8_t* p, int part, int group, const int8_t* const (&x)[kRows],
                          PanelSum<Format, kIndex>* sums) {
  if constexpr (kQuad < Format::kSub / 4) {
    const auto codes = Format::template codes<kIndex, kQuad>(p, part, group);
    for (int r = 0; r < kRows; ++r) sums[r].template add<kQuad>(codes, x[r] + 4 * kQuad);
    add_quads<Format, kRows, kIndex, kQuad + 1>(p, part, group, x, sums);
  }
}

// Adds sub-blocks kIndex and on of a group; `sub` is the first one's number in the row. The order
// of the two multiply-adds and what is rounded in between is what every path of products keeps to.
template <class Format, int kRows, int kIndex, class Scales>
HWY_INLINE void add_subs(const uint8_t* p, int part, int group, const Scales& scales,
                         const PanelOperand& x, int64_t sub, typename Isa::Floats* y) {
  if constexpr (kIndex < kIndices<Format>) {
    if (part == 0) fetch_ahead<Format>(p, group * kIndices<Format> + kIndex);
    constexpr int kShift = Format::template kShift<kIndex>;
    constexpr int kOffset = Format::kOffset << kShift;
    PanelSum<Format, kIndex> sums[kRows];
    const int8_t* codes[kRows];
    for (int r = 0; r < kRows; ++r) {
      codes[r] = x.codes + r * x.cols + sub * Format::kSub;
      sums[r].start(kOffset == 0 ? 0 : -kOffset * x.code_sum[r * x.subs + sub]);
    }
    add_quads<Format, kRows, kIndex, 0>(p, part, group, codes, sums);
    const auto scale = scales.template scale<kIndex>(group);
    for (int r = 0; r < kRows; ++r) {
      const auto factor = Isa::mul(Isa::set(x.scale[r * x.subs + sub]), scale);
      y[r] = Isa::fma(Isa::to_float(sums[r].template total<kShift>()), factor, y[r]);
    }
    if constexpr (Format::kHasMin) {
      const auto min = scales.template min<kIndex>(group);
      for (int r = 0; r < kRows; ++r) {
        y[r] = Isa::fma(Isa::set(x.sum[r * x.subs + sub]), min, y[r]);
      }
    }
    add_subs<Format, kRows, kIndex + 1>(p, part, group, scales, x, sub + 1, y);
  }
}

// out[r][j] = Σ_k panel[j][k] · x[r][k] for kRows rows of x and the sixteen rows of a panel.
template <class Format, int kRows>
HWY_NOINLINE void sum_panel(const uint8_t* panel, const PanelOperand& x, float (*out)[kPanelRows]) {
  constexpr int kParts = kPanelRows / Isa::kLanes;
  constexpr int64_t kBlock = info(Format::kType).block_elements;
  constexpr int64_t kBytes = kPanelRows * info(Format::kType).block_bytes;
  typename Isa::Floats y[kParts][kRows];
  for (auto& part : y) {
    for (auto& sum : part) sum = Isa::set(0.0f);
  }
  for (int64_t k = 0; k < x.cols; k += kBlock, panel += kBytes) {
    for (int part = 0; part < kParts; ++part) {
      const auto scales = Format::scales(panel, part);
      for (int group = 0; group < Format::kGroups; ++group) {
        const int64_t sub = k / Format::kSub + group * kIndices<Format>;
        add_subs<Format, kRows, 0>(panel, part, group, scales, x, sub, y[part]);
      }
    }
  }
  for (int part = 0; part < kParts; ++part) {
    for (int r = 0; r < kRows; ++r) Isa::store(y[part][r], out[r] + part * Isa::kLanes);
  }
}

// Rows [begin, end) of the weights with rows [0, m) of x.
template <class Format>
void dot_panels(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
                float* y, int64_t y_stride) {
  constexpr int kMost = Isa::kMostRows;
  const int64_t bytes = kPanelRows * row_bytes(Format::kType, w.cols);
  for (int64_t first = begin / kPanelRows * kPanelRows; first < end; first += kPanelRows) {
    const auto* panel = static_cast<const uint8_t*>(w.data) + first / kPanelRows * bytes;
    const int64_t from = begin > first ? begin : first;
    const int64_t to = end < first + kPanelRows ? end : first + kPanelRows;
    for (int64_t row = 0, count; row < m; row += count) {
      alignas(64) float out[kMost][kPanelRows];
      const PanelOperand operand = panel_operand<Format>(x, row);
      // Not every number of rows: each is a third of this file's code.
      constexpr int kSome = kMost > 1 ? kMost / 2 : 1;
      count = m - row >= kMost ? kMost : m - row >= kSome ? kSome : 1;
      if (count == kMost) {
        sum_panel<Format, kMost>(panel, operand, out);
      } else if (count == kSome) {
        sum_panel<Format, kSome>(panel, operand, out);
      } else {
        sum_panel<Format, 1>(panel, operand, out);
      }
      for (int64_t r = 0; r < count; ++r) {
        for (int64_t j = from; j < to; ++j) y[(row + r) * y_stride + j - begin] = out[r][j - first];
      }
    }
  }
}

template <class Format>
struct DotPanels {
  static void run(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
                  float* y, int64_t y_stride) {
    dot_panels<Format>(w, begin, end, x, m, y, y_stride);
  }
};

void dot_panels_of_any_format(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                              int64_t m, float* y, int64_t y_stride) {
  for_format<DotPanels>(w.dtype, w, begin, end, x, m, y, y_stride);
}

// ---- Taking panels apart.

// Sub-blocks kIndex and on of a group; `sub` is the first one's number in `to`.
template <class Format, int kIndex, class Scales>
HWY_INLINE void expand_subs(const uint8_t* p, int part, int group, const Scales& scales, int added,
                            int64_t sub, const CodePanel& to) {
  if constexpr (kIndex < kIndices<Format>) {
    if (part == 0) fetch_ahead<Format>(p, group * kIndices<Format> + kIndex);
    expand_quads<Format, kIndex, 0>(p, part, group, added,
                                    to.codes + sub * Format::kSub * kPanelRows);
    const int64_t at = kPanelRows * sub + Isa::kLanes * part;
    Isa::store(scales.template scale<kIndex>(group), to.scale + at);
    if constexpr (Format::kHasMin) Isa::store(scales.template min<kIndex>(group), to.min + at);
    expand_subs<Format, kIndex + 1>(p, part, group, scales, added, sub + 1, to);
  }
}

template <class Format>
void expand_panel_of(const uint8_t* panel, int64_t cols, int added, const CodePanel& to) {
  constexpr CodeForm kForm = code_form(Format::kType);
  static_assert(kForm.sub == Format::kSub && kForm.has_min == Format::kHasMin);
  // Codes that are not stored with their sign count from kForm.offset() below zero.
  if (Format::kMost != 0) added -= kForm.offset();
  constexpr int64_t kBlock = info(Format::kType).block_elements;
  for (int64_t k = 0; k < cols; k += kBlock) {
    for (int part = 0; part < kPanelRows / Isa::kLanes; ++part) {
      const auto scales = Format::scales(panel, part);
      for (int group = 0; group < Format::kGroups; ++group) {
        const int64_t sub = k / Format::kSub + group * kIndices<Format>;
        expand_subs<Format, 0>(panel, part, group, scales, added, sub, to);
      }
    }
    panel += kPanelRows * info(Format::kType).block_bytes;
  }
}

template <class Format>
struct ExpandPanel {
  static void run(const uint8_t* panel, int64_t cols, int added, const CodePanel& to) {
    expand_panel_of<Format>(panel, cols, added, to);
  }
};

void expand_panel_of_any_format(DType dtype, const uint8_t* panel, int64_t cols, int added,
                                const CodePanel& to) {
  for_format<ExpandPanel>(dtype, panel, cols, added, to);
}
