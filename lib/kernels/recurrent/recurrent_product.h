// The products of a recurrent layer's steps: rows of some samples, A, with a square matrix per
// gate, B. Both are kept in panels, of float32 (gemm_tile.h) or of bfloat16 (amx.h), one or two
// parts, and B's serve all steps. Private to this room.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"
#include "lib/base/round_up.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/tiles/amx.h"

namespace lumen::kernels {

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Threads divide samples in blocks of as many, and gradients of biases are added up block by block,
// whoever computes them. A multiple of every tile's step.
inline constexpr int64_t kSampleBlock = 8;

class RecurrentProduct {
 public:
  // `bf16`: both operands are rounded to bfloat16, sums are of float32. Chooses for the calling
  // thread (bf16_unit, or tile_unit and two parts).
  RecurrentProduct(int64_t batch, int64_t hidden, bool bf16);

  // Ranges of units begin at multiples of it.
  int64_t unit_step() const { return unit_ ? 2 * kTileRows : tile_.cols; }
  // Bytes that all matrices of a step are.
  int64_t matrix_bytes(int64_t gates) const;

  // Floats of a matrix and of the rows of all samples, whatever is chosen when they are packed.
  int64_t matrix_floats() const { return padded_units() * padded_units(); }
  int64_t rows_floats() const { return (bf16_ ? 1 : 2) * part_floats(); }

  // A thread calls `enter` before its first `multiply` and `leave` when its share of a parallel
  // section ends (TileUnit).
  void enter() const;
  void leave() const;

  // Gate by gate: column u, depth k is from[g][u · row_stride + k · col_stride].
  void pack_matrices(ThreadPool& pool, const float* from, int64_t gates, int64_t row_stride,
                     int64_t col_stride, float* matrices) const;

  // Units of samples of x [batch, hidden], rows x_stride apart, as part of the depth of A. A range
  // of samples begins at a multiple of kSampleBlock, and its rows are multiplied as that range.
  void pack_units(const float* x, int64_t x_stride, Range samples, Range units, float* rows) const;

  // c[samples][units] (+)= A · B with the matrix of one gate; c is [batch, …], rows c_stride apart.
  // Every element is one chain over the depth, whatever the ranges are.
  void multiply(const float* rows, const float* matrix, Range samples, Range units, bool add,
                float* c, int64_t c_stride) const;

 private:
  int64_t padded_units() const { return round_up(hidden_, 2 * kTileRows); }
  // Where the panel of bfloat16 that begins with a sample, or with a column, lies; in numbers. A
  // panel has sixteen rows, twice as many as a block of samples, in half of the bytes: it lies in
  // what the block's samples would take as floats, whichever sample its range begins with.
  int64_t row_panel(int64_t sample) const { return 2 * sample * padded_units(); }
  int64_t column_panel(int64_t unit) const { return unit * padded_units(); }
  int64_t part_floats() const { return round_up(batch_, kSampleBlock) * padded_units(); }
  // Low parts lie behind all high parts of the rows, or of the matrix.
  template <class Number>
  Number* low_rows(Number* high) const {
    return bf16_ ? nullptr : high + 2 * part_floats();
  }
  template <class Number>
  Number* low_columns(Number* high) const {
    return bf16_ ? nullptr : high + matrix_floats();
  }
  void pack_columns(const StripSource& from, int64_t unit, float* matrix) const;
  void multiply_on_unit(const float* rows, const float* matrix, Range samples, Range units,
                        bool add, float* c, int64_t c_stride) const;

  int64_t batch_, hidden_;
  bool bf16_;
  const TileUnit* unit_;  // null: panels of float32, rounded if bf16_; else of two parts if not
  GemmTile tile_ = gemm_tile();
};

}  // namespace lumen::kernels
