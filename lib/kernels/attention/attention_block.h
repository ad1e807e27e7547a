// The inner products of attention: query rows against one block of positions. Private to this room.
//
// Two layouts. By rows (decoding, few queries): everything row-major, vectors run along head_dim;
// what a row gets does not depend on the rows beside it.
// By columns (prompts, many queries): queries, scores and outputs are stored transposed, vectors
// run across query rows, so that the softmax needs no horizontal operation and no key or value is
// ever transposed.
//
// Keys and values are float32, [kPositions, pitch] with zeros beyond head_dim; pitch is head_dim
// rounded up to kPadding. All functions are single-threaded and run on the dispatched SIMD target.
#pragma once

#include <cstdint>

namespace lumen::kernels::attention_block {

inline constexpr int64_t kPositions = 64;   // positions per block
inline constexpr int64_t kPadding = 16;     // floats; a multiple of every vector length
inline constexpr int64_t kMaxColumns = 64;  // upper bound of columns()

// Online softmax of one query row (Milakov & Gimelshein 2018): over the positions seen so far,
// maximum = max score, sum = Σ 2^(score − maximum) and output = Σ 2^(score − maximum) · v,
// initially −inf, 0 and 0. Scores are in units of ln 2 (q is scaled by log2 e too), which saves the
// exponential a multiplication and a step of its argument reduction.
struct Rows {
  int64_t rows, head_dim, pitch;
  const float* q;  // [rows, pitch], scaled, zeros beyond head_dim
  float* scores;   // [rows, kPositions]
  float* maximum;  // [rows]
  float* sum;      // [rows]
  float* output;   // [rows, pitch]
};

// scores = q · kᵀ for `count` positions.
void score_rows(const Rows& rows, const float* k, int64_t count);
// scores → 2^(scores − maximum) for the first seen[r] positions of row r, with maximum, sum and
// output brought up to date.
void softmax_rows(const Rows& rows, const int64_t* seen);
// output += scores · v over the first seen[r] positions of row r.
void accumulate_rows(const Rows& rows, const float* v, const int64_t* seen);

struct Columns {
  int64_t head_dim, pitch;
  const float* q;  // [head_dim, columns()], scaled
  float* scores;   // [kPositions, columns()]
  float* maximum;  // [columns()]
  float* sum;      // [columns()]
  float* output;   // [pitch, columns()]
  // Column c sees the positions in [first[c], last[c]), as exact floats (positions < 2^24).
  const float* first;
  const float* last;
};

// Query rows per call on this SIMD target.
int64_t columns();
void score_columns(const Columns& columns, const float* k, int64_t count);
// `masked`: not every column sees every one of the positions begin, …, begin + count − 1.
void softmax_columns(const Columns& columns, int64_t begin, int64_t count, bool masked);
void accumulate_columns(const Columns& columns, const float* v, int64_t count);

}  // namespace lumen::kernels::attention_block
