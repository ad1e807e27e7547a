#include "lib/kernels/products/gemm_tile.h"

#include <algorithm>
#include <cstring>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/products/gemm_tile.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Vector = hn::VFromD<hn::ScalableTag<T>>;

// A tile is kTileRows × 2 vectors of accumulators: 24 of 32 registers (AVX-512, NEON), 12 of 16
// elsewhere; the rest hold two vectors of B and the broadcast of A.
inline constexpr int kTileRows = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 12 : 6;
inline constexpr int kStep = kTileRows / 3;
template <typename T>
inline constexpr int kTileCols = 2 * hn::MaxLanes(hn::ScalableTag<T>());
static_assert(kTileRows <= kMaxTileRows && kTileCols<float> <= kMaxTileCols);

template <typename T>
GemmTile tile_of() {
  // NEON's multiply-adds take numbers out of vectors of a strip.
  return {kTileRows, kStep, kTileCols<T>, HWY_TARGET != HWY_NEON};
}
GemmTile tile_kernel() {
  return tile_of<float>();
}
GemmTile tile_f64_kernel() {
  return tile_of<double>();
}

// kFours times four columns of as many rows as `d` has lanes, to as many rows of four columns:
// block b of a vector holds rows 4b to 4b + 3. What lies in a line is read at once: rows a multiple
// of 4 KiB apart push each other out of L1.
template <int kFours, class D>
LUMEN_PIECE void transpose_fours(D d, const float* x, int64_t row_stride, float* panel,
                                 int64_t width) {
  constexpr int kRows = hn::MaxLanes(D());
  hn::VFromD<D> row[kFours][4];
  for (int i = 0; i < 4; ++i) {
    for (int four = 0; four < kFours; ++four) {
      row[four][i] = hn::LoadDup128(d, x + (kRows - 4 + i) * row_stride + 4 * four);
    }
    for (int block = kRows / 4 - 2; block >= 0; --block) {
      for (int four = 0; four < kFours; ++four) {
        row[four][i] = hn::IfThenElse(
            hn::FirstN(d, 4 * block + 4),
            hn::LoadDup128(d, x + (4 * block + i) * row_stride + 4 * four), row[four][i]);
      }
    }
  }
  for (int four = 0; four < kFours; ++four, panel += 4 * width) {
    const auto low02 = hn::InterleaveLower(d, row[four][0], row[four][2]);
    const auto low13 = hn::InterleaveLower(d, row[four][1], row[four][3]);
    const auto high02 = hn::InterleaveUpper(d, row[four][0], row[four][2]);
    const auto high13 = hn::InterleaveUpper(d, row[four][1], row[four][3]);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, panel);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, panel + width);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, panel + 2 * width);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, panel + 3 * width);
  }
}

// transpose_fours of groups of kRows rows from `begin` on, as many as fit before `end`. Returns the
// row behind them.
template <int kRows>
HWY_INLINE int64_t transpose_groups(const float* x, int64_t row_stride, int64_t begin, int64_t end,
                                    float* panel, int64_t width) {
  const hn::CappedTag<float, kRows> d;
  for (; begin + kRows <= end; begin += kRows) {
    transpose_fours<1>(d, x + begin * row_stride, row_stride, panel + begin, width);
  }
  return begin;
}

// Two rows of whole vectors of four columns, to rows of two columns.
LUMEN_PIECE void transpose_pair(const float* x, int64_t row_stride, int64_t whole_depth,
                                float* panel, int64_t width) {
  const hn::CappedTag<float, 4> d;
  const hn::Half<decltype(d)> half;
  for (int64_t k = 0; k < whole_depth; k += 4, panel += 4 * width) {
    const auto row0 = hn::LoadU(d, x + k), row1 = hn::LoadU(d, x + row_stride + k);
    const auto low = hn::InterleaveLower(d, row0, row1), high = hn::InterleaveUpper(d, row0, row1);
    hn::StoreU(hn::LowerHalf(half, low), half, panel);
    hn::StoreU(hn::UpperHalf(half, low), half, panel + width);
    hn::StoreU(hn::LowerHalf(half, high), half, panel + 2 * width);
    hn::StoreU(hn::UpperHalf(half, high), half, panel + 3 * width);
  }
}

