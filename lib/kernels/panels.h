// Panels: the layout in which weights are kept for products, and repacking into it.
//
// A panel is sixteen rows of a matrix, interleaved so that a vector holds the same columns of all
// sixteen: a product reads it front to back, one stream, and needs no sums across lanes. Panels
// follow one another; the last one is filled up with zero rows. A panel takes the bytes of its
// sixteen rows. Per block of a quantised format (offsets in bytes; `codes` as u32[16] vectors, one
// 32-bit word of every row; a word's bytes are those of the format's own row, so what bits mean is
// said in quant_blocks-inl.h; but the fifth bits of q5_0 and q5_1 are turned, as those of q5_k are:
// bit i of byte j belongs to column 4 i + j):
//
//   q8_0  f16 d[16]; codes[8]                                      at 0, 32
//   q4_0  f16 d[16]; codes[4]                                      at 0, 32
//   q4_1  f16 d[16], m[16]; codes[4]                               at 0, 32, 64
//   q5_0  f16 d[16]; fifth bits[1]; codes[4]                       at 0, 32, 96
//   q5_1  f16 d[16], m[16]; fifth bits[1]; codes[4]                at 0, 32, 64, 128
//   q2_k  f16 d[16], dmin[16]; scales[4]; codes[16]                at 0, 32, 64, 320
//   q3_k  f16 d[16]; scales[3]; high bits[8]; low codes[16]        at 0, 32, 224, 736
//   q4_k  f16 d[16], dmin[16]; scales[3]; codes[32]                at 0, 32, 64, 256
//   q5_k  f16 d[16], dmin[16]; scales[3]; fifth bits[8]; codes[32] at 0, 32, 64, 256, 768
//   q6_k  f16 d[16]; of columns 0 to 127 and then 128 to 255, at 32 and 1696:
//         i8 scales[8][16]; (codes[1], high pairs[1])[8]; codes[8]  at 0, 128, 1152
//   f32, f16  [column][16];  bf16  [column / 2][16][2]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/prefetch.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/products/blocked_product.h"

namespace lumen::kernels {

// Whether matrices of `dtype` with rows of `cols` can be in panels: f32, f16, bf16 (an even number
// of columns) and all quantised types.
bool has_panels(DType dtype, int64_t cols);

// Packs panel `index` of `w`, in any layout, to `panel` (16 rows' bytes; any alignment). noexcept.
void pack_panel(const Weight& w, int64_t index, std::byte* panel);
// The same of columns [k, k + cols) only, both multiples of the type's block (bf16: of 2; short
// panels: of 8), to 16 times the bytes of so many columns.
void pack_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, std::byte* panel);

// Where columns [k, k + cols) of a panel of `w` lie, and the same ones of the next panel how many
// bytes further; of short panels without patches. No bytes if `w` is in rows.
struct StoredColumns {
  std::span<const std::byte> bytes;
  int64_t next_panel;
};
StoredColumns stored_columns(const Weight& w, int64_t index, int64_t k, int64_t cols);

// Fetches part `part` of `parts` of both into the second cache. Always inline, as prefetch is.
[[gnu::always_inline]] inline void fetch_columns(const StoredColumns& stored, int64_t part,
                                                 int64_t parts) {
  const int64_t lines = static_cast<int64_t>(stored.bytes.size()) / 64;
  const int64_t begin = lines * part / parts, end = lines * (part + 1) / parts;
  for (int64_t at : {int64_t{0}, stored.next_panel}) {
    prefetch(stored.bytes.data() + at + 64 * begin, 64 * (end - begin));
  }
}

// Packs weight rows of a matrix in panels, as floats, like pack_strip does rows
// (blocked_product.h). Row `want.row` is counted from the first of `w`; `want.rows` are packed,
// nothing is padded. For quantised types `want.k` is a multiple of the block. noexcept.
void pack_panel_strip(const Weight& w, const StripRequest& want);

}  // namespace lumen::kernels
