#include "lib/kernels/attention/attention_block.h"

#include <algorithm>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/attention/attention_block.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using attention_block::Columns;
using attention_block::kPositions;
using attention_block::Rows;

using Float = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Float>;
inline constexpr int64_t kLanes = hn::MaxLanes(Float());

// AVX-512 and aarch64 have 32 vector registers, the others 16.
inline constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64;

// ---- By rows

// The sum of the 128-bit blocks of a vector.
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> sum_of_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// (Σ a, Σ b, Σ c, Σ e).
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> sums_of_four(FloatVec a, FloatVec b, FloatVec c,
                                                        FloatVec e) {
  const Float d;
  const hn::Repartition<double, Float> pairs;
  // Within each 128-bit block: (a0 + a2, b0 + b2, a1 + a3, b1 + b3), likewise c and e.
  const auto ab =
      hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce =
      hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  return sum_of_blocks(d, hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                                  hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce))));
}

// Scores of kRows query rows from `row` on; positions by fours (the rows of k up to the next
// multiple of four exist).
template <int kRows>
HWY_INLINE void score_tile(const Rows& rows, int64_t row, const float* k, int64_t count) {
  const Float d;
  const hn::FixedTag<float, 4> four;
  const float* q = rows.q + row * rows.pitch;
  for (int64_t p = 0; p < count; p += 4) {
    FloatVec sums[kRows][4];
    for (auto& row_sums : sums) {
      for (auto& sum : row_sums) sum = hn::Zero(d);
    }
    for (int64_t i = 0; i < rows.pitch; i += kLanes) {
      FloatVec key[4];
      for (int64_t j = 0; j < 4; ++j) key[j] = hn::LoadU(d, k + (p + j) * rows.pitch + i);
      for (int64_t r = 0; r < kRows; ++r) {
        const auto query = hn::LoadU(d, q + r * rows.pitch + i);
        for (int64_t j = 0; j < 4; ++j) sums[r][j] = hn::MulAdd(query, key[j], sums[r][j]);
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      const auto all = sums_of_four(sums[r][0], sums[r][1], sums[r][2], sums[r][3]);
      hn::StoreU(all, four, rows.scores + (row + r) * kPositions + p);
    }
  }
}

void score_rows(const Rows& rows, const float* k, int64_t count) {
  int64_t row = 0;
  if constexpr (kManyRegisters) {
    for (; row + 4 <= rows.rows; row += 4) score_tile<4>(rows, row, k, count);
  }
  for (; row + 2 <= rows.rows; row += 2) score_tile<2>(rows, row, k, count);
  for (; row < rows.rows; ++row) score_tile<1>(rows, row, k, count);
}

void softmax_rows(const Rows& rows, const int64_t* seen) {
  const Float d;
  for (int64_t row = 0; row < rows.rows; ++row) {
    const int64_t count = seen[row], padded = (count + kLanes - 1) / kLanes * kLanes;
    if (count == 0) continue;
    float* scores = rows.scores + row * kPositions;
    for (int64_t p = count; p < padded; ++p) scores[p] = -kInf;
    auto top = hn::Set(d, rows.maximum[row]);
    for (int64_t p = 0; p < padded; p += kLanes) top = hn::Max(hn::LoadU(d, scores + p), top);
    const auto maximum = hn::MaxOfLanes(d, top);
    // A row that has seen only −inf must not subtract −inf from it.
    const auto shift = hn::IfThenZeroElse(hn::Eq(maximum, hn::Set(d, -kInf)), maximum);
    const auto correction = exp2_nonpositive(d, hn::Sub(hn::Set(d, rows.maximum[row]), shift));
    auto sum = hn::Zero(d);
    for (int64_t p = 0; p < padded; p += kLanes) {
      const auto e = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, scores + p), shift));
      hn::StoreU(e, d, scores + p);
      sum = hn::Add(sum, e);
    }
    rows.sum[row] = rows.sum[row] * hn::GetLane(correction) + hn::GetLane(hn::SumOfLanes(d, sum));
    rows.maximum[row] = hn::GetLane(maximum);
    float* output = rows.output + row * rows.pitch;
    for (int64_t i = 0; i < rows.pitch; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, output + i), correction), d, output + i);
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void accumulate_tile(const Rows& rows, int64_t row, int64_t column, const float* v,
                                int64_t begin, int64_t end) {
  const Float d;
  const float* scores = rows.scores + row * kPositions;
  float* output = rows.output + row * rows.pitch + column;
  FloatVec sums[kRows][kVectors];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kVectors; ++j) {
      sums[r][j] = hn::LoadU(d, output + r * rows.pitch + j * kLanes);
    }
  }
  for (int64_t p = begin; p < end; ++p) {
    FloatVec value[kVectors];
    for (int64_t j = 0; j < kVectors; ++j) {
      value[j] = hn::LoadU(d, v + p * rows.pitch + column + j * kLanes);
    }
    for (int64_t r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(d, scores[r * kPositions + p]);
      for (int64_t j = 0; j < kVectors; ++j) {
        sums[r][j] = hn::MulAdd(weight, value[j], sums[r][j]);
      }
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t j = 0; j < kVectors; ++j) {
      hn::StoreU(sums[r][j], d, output + r * rows.pitch + j * kLanes);
    }
  }
}