// Columns of rows that lie together. Full strips are copied in whole vectors: a call of memcpy for
// 48 or 128 bytes takes longer than the copy. Processors do not foresee so many rows: `fetch_next`
// fetches the lines that strips behind this one take, and those below, after the last strip.
template <int kRows, typename T>
HWY_INLINE void copy_full_columns(const T* x, int64_t col_stride, bool fetch_next, int64_t depth,
                                  int64_t width, T* panel) {
  constexpr int kLanes = std::min<int>(hn::MaxLanes(hn::ScalableTag<T>()), kRows % 8 == 0 ? 16 : 4);
  const hn::CappedTag<T, kLanes> d;
  constexpr int kVectors = kRows / kLanes;
  constexpr int kLine = 64 / sizeof(T), kAhead = 4 * kLine;
  for (int64_t k = 0; k < depth; ++k, x += col_stride, panel += width) {
    if (fetch_next) {
      for (const T* ahead : {x + kAhead, x + depth * col_stride}) {
        hwy::Prefetch(ahead);
        if (kRows > kLine) hwy::Prefetch(ahead + kRows - 1);
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      hn::StoreU(hn::LoadU(d, x + i * kLanes), d, panel + i * kLanes);
    }
    if constexpr (kRows > kVectors * kLanes) {
      const hn::CappedTag<T, kRows - kVectors * kLanes> rest;
      hn::StoreU(hn::LoadU(rest, x + kVectors * kLanes), rest, panel + kVectors * kLanes);
    }
  }
}

template <typename T>
HWY_INLINE void copy_columns(const T* x, int64_t col_stride, bool fetch_next, int64_t rows,
                             int64_t depth, int64_t width, T* panel) {
  if (rows == kTileCols<T>) {
    return copy_full_columns<kTileCols<T>>(x, col_stride, fetch_next, depth, width, panel);
  }
  if (rows == kTileRows) {
    return copy_full_columns<kTileRows>(x, col_stride, fetch_next, depth, width, panel);
  }
  for (int64_t k = 0; k < depth; ++k) {
    std::memcpy(panel + k * width, x + k * col_stride, rows * sizeof(T));
  }
}

// The first line of each of some rows.
HWY_INLINE void fetch_rows(const float* x, int64_t row_stride, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) hwy::Prefetch(x + i * row_stride);
}

// Rows that lie together: returns how many of them are packed.
HWY_INLINE int64_t transpose_rows(const StripSource& from, int64_t rows, int64_t depth,
                                  int64_t width, float* panel) {
  const float* const x = from.x;
  const int64_t row_stride = from.row_stride;
  const bool fetch_next = from.fetch_next;
  int64_t i = 0;
  // Four columns of all rows at a time, or sixteen of groups of as many rows, so that lines of
  // the panel are written whole.
  const int64_t whole_rows = rows / 4 * 4, whole_depth = depth / 4 * 4;
  constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  int64_t at = 0;
  if (kLanes == 16 && rows % 16 == 0) {
    for (; at + 16 <= depth; at += 16) {
      if (fetch_next) fetch_rows(x + rows * row_stride + at, row_stride, rows);
      for (i = 0; i < rows; i += 16) {
        transpose_fours<4>(hn::ScalableTag<float>(), x + i * row_stride + at, row_stride,
                           panel + at * width + i, width);
      }
    }
  }
  for (; at < whole_depth; at += 4) {
    if (fetch_next && at % 16 == 0) fetch_rows(x + rows * row_stride + at, row_stride, rows);
    i = transpose_groups<kLanes>(x + at, row_stride, 0, whole_rows, panel + at * width, width);
    if (kLanes > 8) {
      i = transpose_groups<8>(x + at, row_stride, i, whole_rows, panel + at * width, width);
    }
    transpose_groups<4>(x + at, row_stride, i, whole_rows, panel + at * width, width);
  }
  i = whole_rows;
  if (rows - i >= 2) {
    transpose_pair(x + i * row_stride, row_stride, whole_depth, panel + i, width);
    i += 2;
  }
  for (int64_t k = whole_depth; k < depth; ++k) {
    for (int64_t row = 0; row < i; ++row) panel[k * width + row] = x[row * row_stride + k];
  }
  return i;
}

