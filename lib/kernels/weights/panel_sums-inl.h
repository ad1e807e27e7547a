// Products of quantised weights in panels (panels.h) with int8 activations, and panels taken apart,
// written once for all instruction sets.
//
// Included like panel_formats-inl.h, and behind it. Of Isa it needs besides:
//
//   kMostRows            rows of x that are multiplied at once
//   Ints                 a vector of kLanes int32
//   repeat_int, fma, to_float, store
//   Sum<most>            Σ code · xcode per word, of codes in [0, most], or int8 if most is 0:
//                        start(begin), add<n>(codes, x) for n = 0, 1, … in order, total<bits>(),
//                        which shifts it to the right. `begin` is what the int32 sum starts from.
//
// kMostCode is up to which `most` is worth a multiplication without shifting codes down; `begin`
// has to take kSignedOffset off again. Lane j of a sum is row j's.

// ---- Sums.

// Where in a strip of kRows rows, from the first block of a group on, what belongs to sub-block
// kIndex of it stands: one base and constants, for which no register is needed.
template <class Format, int kRows, int kIndex>
struct PlaceInStrip {
  static constexpr bool kHalves = Format::kSub == 16;
  static constexpr int64_t kBlock = kIndex * Format::kSub / 32,
                           kHalf = kIndex * Format::kSub % 32 / 16;
  static constexpr int64_t kFirst = kBlock * kRows * kStripBlockBytes;
  static constexpr int64_t kFirstHalf = kBlock * kRows * kStripHalfBytes + 4 * kRows * kHalf;
  static_assert(kIndices<Format> * Format::kSub % 32 == 0);

  const CodeStrip& x;
  int row;

  const int8_t* codes() const {
    return reinterpret_cast<const int8_t*>(x.blocks + kFirst) + 32 * row + 16 * kHalf;
  }
  const float* scale() const { return floats(x.blocks + kFirst + 32 * kRows); }
  const float* sum() const {
    return floats(kHalves ? x.halves + kFirstHalf : x.blocks + kFirst + 36 * kRows);
  }
  const int32_t* owed() const {
    return reinterpret_cast<const int32_t*>(kHalves ? x.halves + kFirstHalf + 8 * kRows
                                                    : x.blocks + kFirst + 40 * kRows) +
           row;
  }
  const float* floats(const std::byte* p) const { return reinterpret_cast<const float*>(p) + row; }
};

// −kOffset · Σ codes, of −128 · Σ codes.
template <int kOffset>
LUMEN_PIECE typename Isa::Ints owed_for(const int32_t* owed) {
  static_assert((kOffset & (kOffset - 1)) == 0, "a power of two");
  if constexpr (kOffset == 0) {
    return Isa::repeat_int(0);
  } else if constexpr (kOffset == 128) {
    return Isa::repeat_int(*owed);
  } else {
    static_assert(kOffset < 128);
    return hn::ShiftRight<std::countr_zero(128u / kOffset)>(Isa::repeat_int(*owed));
  }
}

template <class Format, int kIndex>
using PanelSum = typename Isa::template Sum<(Format::kMost << Format::template kShift<kIndex>)>;

template <class Format, int kRows, int kIndex, int kQuad>
LUMEN_PIECE void add_quads(const uint8_t* p, int part, int group, const CodeStrip& x,
                           PanelSum<Format, kIndex>* sums) {
  if constexpr (kQuad < Format::kSub / 4) {
    const auto codes = Format::template codes<kIndex, kQuad>(p, part, group);
    for (int r = 0; r < kRows; ++r) {
      const PlaceInStrip<Format, kRows, kIndex> place{x, r};
      sums[r].template add<kQuad>(codes, place.codes() + 4 * kQuad);
    }
    add_quads<Format, kRows, kIndex, kQuad + 1>(p, part, group, x, sums);
  }
}

// Adds sub-blocks kIndex and on of a group, with whose first block the strip begins. The order of
// the two multiply-adds and what is rounded in between is what every path of products keeps to.
template <class Format, int kRows, int kIndex, class Scales>
LUMEN_PIECE void add_subs(const uint8_t* p, int part, int group, const Scales& scales,
                          const CodeStrip& x, typename Isa::Floats* y) {
  if constexpr (kIndex < kIndices<Format>) {
    using Place = PlaceInStrip<Format, kRows, kIndex>;
    fetch_ahead<Format, kRows, kIndex>(p, part, group);
    constexpr int kShift = Format::template kShift<kIndex>;
    PanelSum<Format, kIndex> sums[kRows];
    for (int r = 0; r < kRows; ++r) {
      sums[r].start(owed_for<(Format::kOffset << kShift)>(Place{x, r}.owed()));
    }
    add_quads<Format, kRows, kIndex, 0>(p, part, group, x, sums);
    const auto scale = scales.template scale<kIndex>(group);
    for (int r = 0; r < kRows; ++r) {
      const auto factor = Isa::mul(Isa::set(*Place{x, r}.scale()), scale);
      y[r] = Isa::fma(Isa::to_float(sums[r].template total<kShift>()), factor, y[r]);
    }
    if constexpr (Format::kHasMin) {
      const auto min = scales.template min<kIndex>(group);
      for (int r = 0; r < kRows; ++r) {
        y[r] = Isa::fma(Isa::set(*Place{x, r}.sum()), min, y[r]);
      }
    }
    add_subs<Format, kRows, kIndex + 1>(p, part, group, scales, x, y);
  }
}