// Positions [begin, end) for all elements of kRows rows.
template <int kRows>
HWY_INLINE void accumulate_strip(const Rows& rows, int64_t row, const float* v, int64_t begin,
                                 int64_t end) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= rows.pitch; column += 4 * kLanes) {
    accumulate_tile<kRows, 4>(rows, row, column, v, begin, end);
  }
  for (; column < rows.pitch; column += kLanes) {
    accumulate_tile<kRows, 1>(rows, row, column, v, begin, end);
  }
}

// The positions that all kRows rows see together, then what some see beyond them.
template <int kRows>
HWY_INLINE void accumulate_some(const Rows& rows, int64_t row, const float* v,
                                const int64_t* seen) {
  const int64_t common = *std::min_element(seen + row, seen + row + kRows);
  accumulate_strip<kRows>(rows, row, v, 0, common);
  for (int64_t r = row; r < row + kRows; ++r) {
    if (seen[r] > common) accumulate_strip<1>(rows, r, v, common, seen[r]);
  }
}

void accumulate_rows(const Rows& rows, const float* v, const int64_t* seen) {
  int64_t row = 0;
  if constexpr (kManyRegisters) {
    for (; row + 4 <= rows.rows; row += 4) accumulate_some<4>(rows, row, v, seen);
  }
  for (; row + 2 <= rows.rows; row += 2) accumulate_some<2>(rows, row, v, seen);
  for (; row < rows.rows; ++row) accumulate_some<1>(rows, row, v, seen);
}

// ---- By columns

// A tile is kWide vectors of columns × kTile positions (or output elements): as many accumulators
// as the registers hold beside the operands.
inline constexpr int64_t kWide = kManyRegisters ? 2 : 3;
inline constexpr int64_t kTile = kManyRegisters ? 8 : 4;

// Query rows per call.
inline constexpr int64_t kColumns = 2 * kWide * kLanes;
static_assert(kColumns <= attention_block::kMaxColumns);

int64_t column_count() {
  return kColumns;
}

void score_columns(const Columns& columns, const float* k, int64_t count) {
  const Float d;
  for (int64_t column = 0; column < kColumns; column += kWide * kLanes) {
    for (int64_t p = 0; p < count; p += kTile) {
      FloatVec sums[kTile][kWide];
      for (auto& position : sums) {
        for (auto& sum : position) sum = hn::Zero(d);
      }
      const float* key = k + p * columns.pitch;
      const float* query = columns.q + column;
      for (int64_t i = 0; i < columns.head_dim; ++i, query += kColumns) {
        FloatVec queries[kWide];
        for (int64_t w = 0; w < kWide; ++w) queries[w] = hn::LoadU(d, query + w * kLanes);
        for (int64_t j = 0; j < kTile; ++j) {
          const auto element = hn::Set(d, key[j * columns.pitch + i]);
          for (int64_t w = 0; w < kWide; ++w) {
            sums[j][w] = hn::MulAdd(element, queries[w], sums[j][w]);
          }
        }
      }
      for (int64_t j = 0; j < kTile; ++j) {
        for (int64_t w = 0; w < kWide; ++w) {
          hn::StoreU(sums[j][w], d, columns.scores + (p + j) * kColumns + column + w * kLanes);
        }
      }
    }
  }
}

// Sets the scores of one vector of columns to −inf where the position is out of sight.
HWY_INLINE void mask_scores(const Columns& columns, int64_t column, int64_t begin, int64_t count) {
  const Float d;
  const auto first = hn::LoadU(d, columns.first + column);
  const auto last = hn::LoadU(d, columns.last + column);
  for (int64_t p = 0; p < count; ++p) {
    const auto position = hn::Set(d, static_cast<float>(begin + p));
    const auto seen = hn::And(hn::Ge(position, first), hn::Lt(position, last));
    float* score = columns.scores + p * kColumns + column;
    hn::StoreU(hn::IfThenElse(seen, hn::LoadU(d, score), hn::Set(d, -kInf)), d, score);
  }
}