// The same for float64, two rows at a time.
HWY_INLINE int64_t transpose_rows(const StripSourceOf<double>& from, int64_t rows, int64_t depth,
                                  int64_t width, double* panel) {
  const hn::CappedTag<double, 2> d;
  const int64_t whole_depth = depth / 2 * 2, whole_rows = rows / 2 * 2;
  for (int64_t k = 0; k < whole_depth; k += 2) {
    const double* x = from.x + k;
    if (from.fetch_next && k % 8 == 0) {
      for (int64_t i = 0; i < rows; ++i) hwy::Prefetch(x + (rows + i) * from.row_stride);
    }
    for (int64_t i = 0; i < whole_rows; i += 2, x += 2 * from.row_stride) {
      const auto row0 = hn::LoadU(d, x), row1 = hn::LoadU(d, x + from.row_stride);
      hn::StoreU(hn::InterleaveLower(d, row0, row1), d, panel + k * width + i);
      hn::StoreU(hn::InterleaveUpper(d, row0, row1), d, panel + (k + 1) * width + i);
    }
  }
  for (int64_t i = 0; i < whole_rows && whole_depth < depth; ++i) {
    panel[whole_depth * width + i] = from.x[i * from.row_stride + whole_depth];
  }
  return whole_rows;
}

template <typename T>
HWY_INLINE void pack_strip_of(const StripSourceOf<T>& from, int64_t rows, int64_t padded_rows,
                              int64_t depth, int64_t width, T* panel) {
  const T* const x = from.x;
  const int64_t row_stride = from.row_stride, col_stride = from.col_stride;
  int64_t i = 0;
  if (row_stride == 1 && col_stride != 1) {
    copy_columns(x, col_stride, from.fetch_next, rows, depth, width, panel);
    i = rows;
  } else if (col_stride == 1) {
    i = transpose_rows(from, rows, depth, width, panel);
  }
  for (; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) panel[k * width + i] = x[i * row_stride + k * col_stride];
  }
  for (; i < padded_rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) panel[k * width + i] = 0;
  }
}

void pack_strip_kernel(const StripSource& from, int64_t rows, int64_t padded_rows, int64_t depth,
                       int64_t width, float* panel) {
  pack_strip_of(from, rows, padded_rows, depth, width, panel);
}
void pack_strip_f64_kernel(const StripSourceOf<double>& from, int64_t rows, int64_t padded_rows,
                           int64_t depth, int64_t width, double* panel) {
  pack_strip_of(from, rows, padded_rows, depth, width, panel);
}

// Adds a · b to a row of the tile.
template <class V>
HWY_INLINE void add_row(V a, V b_left, V b_right, V& left, V& right) {
  left = hn::MulAdd(a, b_left, left);
  right = hn::MulAdd(a, b_right, right);
}

// c[kRows][kTileCols] (+)= the sums; `valid_rows` and `valid_cols` say how much of it lies inside
// C.
template <int kRows, typename T>
HWY_INLINE void store_tile(Vector<T> (&left)[kRows], Vector<T> (&right)[kRows], bool add, T* c,
                           int64_t c_stride, int64_t valid_rows, int64_t valid_cols) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = kTileCols<T> / 2;
  if (valid_rows == kRows && valid_cols == kTileCols<T>) {
    HWY_UNROLL(12)
    for (int i = 0; i < kRows; ++i) {
      T* row = c + i * c_stride;
      if (add) {
        left[i] = hn::Add(hn::LoadU(d, row), left[i]);
        right[i] = hn::Add(hn::LoadU(d, row + kLanes), right[i]);
      }
      hn::StoreU(left[i], d, row);
      hn::StoreU(right[i], d, row + kLanes);
    }
    return;
  }
  T edge[kRows][kTileCols<T>];
  HWY_UNROLL(12)
  for (int i = 0; i < kRows; ++i) {
    hn::StoreU(left[i], d, edge[i]);
    hn::StoreU(right[i], d, edge[i] + kLanes);
  }
  for (int64_t i = 0; i < valid_rows; ++i) {
    T* row = c + i * c_stride;
    for (int64_t j = 0; j < valid_cols; ++j) row[j] = add ? row[j] + edge[i][j] : edge[i][j];
  }
}

