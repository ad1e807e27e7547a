// The matrix products of attention for training, in float32 (gemm_tile.h) or on tiles (amx.h), and
// of prompts on tiles, of operands that are packed before. Private to this room.
#pragma once

#include <cstdint>

#include "lib/kernels/attention/attention_tile.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels {

// c[i][j] = (add ? c[i][j] : 0) + Σ_k left[row + i][k] · right[k][j] for i in [0, rows), j in [0,
// cols), k in [begin, end). On tiles k goes on to the next multiple of kTileDepth, where both hold
// numbers and one of them zeros, and c has room for whole tiles: rows and cols rounded up to
// kTileRows.
struct AttentionProduct {
  const float* left;
  int64_t row, rows;  // the first a multiple of row_step()
  const float* right;
  int64_t cols, depth;  // depth: of both operands as they were packed
  int64_t begin, end;   // the first a multiple of width()
  bool add;
  float* c;
  int64_t c_stride;
};

// What the gradients of a strip of scores are multiplied as.
struct GradOperands {
  float* dscores;                      // room for the right operand
  float *weights_left, *dscores_left;  // of a block of columns
};

class AttentionProducts {
 public:
  // On `unit`, where numbers are rounded to one bfloat16 or are the sum of two; in float32 if it is
  // null.
  AttentionProducts(const TileUnit* unit, bool two_parts)
      : unit_(unit), parts_(two_parts ? 2 : 1) {}

  // Around the products of a thread in a parallel section.
  void enter() const;
  void leave() const;

  // Columns of a strip of scores.
  int64_t width() const { return unit_ ? 2 * kTileRows : tile_.cols; }
  // The rows of a product are a multiple of this, or all that were packed.
  int64_t row_step() const { return unit_ ? kTileRows : tile_.rows; }

  // Room for an operand, whatever it is made of.
  static int64_t left_floats(int64_t rows, int64_t depth);
  static int64_t right_floats(int64_t cols, int64_t depth);
  // What a strip of width() columns takes of it, one behind the other.
  int64_t strip_floats(int64_t depth) const;

  // Whether numbers are rounded to one bfloat16 each.
  bool rounds() const { return unit_ != nullptr && parts_ == 1; }

  // Whether operands are packed from what there is, and zeros added; in float32 all numbers of an
  // operand come from the source.
  bool adds_zeros() const { return unit_ != nullptr; }

  // Packs element (i, k) of `from`, which may be bfloat16 on tiles of one part, for k in [0, cols)
  // as columns [begin, begin + cols) of a left operand of `depth` columns; rows [rows, all_rows)
  // are zeros. With tiles `begin` is a multiple of kTileDepth, and cols too unless begin + cols =
  // depth. noexcept.
  struct LeftColumns {
    int64_t rows, all_rows;
    int64_t begin, cols, depth;
  };
  void pack_left(const PanelSource& from, const LeftColumns& columns, float* left) const;
  void pack_left(const PanelSource& from, int64_t rows, int64_t depth, float* left) const {
    pack_left(from, {rows, rows, 0, depth, depth}, left);
  }

  // Packs column j of a right operand of `cols` from row j of `from`, which may be bfloat16
  // likewise; with tiles columns [rows, cols) are zeros. noexcept.
  void pack_right(const PanelSource& from, int64_t rows, int64_t cols, int64_t depth,
                  float* right) const;

  // Where softmax and softmax_grad leave the weights or gradients of a strip of scores, of up to
  // `depth` keys, as a right operand; and what that operand is then: the strip itself or, on tiles,
  // `room`. noexcept.
  attention_tile::Panels right_panels(float* room, int64_t depth) const;
  const float* right_of(const float* scores, const float* room) const {
    return unit_ ? room : scores;
  }

  // Packs what softmax_grad makes of a strip of scores, `part` of two left operands. noexcept.
  void softmax_grad(const attention_tile::Tile& tile, float* scores, float* dp,
                    const attention_tile::SoftmaxGradState& state, const LeftColumns& part,
                    const GradOperands& to) const;

  // noexcept.
  void multiply(const AttentionProduct& product) const;

 private:
  void multiply_floats(const AttentionProduct& product) const;
  void multiply_tiles(const AttentionProduct& product) const;

  attention_tile::Panels left_panels(float* left, const LeftColumns& columns) const;

  // The panel of `row` (column, on the right) of an operand on tiles.
  Bf16Panel panel_of(float* operand, int64_t row, int64_t depth) const;

  const TileUnit* unit_;
  int64_t parts_;
  GemmTile tile_ = gemm_tile();
};

}  // namespace lumen::kernels
