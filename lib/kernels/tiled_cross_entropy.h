// linear_cross_entropy (cross_entropy.h) on tiles (amx.h): logits never leave the second cache,
// they are computed once more for the gradients. Private to this room.
#pragma once

#include <cstddef>

#include "lib/kernels/amx.h"
#include "lib/kernels/bf16_panels.h"
#include "lib/kernels/cross_entropy.h"

namespace lumen::kernels {

// Whether it is faster than products of whole matrices.
bool is_worth_tiled_loss(int64_t rows, int64_t dim, int64_t classes);

// Bytes of workspace, whatever the unit and the precision are.
size_t tiled_loss_bytes(int64_t rows, int64_t dim, int64_t classes, int threads);

// The gradients that args asks for, and losses[i] of each row, which has not been multiplied by its
// weight. False if an operand that has two parts holds an infinity or a NaN: nothing is valid then.
// The result does not depend on the number of threads. Does not allocate. noexcept.
bool tiled_linear_cross_entropy(ThreadPool& pool, const TileUnit& unit,
                                const LinearCrossEntropy& args, std::byte* workspace,
                                float* losses);

// Where the gradients of a block of logits go, [classes][2 · kTileRows] numbers, classes a multiple
// of 2 · kTileRows: in panels whose depth the classes are (B), and whose depth the rows of hidden
// states are (A). Those that are not wanted are null.
struct GradientPanels {
  Bf16Panel pairs;
  int64_t pairs_pitch;
  Bf16Panel rows;
  int64_t rows_pitch;
  int64_t classes;
  bool two_parts;

  int64_t place_in_pairs(int64_t c, int64_t row) const {
    return row / kTileRows * pairs_pitch + c / 2 * 2 * kTileRows + row % kTileRows * 2 + c % 2;
  }
  int64_t place_in_rows(int64_t c, int64_t row) const {
    return c / kTileRows * rows_pitch + c % kTileRows * kTileDepth + row;
  }
};

}  // namespace lumen::kernels