// One tile: c[kRows][kTileCols] (+)= a-strip · b-strip. A's strip is [depth /
// kBlock][kRows][kBlock]. Loops over the sums are unrolled to keep them in registers, see
// ../README.md.
template <int kBlock, int kRows, typename T>
HWY_INLINE void multiply_tile(const T* a, const T* b, int64_t depth, bool add, T* c,
                              int64_t c_stride, int64_t valid_rows, int64_t valid_cols) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = kTileCols<T> / 2;
  Vector<T> left[kRows], right[kRows];
  HWY_UNROLL(12)
  for (int i = 0; i < kRows; ++i) left[i] = right[i] = hn::Zero(d);
  for (int64_t k = 0; k < depth; k += kBlock, a += kRows * kBlock) {
    for (int kk = 0; kk < kBlock; ++kk, b += kTileCols<T>) {
      const auto b_left = hn::LoadU(d, b), b_right = hn::LoadU(d, b + kLanes);
      if constexpr (HWY_TARGET == HWY_NEON && kBlock == 1 && sizeof(T) == 4) {
        // A multiply-add takes one number of a vector there: no broadcasts.
        static_assert(kRows % 4 == 0);
        HWY_UNROLL(3)
        for (int i = 0; i < kRows; i += 4) {
          const auto four = hn::LoadU(d, a + i);
          add_row(hn::Broadcast<0>(four), b_left, b_right, left[i], right[i]);
          add_row(hn::Broadcast<1>(four), b_left, b_right, left[i + 1], right[i + 1]);
          add_row(hn::Broadcast<2>(four), b_left, b_right, left[i + 2], right[i + 2]);
          add_row(hn::Broadcast<3>(four), b_left, b_right, left[i + 3], right[i + 3]);
        }
      } else {
        HWY_UNROLL(12)
        for (int i = 0; i < kRows; ++i) {
          add_row(hn::Set(d, a[i * kBlock + kk]), b_left, b_right, left[i], right[i]);
        }
      }
    }
  }
  store_tile<kRows, T>(left, right, add, c, c_stride, valid_rows, valid_cols);
}

// The same with kTileRows rows of A where they lie, a_stride apart. Addresses are a register of
// every third row and one or two strides; the compiler is kept from making a register of each row,
// which are more than there are.
template <typename T>
HWY_INLINE void multiply_tile_of_rows(const T* a, int64_t a_stride, const T* b, int64_t depth,
                                      bool add, T* c, int64_t c_stride, int64_t valid_cols) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = kTileCols<T> / 2, kBases = kTileRows / 3, kSteps = 2;
  Vector<T> left[kTileRows], right[kTileRows];
  HWY_UNROLL(12)
  for (int i = 0; i < kTileRows; ++i) left[i] = right[i] = hn::Zero(d);
  const T* base[kBases];
  HWY_UNROLL(4)
  for (int i = 0; i < kBases; ++i) base[i] = a + 3 * i * a_stride;
  int64_t once = a_stride, twice = 2 * a_stride;
  int64_t k = 0;
  for (; k + kSteps <= depth; k += kSteps) {
    HWY_UNROLL(4)
    for (int i = 0; i < kBases; ++i) asm("" : "+r"(base[i]));
    asm("" : "+r"(once), "+r"(twice));
    HWY_UNROLL(4)
    for (int step = 0; step < kSteps; ++step, b += kTileCols<T>) {
      const auto b_left = hn::LoadU(d, b), b_right = hn::LoadU(d, b + kLanes);
      HWY_UNROLL(12)
      for (int i = 0; i < kTileRows; ++i) {
        const T* row = base[i / 3] + (i % 3 == 0 ? 0 : i % 3 == 1 ? once : twice);
        add_row(hn::Set(d, row[step]), b_left, b_right, left[i], right[i]);
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kBases; ++i) base[i] += kSteps;
  }
  for (; k < depth; ++k, b += kTileCols<T>) {
    const auto b_left = hn::LoadU(d, b), b_right = hn::LoadU(d, b + kLanes);
    HWY_UNROLL(12)
    for (int i = 0; i < kTileRows; ++i) {
      add_row(hn::Set(d, a[i * a_stride + k]), b_left, b_right, left[i], right[i]);
    }
  }
  store_tile<kTileRows, T>(left, right, add, c, c_stride, kTileRows, valid_cols);
}

template <int kBlock, typename T>
HWY_INLINE void multiply_strips(const T* a, int64_t m, const T* b, int64_t n, int64_t depth,
                                bool add, T* c, int64_t c_stride) {
  const GemmTile tile = tile_of<T>();
  for (int64_t i = 0; i < m;) {
    const int64_t height = strip_height(tile, m, i);
    const int64_t rows = std::min(height, m - i);
    for (int64_t j = 0; j < n; j += kTileCols<T>) {
      const int64_t cols = std::min<int64_t>(kTileCols<T>, n - j);
      const T* strip = b + j * depth;
      T* corner = c + i * c_stride + j;
      if (height == kTileRows) {
        multiply_tile<kBlock, kTileRows>(a, strip, depth, add, corner, c_stride, rows, cols);
      } else if (height == 2 * kStep) {
        multiply_tile<kBlock, 2 * kStep>(a, strip, depth, add, corner, c_stride, rows, cols);
      } else {
        multiply_tile<kBlock, kStep>(a, strip, depth, add, corner, c_stride, rows, cols);
      }
    }
    a += height * depth;
    i += height;
  }
}

