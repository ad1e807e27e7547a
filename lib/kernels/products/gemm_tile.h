// The inner part of every float32 and float64 matrix product: packing into panels, and their
// product.
//
// A panel is a strip of `width` rows of a matrix, stored [depth][width]: what the inner loop reads
// at step k lies together. A is packed in strips of the tile's height (the last one rounded up to a
// multiple of `step`), B, of which C's columns are rows here, in strips of the tile's width;
// missing rows are zero. See ../README.md for the sizes.
#pragma once

#include <cstdint>

namespace lumen::kernels {

// The register tile of the SIMD target in use, for float and for double.
struct GemmTile {
  int64_t rows;     // of C: height of a full strip of A
  int64_t step;     // the last strip's height is a multiple of this
  int64_t cols;     // of C: width of a strip of B
  bool takes_rows;  // multiply_rows is as fast as multiply_panels
};
GemmTile gemm_tile();
GemmTile gemm_tile_f64();

// Bounds over all targets, for sizing workspaces.
inline constexpr int64_t kMaxTileRows = 12;
inline constexpr int64_t kMaxTileCols = 32;

// Where a strip, or some rows of one, comes from: element (i, k) is x[i · row_stride + k ·
// col_stride].
template <typename T>
struct StripSourceOf {
  const T* x;
  int64_t row_stride, col_stride;
  // Whether what lies behind the strip comes next and is beyond the caches: it is fetched then.
  bool fetch_next = false;
};
using StripSource = StripSourceOf<float>;

// panel[k · width + i] = element (i, k) for k in [0, depth), i in [0, rows), and 0 for i in [rows,
// padded_rows). noexcept.
void pack_strip(const StripSource& from, int64_t rows, int64_t padded_rows, int64_t depth,
                int64_t width, float* panel);
void pack_strip(const StripSourceOf<double>& from, int64_t rows, int64_t padded_rows, int64_t depth,
                int64_t width, double* panel);

// Height of the strip of A that starts at `row` of `m`.
int64_t strip_height(const GemmTile& tile, int64_t m, int64_t row);

// c[i][j] = (add ? c[i][j] : 0) + Σ_k a[i][k] · b[j][k] for i in [0, m), j in [0, n): `a` holds the
// strips of m rows one after another, `b` those of n, all of the same depth. Every element is one
// chain of multiply-adds over k, whatever tile it falls in. Single-threaded, noexcept.
void multiply_panels(const float* a, int64_t m, const float* b, int64_t n, int64_t depth, bool add,
                     float* c, int64_t c_stride);
void multiply_panels(const double* a, int64_t m, const double* b, int64_t n, int64_t depth,
                     bool add, double* c, int64_t c_stride);

// The same, to the bit, with rows of A as they are: row i at a + i · a_stride; m is a multiple of
// the tile's height.
void multiply_rows(const float* a, int64_t a_stride, int64_t m, const float* b, int64_t n,
                   int64_t depth, bool add, float* c, int64_t c_stride);
void multiply_rows(const double* a, int64_t a_stride, int64_t m, const double* b, int64_t n,
                   int64_t depth, bool add, double* c, int64_t c_stride);

// The same as multiply_panels where columns of A lie next to each other, kStripBlock at a time: a
// strip of height h is [depth / kStripBlock][h][kStripBlock]. `depth` is a multiple of kStripBlock;
// rows of the last strip from m on may hold anything.
inline constexpr int64_t kStripBlock = 16;
void multiply_blocked_strips(const float* a, int64_t m, const float* b, int64_t n, int64_t depth,
                             bool add, float* c, int64_t c_stride);

}  // namespace lumen::kernels