void softmax_columns(const Columns& columns, int64_t begin, int64_t count, bool masked) {
  const Float d;
  for (int64_t column = 0; column < kColumns; column += kLanes) {
    if (masked) mask_scores(columns, column, begin, count);
    float* scores = columns.scores + column;
    const auto before = hn::LoadU(d, columns.maximum + column);
    auto maximum = before;
    for (int64_t p = 0; p < count; ++p) {
      maximum = hn::Max(hn::LoadU(d, scores + p * kColumns), maximum);
    }
    // A column that has seen only −inf must not subtract −inf from it.
    const auto shift = hn::IfThenZeroElse(hn::Eq(maximum, hn::Set(d, -kInf)), maximum);
    auto sum = hn::Zero(d);
    for (int64_t p = 0; p < count; ++p) {
      const auto e = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, scores + p * kColumns), shift));
      hn::StoreU(e, d, scores + p * kColumns);
      sum = hn::Add(sum, e);
    }
    const auto correction = exp2_nonpositive(d, hn::Sub(before, shift));
    const auto total = hn::LoadU(d, columns.sum + column);
    hn::StoreU(hn::MulAdd(total, correction, sum), d, columns.sum + column);
    hn::StoreU(maximum, d, columns.maximum + column);
    if (hn::AllTrue(d, hn::Eq(correction, hn::Set(d, 1.0f)))) continue;
    for (int64_t i = 0; i < columns.head_dim; ++i) {
      float* output = columns.output + i * kColumns + column;
      hn::StoreU(hn::Mul(hn::LoadU(d, output), correction), d, output);
    }
  }
}

void accumulate_columns(const Columns& columns, const float* v, int64_t count) {
  const Float d;
  for (int64_t column = 0; column < kColumns; column += kWide * kLanes) {
    for (int64_t i = 0; i < columns.head_dim; i += kTile) {
      FloatVec sums[kTile][kWide];
      float* output = columns.output + i * kColumns + column;
      for (int64_t j = 0; j < kTile; ++j) {
        for (int64_t w = 0; w < kWide; ++w) {
          sums[j][w] = hn::LoadU(d, output + j * kColumns + w * kLanes);
        }
      }
      const float* weight = columns.scores + column;
      for (int64_t p = 0; p < count; ++p, weight += kColumns) {
        FloatVec weights[kWide];
        for (int64_t w = 0; w < kWide; ++w) weights[w] = hn::LoadU(d, weight + w * kLanes);
        const float* value = v + p * columns.pitch + i;
        for (int64_t j = 0; j < kTile; ++j) {
          const auto element = hn::Set(d, value[j]);
          for (int64_t w = 0; w < kWide; ++w) {
            sums[j][w] = hn::MulAdd(element, weights[w], sums[j][w]);
          }
        }
      }
      for (int64_t j = 0; j < kTile; ++j) {
        for (int64_t w = 0; w < kWide; ++w) {
          hn::StoreU(sums[j][w], d, output + j * kColumns + w * kLanes);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(score_rows);
HWY_EXPORT(softmax_rows);
HWY_EXPORT(accumulate_rows);
HWY_EXPORT(column_count);
HWY_EXPORT(score_columns);
HWY_EXPORT(softmax_columns);
HWY_EXPORT(accumulate_columns);

namespace attention_block {

void score_rows(const Rows& rows, const float* k, int64_t count) {
  HWY_DYNAMIC_DISPATCH(score_rows)(rows, k, count);
}
void softmax_rows(const Rows& rows, const int64_t* seen) {
  HWY_DYNAMIC_DISPATCH(softmax_rows)(rows, seen);
}
void accumulate_rows(const Rows& rows, const float* v, const int64_t* seen) {
  HWY_DYNAMIC_DISPATCH(accumulate_rows)(rows, v, seen);
}
int64_t columns() {
  return HWY_DYNAMIC_DISPATCH(column_count)();
}
void score_columns(const Columns& columns, const float* k, int64_t count) {
  HWY_DYNAMIC_DISPATCH(score_columns)(columns, k, count);
}
void softmax_columns(const Columns& columns, int64_t begin, int64_t count, bool masked) {
  HWY_DYNAMIC_DISPATCH(softmax_columns)(columns, begin, count, masked);
}
void accumulate_columns(const Columns& columns, const float* v, int64_t count) {
  HWY_DYNAMIC_DISPATCH(accumulate_columns)(columns, v, count);
}

}  // namespace attention_block
}  // namespace lumen::kernels
#endif  // HWY_ONCE