template <typename T>
HWY_INLINE void multiply_whole_rows(const T* a, int64_t a_stride, int64_t m, const T* b, int64_t n,
                                    int64_t depth, bool add, T* c, int64_t c_stride) {
  for (int64_t i = 0; i < m; i += kTileRows) {
    for (int64_t j = 0; j < n; j += kTileCols<T>) {
      multiply_tile_of_rows(a + i * a_stride, a_stride, b + j * depth, depth, add,
                            c + i * c_stride + j, c_stride, std::min<int64_t>(kTileCols<T>, n - j));
    }
  }
}

void multiply_rows_kernel(const float* a, int64_t a_stride, int64_t m, const float* b, int64_t n,
                          int64_t depth, bool add, float* c, int64_t c_stride) {
  multiply_whole_rows(a, a_stride, m, b, n, depth, add, c, c_stride);
}
void multiply_rows_f64_kernel(const double* a, int64_t a_stride, int64_t m, const double* b,
                              int64_t n, int64_t depth, bool add, double* c, int64_t c_stride) {
  multiply_whole_rows(a, a_stride, m, b, n, depth, add, c, c_stride);
}

void multiply_panels_kernel(const float* a, int64_t m, const float* b, int64_t n, int64_t depth,
                            bool add, float* c, int64_t c_stride) {
  multiply_strips<1>(a, m, b, n, depth, add, c, c_stride);
}
void multiply_panels_f64_kernel(const double* a, int64_t m, const double* b, int64_t n,
                                int64_t depth, bool add, double* c, int64_t c_stride) {
  multiply_strips<1>(a, m, b, n, depth, add, c, c_stride);
}

void multiply_blocked_kernel(const float* a, int64_t m, const float* b, int64_t n, int64_t depth,
                             bool add, float* c, int64_t c_stride) {
  multiply_strips<kStripBlock>(a, m, b, n, depth, add, c, c_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(tile_kernel);
HWY_EXPORT(tile_f64_kernel);
HWY_EXPORT(pack_strip_kernel);
HWY_EXPORT(pack_strip_f64_kernel);
HWY_EXPORT(multiply_panels_kernel);
HWY_EXPORT(multiply_panels_f64_kernel);
HWY_EXPORT(multiply_rows_kernel);
HWY_EXPORT(multiply_rows_f64_kernel);
HWY_EXPORT(multiply_blocked_kernel);
}  // namespace

GemmTile gemm_tile() {
  return HWY_DYNAMIC_DISPATCH(tile_kernel)();
}

GemmTile gemm_tile_f64() {
  return HWY_DYNAMIC_DISPATCH(tile_f64_kernel)();
}

int64_t strip_height(const GemmTile& tile, int64_t m, int64_t row) {
  const int64_t left = (m - row + tile.step - 1) / tile.step * tile.step;
  return std::min(tile.rows, left);
}

void pack_strip(const StripSource& from, int64_t rows, int64_t padded_rows, int64_t depth,
                int64_t width, float* panel) {
  HWY_DYNAMIC_DISPATCH(pack_strip_kernel)(from, rows, padded_rows, depth, width, panel);
}
void pack_strip(const StripSourceOf<double>& from, int64_t rows, int64_t padded_rows, int64_t depth,
                int64_t width, double* panel) {
  HWY_DYNAMIC_DISPATCH(pack_strip_f64_kernel)(from, rows, padded_rows, depth, width, panel);
}

void multiply_panels(const float* a, int64_t m, const float* b, int64_t n, int64_t depth, bool add,
                     float* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_panels_kernel)(a, m, b, n, depth, add, c, c_stride);
}
void multiply_panels(const double* a, int64_t m, const double* b, int64_t n, int64_t depth,
                     bool add, double* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_panels_f64_kernel)(a, m, b, n, depth, add, c, c_stride);
}

void multiply_rows(const float* a, int64_t a_stride, int64_t m, const float* b, int64_t n,
                   int64_t depth, bool add, float* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_rows_kernel)(a, a_stride, m, b, n, depth, add, c, c_stride);
}
void multiply_rows(const double* a, int64_t a_stride, int64_t m, const double* b, int64_t n,
                   int64_t depth, bool add, double* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_rows_f64_kernel)(a, a_stride, m, b, n, depth, add, c, c_stride);
}

void multiply_blocked_strips(const float* a, int64_t m, const float* b, int64_t n, int64_t depth,
                             bool add, float* c, int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(multiply_blocked_kernel)(a, m, b, n, depth, add, c, c_stride);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