// out[r][j] = Σ_k panel[j][k] · x[r][k] for the kRows rows of x and the sixteen rows of a panel.
template <class Format, int kRows>
HWY_NOINLINE void sum_panel(const uint8_t* panel, CodeStrip x, int64_t cols,
                            float (*out)[kPanelRows]) {
  constexpr int kParts = kPanelRows / Isa::kLanes;
  constexpr int64_t kBlock = info(Format::kType).block_elements;
  constexpr int64_t kBytes = kPanelRows * info(Format::kType).block_bytes;
  constexpr int64_t kGroupBlocks = kBlock / Format::kGroups / 32;
  typename Isa::Floats y[kParts][kRows];
  for (auto& part : y) {
    for (auto& sum : part) sum = Isa::set(0.0f);
  }
  for (int64_t k = 0; k < cols; k += kBlock, panel += kBytes) {
    for (int part = 0; part < kParts; ++part) {
      const auto scales = Format::scales(panel, part);
      CodeStrip from = x;
      for (int group = 0; group < Format::kGroups; ++group) {
        add_subs<Format, kRows, 0>(panel, part, group, scales, from, y[part]);
        from.blocks += kGroupBlocks * kRows * kStripBlockBytes;
        from.halves += kGroupBlocks * kRows * kStripHalfBytes;
      }
    }
    x.blocks += Format::kGroups * kGroupBlocks * kRows * kStripBlockBytes;
    x.halves += Format::kGroups * kGroupBlocks * kRows * kStripHalfBytes;
  }
  for (int part = 0; part < kParts; ++part) {
    for (int r = 0; r < kRows; ++r) Isa::store(y[part][r], out[r] + part * Isa::kLanes);
  }
}

// Not every height of strips: each is a third of this file's code.
inline constexpr int kSomeRows = Isa::kMostRows > 1 ? Isa::kMostRows / 2 : 1;

StripRows strips_of_width(std::byte* memory, int64_t m, int64_t cols) {
  constexpr int64_t kMost = Isa::kMostRows;
  const int64_t last = m % kMost == 0 ? kMost : m % kMost;
  return {memory, m, cols, kMost, last == 1 ? 1 : last <= kSomeRows ? kSomeRows : kMost};
}

// Rows [begin, end) of the weights with all rows of x.
template <class Format>
void dot_panels(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                int64_t y_stride) {
  constexpr int kMost = Isa::kMostRows;
  const int64_t bytes = kPanelRows * row_bytes(Format::kType, w.cols);
  for (int64_t first = begin / kPanelRows * kPanelRows; first < end; first += kPanelRows) {
    const auto* panel = static_cast<const uint8_t*>(w.data) + first / kPanelRows * bytes;
    const int64_t from = begin > first ? begin : first;
    const int64_t to = end < first + kPanelRows ? end : first + kPanelRows;
    for (int64_t row = 0; row < x.m; row += kMost) {
      alignas(64) float out[kMost][kPanelRows];
      const CodeStrip strip = x.strip(row, 0);
      if (strip.rows == kMost) {
        sum_panel<Format, kMost>(panel, strip, w.cols, out);
      } else if (strip.rows == kSomeRows) {
        sum_panel<Format, kSomeRows>(panel, strip, w.cols, out);
      } else {
        sum_panel<Format, 1>(panel, strip, w.cols, out);
      }
      const int64_t rows = x.m - row < kMost ? x.m - row : kMost;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = from; j < to; ++j) y[(row + r) * y_stride + j - begin] = out[r][j - first];
      }
    }
  }
}

template <class Format>
struct DotPanels {
  static void run(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                  int64_t y_stride) {
    dot_panels<Format>(w, begin, end, x, y, y_stride);
  }
};

void dot_panels_of_any_format(const Weight& w, int64_t begin, int64_t end, const StripRows& x,
                              float* y, int64_t y_stride) {
  for_format<DotPanels>(w.dtype, w, begin, end, x, y, y_stride);
}

// ---- Taking panels apart.

// Sub-blocks kIndex and on of a group; `sub` is the first one's number in `to`.
template <class Format, int kIndex, class Scales>
LUMEN_PIECE void expand_subs(const uint8_t* p, int part, int group, const Scales& scales, int added,
                             int64_t sub, const CodePanel& to) {
  if constexpr (kIndex < kIndices<Format>) {
    fetch_ahead<Format, Isa::kMostRows, kIndex>(p, part, group);
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
