// What all ways to compute attention share: which positions a query sees, where its rows lie, and
// rows of the cache as floats. Private to this room.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "lib/base/round_up.h"
#include "lib/kernels/attention.h"
#include "lib/kernels/attention/attention_block.h"
#include "lib/kernels/attention/attention_columns.h"
#include "lib/kernels/linear_bias.h"
#include "lib/kernels/soft_cap.h"

namespace lumen::kernels::attention_rows {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// Floats from one row of keys or values to the next.
inline int64_t pitch_of(int64_t head_dim) {
  return round_up(head_dim, attention_block::kPadding);
}

// Where query `token` of batch row b stands.
inline int64_t query_position(const AttentionArgs& args, int64_t b, int64_t token) {
  return args.start[b * args.start_stride] + token;
}

// The positions that it sees.
inline KeyRange visible(const AttentionArgs& args, int64_t b, int64_t token) {
  if (!args.causal) return {0, args.positions};
  return causal_range(query_position(args, b, token), args.window, args.chunk, args.positions);
}

inline const float* query_row(const AttentionArgs& args, int64_t b, int64_t token, int64_t head) {
  return args.q + b * args.q_batch_stride + token * args.q_token_stride + head * args.q_head_stride;
}

inline float* output_row(const AttentionArgs& args, int64_t b, int64_t token, int64_t head) {
  return args.out + ((b * args.tokens + token) * args.heads + head) * args.head_dim;
}

// What queries are multiplied by: scores come out in units of ln 2.
inline float query_scale(const AttentionArgs& args) {
  return args.scale * kLog2E;
}

// The cap of scores in units of ln 2; 0: none.
inline float score_cap(const AttentionArgs& args) {
  return args.cap * kLog2E;
}

// Caps n scores in units of ln 2, if there is a cap.
inline void cap_scores(const AttentionArgs& args, bool coarse, int64_t n, float* scores) {
  if (args.cap == 0) return;
  soft_cap({1 / score_cap(args), score_cap(args)}, coarse, n, scores);
}

// The slope of a head's bias in units of ln 2.
inline float query_slope(const AttentionArgs& args, int64_t head) {
  return bias_slope(args.heads, args.max_bias, head) * kLog2E;
}

// What the output of a query of `head` is multiplied by: 1 / Σ 2^(score − maximum), the sink of the
// head among the scores. A query that sees nothing (sum 0) gives zeros.
inline float inverse_sum(const AttentionArgs& args, int64_t head, float maximum, float sum) {
  if (sum == 0) return 0.0f;
  if (args.sinks != nullptr) sum += std::exp2(args.sinks[head] * kLog2E - maximum);
  return 1.0f / sum;
}

inline int64_t slot_of(const AttentionArgs& args, int64_t b) {
  return args.slots ? args.slots[b] : b;
}

// Rows [begin, begin + count) of one head as floats, zeros up to the pitch and for the rows up to
// the next multiple of 8, which tiles read.
void load_rows(const KvView& view, int64_t slot, int64_t head, int64_t begin, int64_t count,
               int64_t head_dim, float* y);

// The rows [row, row + count) of one key/value head's queries, numbered token · group + head within
// the group.
struct QueryBlock {
  int64_t b, kv_head, row, count;
};

// The queries of a block, a column each: columns beyond the last repeat it, nothing special for
// the kernels.
class QueryColumns {
 public:
  QueryColumns(const AttentionArgs& args, const QueryBlock& queries, int64_t width)
      : args_(args), queries_(queries), width_(width), group_(args.heads / args.kv_heads) {
    if (args.max_bias == 0) return;
    for (int64_t c = 0; c < width; ++c) {
      bias_.set(c, query_slope(args, head_of(c)), query_position(args, queries.b, token_of(c)));
    }
  }

  int64_t count() const { return queries_.count; }

  // The query of column c, its output, and the positions that it sees.
  const float* query(int64_t c) const {
    return query_row(args_, queries_.b, token_of(c), head_of(c));
  }
  float* output(int64_t c) const { return output_row(args_, queries_.b, token_of(c), head_of(c)); }
  float inverse_sum_of(int64_t c, float maximum, float sum) const {
    return inverse_sum(args_, head_of(c), maximum, sum);
  }
  KeyRange seen(int64_t c) const { return visible(args_, queries_.b, token_of(c)); }

  // Calls body(column, columns) for runs of heads of one token, whose queries lie q_head_stride
  // apart and whose outputs one behind the other.
  template <class Body>
  void for_each_run(const Body& body) const {
    for (int64_t c = 0; c < queries_.count;) {
      const int64_t count = std::min(queries_.count - c, group_ - row_of(c) % group_);
      body(c, count);
      c += count;
    }
  }

  // What each column sees, as kernels take it.
  void load_seen(float* first, float* last) const;

  // Adds their biases, if there are any, to scores [count][width] from position `begin` on.
  void add_bias(int64_t begin, int64_t count, float* scores) const {
    if (args_.max_bias != 0) bias_.apply(1, begin, count, width_, scores);
  }

  // What the first and the last query see.
  KeyRange early() const { return seen(0); }
  KeyRange late() const { return seen(queries_.count - 1); }

 private:
  int64_t row_of(int64_t c) const { return queries_.row + std::min(c, queries_.count - 1); }
  int64_t token_of(int64_t c) const { return row_of(c) / group_; }
  int64_t head_of(int64_t c) const { return queries_.kv_head * group_ + row_of(c) % group_; }

  const AttentionArgs& args_;
  QueryBlock queries_;
  int64_t width_, group_;
  ColumnBias bias_;
};

// Whether some of these positions are hidden from a query.
inline bool hides(KeyRange early, KeyRange late, int64_t begin, int64_t count) {
  return begin < late.begin || begin + count > early.end;
}

}  // namespace lumen::kernels::attention_rows
