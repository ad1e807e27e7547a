// Products of few rows of x: the weights are used as they are kept, each read once from memory.
// Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/kernels/matmul.h"
#include "lib/kernels/weights/quantize_rows.h"

namespace lumen::kernels {

// Up to this many rows of x the weights are used as they are kept; beyond it, taking blocks of them
// apart pays. Eight tokens can be verified at once and must get the bits that each alone gets.
inline constexpr int64_t kFewRows = 8;
// Of weights in panels: expanding a block takes as long as 12 rows of products with it.
inline constexpr int64_t kFewRowsPanels = 24;
// Of quantised ones where bytes are multiplied in pairs (AVX2 without VNNI), four rows of x at a
// time: that takes a block apart for each four, as long as expanding it once for all.
inline constexpr int64_t kFewRowsInPairs = 12;
// There of codes of four bits without a min (Q4_0), whose tile is fastest. The fewest of all that
// are not few number one more.
inline constexpr int64_t kFewRowsOfNibbles = 7;

// Up to how many rows of x are few for these weights.
int64_t few_rows(std::span<const Weight> weights);
// The same where experts share the rows, so that each meets only some.
int64_t few_rows_of_experts(std::span<const Weight> weights);

// Rows of x as products of few rows read them: as they are for weights of floats, rounded for
// quantised ones.
struct FewRows {
  const float* x;
  int64_t x_stride, m;
  bool on_tiles = false;
  StripRows strips{};    // for weights in panels or multiplied like panels; memory null: none is
  QuantizedRows rows{};  // for weights in rows; codes null: none is
};

// Bytes that place_few_rows takes of its memory; never decreases with m.
size_t few_rows_bytes(int64_t m, int64_t cols);

// m rows of x for `weights`, which all have the columns of the first. What is rounded lies in
// `memory`, 64-byte aligned, and is not rounded yet.
FewRows place_few_rows(const float* x, int64_t x_stride, int64_t m, std::span<const Weight> weights,
                       std::byte* memory);
// Rounds all of it. noexcept.
void round_few_rows(const FewRows& rows);

// Bytes of a panel of the widest type.
size_t most_panel_bytes(int64_t cols);

// y[r][j − begin] = Σ_k x[r][k] · w[j][k] for weight rows j in [begin, end): the bits do not depend
// on how many rows of x there are. `panel`, most_panel_bytes(w.cols), is only for rows that are
// multiplied like panels: each panel is made there, where it stays in L1 or L2. noexcept.
void dot_few_rows(const Weight& w, int64_t begin, int64_t end, const FewRows& x, std::byte* panel,
                  float* y, int64_t y_stride);

}  // namespace lumen::kernels
