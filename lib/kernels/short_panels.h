// Short panels (Layout::kShortPanels): panels of bfloat16 numbers in twelve bits each, without
// loss. Sign and significand stay as they are; of the eight bits of the exponent four are kept, as
// its distance from a base of its row, 0 being an exponent of zero. Trained weights spread over few
// powers of two: of normally distributed ones 1.4e-4 lie below the fifteen that end with their
// row's largest. Those are listed as patches. A product reads 12 bits per number instead of 16.
// (Zhang et al. 2025, arXiv 2504.11651, make 11 bits of 16 with codes of different lengths.)
//
// First the numbers of all panels, short_panel_bytes each, then their patches,
// short_panel_patch_bytes each:
//
//   u16 base[16][2]            15 less than the row's largest exponent, or 0; at bit 7, twice
//   per 8 columns, as 4 pairs:
//     u16 exponents[16][2]     of pair j at bit 4 j, less the base; 0: the exponent is 0
//     u8 rest[4][16][2]        sign at bit 7, seven bits of significand
//
//   {u32 place, u32 bits} …    of a panel, in order, the last with place 2³² − 1
//
// `place` counts the numbers of a panel in the order of bfloat16 panels (panels.h), [cols /
// 2][16][2]. float16 matrices whose numbers are all bfloat16 numbers too, as those of most models
// published as bfloat16 are, are kept likewise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// Whether matrices of `dtype` with rows of `cols` can be in short panels, their numbers permitting,
// and are shorter there: f16 and bf16, columns a multiple of 8, 24 or more.
bool has_short_panels(DType dtype, int64_t cols);

// Packs panel `index` of `w`, which is in rows, into `matrix`, the bytes of the whole matrix.
// False if its numbers do not fit: more than one of 256 needs a patch, or, of float16, one is not a
// bfloat16; what is in `matrix` then means nothing. Panels may be packed by several threads.
// noexcept.
bool pack_short_panel(const Weight& w, int64_t index, std::byte* matrix);

// Columns [k, k + cols), multiples of 8, of panel `index` of `w`, which is in short panels, as
// pack_panel (panels.h) gives them. noexcept.
void unpack_short_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, std::byte* panel);

}  // namespace lumen::kernels
