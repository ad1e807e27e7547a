// The inner products of attention for prompts over caches of 16 or 8 bits, as int16 codes, with
// twice as many products per cycle as in float32 (int16_tile.h). Private to this room.
//
// As attention_block.h by columns: queries, scores and outputs are stored transposed, vectors run
// across query rows. Keys and values are rounded row by row, queries column by column, weights per
// block of positions: what a query gets depends on nothing beside it. Rounding costs about 2e-4 of
// a value's typical size for normally distributed numbers, as float16 costs the cache itself.
//
// All functions are single-threaded, noexcept and only for where available().
#pragma once

#include <cstdint>

#include "lib/base/round_up.h"
#include "lib/kernels/attention/attention_block.h"

namespace lumen::kernels::attention_words {

using attention_block::kMaxColumns;
using attention_block::kPadding;
using attention_block::kPositions;

// Positions, too, are taken kPadding at a time.
inline int64_t padded(int64_t positions) {
  return round_up(positions, kPadding);
}

// Whether the target in use multiplies pairs of int16 faster than float32.
bool available();

// Query rows per call on the target in use.
int64_t columns();

// A block of positions. pitch is head_dim rounded up to attention_block::kPadding.
struct Keys {
  int64_t head_dim, pitch;
  int16_t* k;  // [kPositions][pitch]: k ≈ code · k_scale
  int16_t* v;  // [kPositions / 2][pitch][2]: v ≈ code · 2^v_log, those of two positions together
  float *k_scale, *v_log, *v_inverse;  // [kPositions]; v_inverse = 2^−v_log
};

// Rounds `count` rows [count, pitch] of float32, zeros beyond head_dim; positions from there up to
// padded(count) have no weight. A row with a NaN or an infinity gets the scale NaN.
void encode_keys(const float* rows, int64_t count, const Keys& to);
void encode_values(const float* rows, int64_t count, const Keys& to);

struct Queries {
  int64_t head_dim, pitch;
  int16_t* q;      // [pitch / 2][columns()][2]
  float* q_scale;  // [columns()]
  float* maximum;  // [columns()]: of scores in units of ln 2 plus v_log; initially −inf
  float* sum;      // [columns()]: Σ 2^(score + v_log − maximum) / 2^v_log; initially 0
  float* output;  // [pitch, columns()]: Σ 2^(score + v_log − maximum) · v / 2^v_log; initially 0
  const float* first;  // column c sees the positions in [first[c], last[c]), as exact floats
  const float* last;
  float* scores;     // [kPositions, columns()], any content
  int16_t* weights;  // [kPositions / 2, columns(), 2], any content
  float cap = 0;     // of the scores, in units of ln 2; 0: none
};

// Rounds q [pitch, columns()], scaled, zeros from head_dim on.
void encode_queries(const float* q, const Queries& to);

// Takes the positions begin, …, begin + count − 1 into maximum, sum and output. `masked`: not every
// column sees every one of them.
void attend(const Queries& queries, const Keys& keys, int64_t begin, int64_t count, bool masked);

}  // namespace lumen::kernels::attention_words
