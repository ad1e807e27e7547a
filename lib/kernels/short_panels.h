// Short panels (Layout::kShortPanels): panels of bfloat16 numbers in twelve bits each, without
// loss. Trained weights spread over few powers of two: scaled by a power of two of their row, so
// that its largest is in [1, 2), of normally distributed ones all but 2e-4 are zero or at least
// 2⁻¹³. So sign and upper seven bits of the exponent, 56 + h with h from 1 to 7, take four bits,
// with h = 0 for zeros; eight bits are left. Other numbers are listed as patches. A product reads
// 12 bits per number instead of 16. (Zhang et al. 2025, arXiv 2504.11651, make 11 bits of 16 with
// codes of different lengths.)
//
// First the numbers of all panels, short_panel_bytes each, then their patches,
// short_panel_patch_bytes each:
//
//   f32 scale[16]               a power of two: number = scaled number · scale
//   per 8 columns:
//     u8 upper[4][2][4][2]      8 sign + h of two numbers, of columns 0 to 3 in the lower four bits
//     u8 lower[2][4][2][4][2]   the lower eight bits of columns 0 to 3, then 4 to 7
//
//   {u32 place, u16 bits, u16 scaled} …   of a panel, in order, the last with place 2³² − 1
//
// The order of four columns is [4 rows at a time][2 pairs of columns][4 rows][2 columns], so that
// upper and lower bytes, interleaved in each 128 bits of a vector, are pairs of columns of a
// bfloat16 panel (panels.h), [cols / 2][16][2]; `place` counts numbers in that order. float16
// matrices whose numbers are all bfloat16 numbers too, as those of most models published as
// bfloat16 are, are kept likewise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// Whether matrices of `dtype` with rows of `cols` can be in short panels, their numbers permitting,
// and are shorter there: f16 and bf16, columns a multiple of 8, 24 or more.
bool has_short_panels(DType dtype, int64_t cols);

// Whether the target in use unpacks them about as fast as memory is read.
bool fast_short_panels();

// Packs panel `index` of `w`, which is in rows, into `matrix`, the bytes of the whole matrix.
// False if its numbers do not fit: more than one of 256 needs a patch, one is NaN or infinite, or,
// of float16, one is not a bfloat16; what is in `matrix` then means nothing. Panels may be packed
// by several threads. noexcept.
bool pack_short_panel(const Weight& w, int64_t index, std::byte* matrix);

// Columns [k, k + cols), multiples of 8, of panel `index` of `w`, which is in short panels, as
// pack_panel (panels.h) gives them. noexcept.
void unpack_short_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, std::byte* panel);

}  // namespace lumen::kernels
