#include "lib/kernels/attention_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/attention_tile.h"
#include "lib/kernels/gemm_tile.h"

namespace lumen::kernels {
namespace {

// Keys per tile, and columns (query rows of one key/value head, numbered token · group + head
// within the group) per block of the backward pass: a multiple of every strip's width.
constexpr int64_t kKeys = 128;
constexpr int64_t kColumns = 128;
// Columns per task of the forward pass: keys and values are packed once per task.
constexpr int64_t kTaskColumns = 512;

constexpr float kLog2E = 1.44269504089f;
constexpr float kLn2 = 0.693147180560f;
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Range {
  int64_t begin, end;
};

// One key/value head of one sample, with the memory of the thread that works on it.
class Head {
 public:
  Head(const AttentionShape& shape, int64_t b, int64_t kv_head, float* memory)
      : s_(shape), b_(b), kv_head_(kv_head), next_(memory) {}

  int64_t group() const { return s_.heads / s_.kv_heads; }
  int64_t columns() const { return s_.tokens * group(); }
  int64_t token(int64_t column) const { return column / group(); }
  int64_t head(int64_t column) const { return kv_head_ * group() + column % group(); }
  int64_t width() const { return tile_.cols; }
  int64_t tile_rows() const { return tile_.rows; }
  int64_t batch() const { return b_; }
  int64_t kv_head() const { return kv_head_; }
  const AttentionShape& shape() const { return s_; }

  float* take(int64_t floats) {
    float* piece = next_;
    next_ += round_up(floats, 16);
    return piece;
  }

  int64_t keys_of(int64_t begin) const { return std::min(kKeys, s_.positions - begin); }

  // Keys (or values) as rows of A, block by block: the block of position p at panel + p · head_dim.
  void pack_rows(const HeadRows& x, float* panel) const {
    for (int64_t begin = 0; begin < s_.positions; begin += kKeys) {
      pack_a({x.at(b_, begin, kv_head_), x.row_stride, 1}, keys_of(begin), s_.head_dim,
             panel + begin * s_.head_dim);
    }
  }

  // Their transpose as A, block by block: the block of position p at panel + p · padded_dim().
  void pack_transposed(const HeadRows& x, float* panel) const {
    for (int64_t begin = 0; begin < s_.positions; begin += kKeys) {
      pack_a({x.at(b_, begin, kv_head_), 1, x.row_stride}, s_.head_dim, keys_of(begin),
             panel + begin * padded_dim());
    }
  }
  int64_t padded_dim() const { return round_up(s_.head_dim, kMaxTileRows); }
  int64_t padded_positions() const { return round_up(s_.positions, kKeys); }

  void pack_a(const StripSource& from, int64_t rows, int64_t depth, float* panel) const {
    for (int64_t i = 0; i < rows;) {
      const int64_t height = strip_height(tile_, rows, i);
      pack_strip({from.x + i * from.row_stride, from.row_stride, from.col_stride},
                 std::min(height, rows - i), height, depth, height, panel + i * depth);
      i += height;
    }
  }

  // Columns [begin, begin + count) of queries or their gradients, times `factor`, as one strip of
  // B: [head_dim, width()], zeros in the other columns.
  void pack_columns(const HeadRows& x, int64_t begin, int64_t count, float factor,
                    float* panel) const {
    for_each_run(x, begin, count, [&](int64_t at, const float* from, int64_t rows, int64_t stride) {
      const int64_t padded = at + rows == count ? width() - at : rows;
      pack_strip({from, stride, 1}, rows, padded, s_.head_dim, width(), panel + at);
    });
    for (int64_t i = 0; i < s_.head_dim * width(); ++i) panel[i] *= factor;
  }

  // The same columns as the depth of B: [count] rows of head_dim, in strips of width().
  void pack_depth(const HeadRows& x, int64_t begin, int64_t count, float factor,
                  float* panel) const {
    for (int64_t i = 0; i < s_.head_dim; i += width(), panel += count * width()) {
      for_each_run(x, begin, count,
                   [&](int64_t at, const float* from, int64_t rows, int64_t stride) {
                     pack_strip({from + i, 1, stride}, std::min(width(), s_.head_dim - i), width(),
                                rows, width(), panel + at * width());
                   });
      if (factor == 1) continue;
      for (int64_t j = 0; j < count * width(); ++j) panel[j] *= factor;
    }
  }

  // The positions that a query sees, segments aside.
  Range visible(int64_t column) const {
    if (!s_.causal) return {0, s_.positions};
    const int64_t at = s_.start + token(column);
    const int64_t begin = s_.window > 0 ? at + 1 - s_.window : 0;
    return {std::max<int64_t>(0, begin), std::min(s_.positions, at + 1)};
  }

  const int32_t* segments(int64_t position) const {
    return s_.segments ? s_.segments + b_ * s_.segment_stride + position : nullptr;
  }

 private:
  // Calls body(column − begin, first row, rows, stride) for runs of equally spaced columns.
  template <class Body>
  void for_each_run(const HeadRows& x, int64_t begin, int64_t count, const Body& body) const {
    if (group() == 1) return body(0, x.at(b_, token(begin), head(begin)), count, x.row_stride);
    for (int64_t at = 0; at < count;) {
      const int64_t column = begin + at;
      const int64_t rows = std::min(count - at, group() - column % group());
      body(at, x.at(b_, token(column), head(column)), rows, x.head_stride);
      at += rows;
    }
  }

  const AttentionShape& s_;
  GemmTile tile_ = gemm_tile();
  int64_t b_, kv_head_;
  float* next_;
};

// A strip of columns and what they see.
class Strip {
 public:
  explicit Strip(Head& head)
      : head_(head), first_(head.take(head.width())), last_(head.take(head.width())) {
    segments_ = reinterpret_cast<int32_t*>(head.take(head.width()));
    if (head.shape().dropout > 0) factors_ = head.take(kKeys * head.width());
  }

  // Columns that are not used repeat the last one.
  void set(int64_t begin, int64_t count) {
    begin_ = begin;
    count_ = count;
    early_ = head_.visible(begin);
    late_ = head_.visible(begin + count - 1);
    for (int64_t c = 0; c < head_.width(); ++c) {
      const int64_t column = begin + std::min(c, count - 1);
      const Range seen = head_.visible(column);
      first_[c] = static_cast<float>(seen.begin);
      last_[c] = static_cast<float>(seen.end);
      if (head_.segments(0)) segments_[c] = *head_.segments(head_.token(column));
    }
  }
  int64_t begin() const { return begin_; }
  int64_t count() const { return count_; }
  Range seen() const { return {early_.begin, late_.end}; }

  // How many of the keys from `position` on matter, by whole strips of A; sets the tile's mask.
  int64_t look(int64_t position, int64_t keys, attention_tile::Mask& mask, bool& masked) const {
    const int64_t seen = std::min(position + keys, late_.end) - position;
    if (seen <= 0 || position + keys <= early_.begin) return 0;
    const int64_t rows = std::min(keys, round_up(seen, head_.tile_rows()));
    masked = position < late_.begin || position + rows > early_.end;
    mask = {position, first_, last_, nullptr, segments_};
    if (const int32_t* key_segments = head_.segments(position)) {
      const auto [key_low, key_high] = std::minmax_element(key_segments, key_segments + rows);
      const auto [low, high] = std::minmax_element(segments_, segments_ + count_);
      if (*key_high < *low || *key_low > *high) return 0;
      if (*key_low != *key_high || *low != *high) {
        masked = true;
        mask.key_segments = key_segments;
      }
    }
    return rows;
  }

  // The factors of dropout for `keys` keys from `position` on; null without dropout.
  const float* factors(int64_t position, int64_t keys) const {
    if (!factors_) return nullptr;
    const AttentionShape& s = head_.shape();
    const int64_t key_groups = (s.positions + 3) / 4, column_groups = (head_.columns() + 15) / 16;
    const int64_t first =
        (head_.batch() * s.kv_heads + head_.kv_head()) * column_groups * key_groups;
    attention_tile::dropout_factors(s.key, dropout_rule(s.dropout),
                                    {first, key_groups, begin_, position}, keys, head_.width(),
                                    factors_);
    return factors_;
  }

 private:
  Head& head_;
  float *first_, *last_;
  int32_t* segments_;
  float* factors_ = nullptr;
  int64_t begin_ = 0, count_ = 0;
  Range early_{}, late_{};
};

// Of a strip's factors.
int64_t dropout_floats(const AttentionShape& s) {
  return s.dropout > 0 ? kKeys * kMaxTileCols : 0;
}

int64_t forward_floats(const AttentionShape& s) {
  const int64_t positions = round_up(s.positions, kKeys), width = kMaxTileCols;
  return positions * (s.head_dim + round_up(s.head_dim, kMaxTileRows)) +
         width * (2 * s.head_dim + kKeys + 5) + dropout_floats(s) + 16 * 10;
}

// Columns [begin, end) of one head.
void forward(Head& head, int64_t begin, int64_t end, float* out, float* lse) {
  const AttentionShape& s = head.shape();
  const int64_t width = head.width();
  float* keys = head.take(head.padded_positions() * s.head_dim);
  float* values = head.take(head.padded_positions() * head.padded_dim());
  float* q = head.take(s.head_dim * width);
  float* output = head.take(s.head_dim * width);
  float* scores = head.take(kKeys * width);
  float *maximum = head.take(width), *sum = head.take(width);
  Strip strip(head);
  head.pack_rows(s.k, keys);
  head.pack_transposed(s.v, values);
  for (int64_t at = begin; at < end; at += width) {
    strip.set(at, std::min(width, end - at));
    head.pack_columns(s.q, at, strip.count(), s.scale * kLog2E, q);
    std::fill_n(maximum, width, -kInf);
    std::fill_n(sum, width, 0.0f);
    std::fill_n(output, s.head_dim * width, 0.0f);
    const Range seen = strip.seen();
    for (int64_t p = seen.begin / kKeys * kKeys; p < seen.end; p += kKeys) {
      attention_tile::Mask mask;
      bool masked = false;
      const int64_t rows = strip.look(p, head.keys_of(p), mask, masked);
      if (rows == 0) continue;
      multiply_panels(keys + p * s.head_dim, rows, q, width, s.head_dim, false, scores, width);
      attention_tile::softmax({rows, width, masked ? &mask : nullptr, strip.factors(p, rows)},
                              scores, maximum, sum, output, s.head_dim);
      // The panel of the values has the depth of the whole block: rows that nobody sees weigh 0.
      std::fill_n(scores + rows * width, (head.keys_of(p) - rows) * width, 0.0f);
      multiply_panels(values + p * head.padded_dim(), s.head_dim, scores, width, head.keys_of(p),
                      true, output, width);
    }
    for (int64_t c = 0; c < strip.count(); ++c) {
      const int64_t token = head.token(at + c), h = head.head(at + c);
      float* y = out + ((head.batch() * s.tokens + token) * s.heads + h) * s.head_dim;
      const float inverse = sum[c] == 0 ? 0.0f : 1.0f / sum[c];
      for (int64_t i = 0; i < s.head_dim; ++i) y[i] = output[i * width + c] * inverse;
      lse[(head.batch() * s.heads + h) * s.tokens + token] =
          maximum[c] == -kInf ? -kInf : maximum[c] * kLn2 + std::log(sum[c]);
    }
  }
}

int64_t backward_floats(const AttentionShape& s) {
  const int64_t positions = round_up(s.positions, kKeys);
  const int64_t dim = round_up(s.head_dim, kMaxTileRows), wide = round_up(s.head_dim, kMaxTileCols);
  return positions * (2 * s.head_dim + dim) + kColumns * (3 * s.head_dim + 2 * wide + 2) +
         3 * kColumns * kKeys + 2 * kMaxTileCols * 3 + dropout_floats(s) + 16 * 16;
}

// All columns of one head, block by block, the gradients of its keys and values added up in order.
class Backward {
 public:
  Backward(Head& head, const AttentionGradients& g)
      : head_(head),
        s_(head.shape()),
        g_(g),
        keys_(head.take(head.padded_positions() * s_.head_dim)),
        values_(head.take(head.padded_positions() * s_.head_dim)),
        keys_transposed_(head.take(head.padded_positions() * head.padded_dim())),
        q_(head.take(kColumns * s_.head_dim)),
        dout_(head.take(kColumns * s_.head_dim)),
        dq_(head.take(kColumns * s_.head_dim)),
        q_depth_(head.take(kColumns * round_up(s_.head_dim, head.width()))),
        dout_depth_(head.take(kColumns * round_up(s_.head_dim, head.width()))),
        log_sum_(head.take(kColumns)),
        delta_(head.take(kColumns)),
        p_(head.take(kColumns * kKeys)),
        ds_(head.take(kColumns * kKeys)),
        transposed_(head.take(kColumns * kKeys)),
        strip_(head) {}

  void run() {
    head_.pack_rows(s_.k, keys_);
    head_.pack_rows(s_.v, values_);
    head_.pack_transposed(s_.k, keys_transposed_);
    for (int64_t p = 0; p < s_.positions; ++p) {
      std::fill_n(g_.dk + row(p), s_.head_dim, 0.0f);
      std::fill_n(g_.dv + row(p), s_.head_dim, 0.0f);
    }
    for (int64_t at = 0; at < head_.columns(); at += kColumns) {
      block(at, std::min(kColumns, head_.columns() - at));
    }
  }

 private:
  // Of the gradients of keys and values.
  int64_t row(int64_t position) const {
    return ((head_.batch() * s_.positions + position) * s_.kv_heads + head_.kv_head()) *
           s_.head_dim;
  }

  void block(int64_t begin, int64_t count) {
    const int64_t width = head_.width(), strip_floats = s_.head_dim * width;
    for (int64_t c = 0; c < count; c += width) {
      const int64_t used = std::min(width, count - c);
      head_.pack_columns(s_.q, begin + c, used, s_.scale * kLog2E, q_ + c * s_.head_dim);
      head_.pack_columns(g_.dout, begin + c, used, 1, dout_ + c * s_.head_dim);
    }
    head_.pack_depth(s_.q, begin, count, s_.scale, q_depth_);
    head_.pack_depth(g_.dout, begin, count, 1, dout_depth_);
    set_sums(begin, count);
    std::fill_n(dq_, round_up(count, width) / width * strip_floats, 0.0f);

    const Range seen = {head_.visible(begin).begin, head_.visible(begin + count - 1).end};
    for (int64_t p = seen.begin / kKeys * kKeys; p < seen.end; p += kKeys) {
      if (!tiles(begin, count, p)) continue;
      add_rows(p_, count, p, dout_depth_, g_.dv);
      add_rows(ds_, count, p, q_depth_, g_.dk);
    }
    for (int64_t c = 0; c < count; ++c) {
      const float* from = dq_ + c / width * strip_floats + c % width;
      float* to = g_.dq + ((head_.batch() * s_.tokens + head_.token(begin + c)) * s_.heads +
                           head_.head(begin + c)) *
                              s_.head_dim;
      for (int64_t i = 0; i < s_.head_dim; ++i) to[i] = from[i * width] * s_.scale;
    }
  }

  // Per column, ln Σ in units of ln 2, and dout · out − dlse, which all its scores' gradients lack.
  void set_sums(int64_t begin, int64_t count) {
    for (int64_t c = 0; c < round_up(count, head_.width()); ++c) {
      log_sum_[c] = 0;
      delta_[c] = 0;
      if (c >= count) continue;
      const int64_t token = head_.token(begin + c), h = head_.head(begin + c);
      const int64_t at = (head_.batch() * s_.heads + h) * s_.tokens + token;
      const float* dout = g_.dout.at(head_.batch(), token, h);
      const float* out =
          g_.out + ((head_.batch() * s_.tokens + token) * s_.heads + h) * s_.head_dim;
      float sums[4] = {};
      int64_t i = 0;
      for (; i + 4 <= s_.head_dim; i += 4) {
        for (int64_t j = 0; j < 4; ++j) sums[j] += dout[i + j] * out[i + j];
      }
      for (; i < s_.head_dim; ++i) sums[0] += dout[i] * out[i];
      delta_[c] = (sums[0] + sums[1]) + (sums[2] + sums[3]) -
                  g_.dlse[head_.batch() * g_.dlse_batch_stride + h * g_.dlse_head_stride + token];
      log_sum_[c] = g_.lse[at] * kLog2E;
    }
  }

  // p and ds of all columns of the block against the keys from `p` on, strip after strip of
  // [keys, width]; adds to dq. False if no column sees any of the keys.
  bool tiles(int64_t begin, int64_t count, int64_t p) {
    const int64_t width = head_.width(), keys = head_.keys_of(p);
    bool any = false;
    for (int64_t c = 0; c < count; c += width) {
      strip_.set(begin + c, std::min(width, count - c));
      float *scores = p_ + c * keys, *dp = ds_ + c * keys;
      attention_tile::Mask mask;
      bool masked = false;
      const int64_t rows = strip_.look(p, keys, mask, masked);
      std::fill_n(scores + rows * width, (keys - rows) * width, 0.0f);
      std::fill_n(dp + rows * width, (keys - rows) * width, 0.0f);
      if (rows == 0) continue;
      any = true;
      multiply_panels(keys_ + p * s_.head_dim, rows, q_ + c * s_.head_dim, width, s_.head_dim,
                      false, scores, width);
      multiply_panels(values_ + p * s_.head_dim, rows, dout_ + c * s_.head_dim, width, s_.head_dim,
                      false, dp, width);
      attention_tile::softmax_grad({rows, width, masked ? &mask : nullptr, strip_.factors(p, rows)},
                                   scores, dp, log_sum_ + c, delta_ + c);
      multiply_panels(keys_transposed_ + p * head_.padded_dim(), s_.head_dim, dp, width, keys, true,
                      dq_ + c * s_.head_dim, width);
    }
    return any;
  }

  // gradient[key] += Σ_column weights[key][column] · x[column] for the keys from `p` on.
  void add_rows(const float* weights, int64_t count, int64_t p, const float* x, float* gradient) {
    const int64_t width = head_.width(), keys = head_.keys_of(p);
    const GemmTile tile = gemm_tile();
    for (int64_t i = 0; i < keys;) {
      const int64_t height = strip_height(tile, keys, i);
      const int64_t rows = std::min(height, keys - i);
      for (int64_t c = 0; c < count; c += width) {
        pack_strip({weights + c * keys + i * width, width, 1}, rows, height,
                   std::min(width, count - c), height, transposed_ + c * height);
      }
      multiply_panels(transposed_, rows, x, s_.head_dim, count, true, gradient + row(p + i),
                      s_.kv_heads * s_.head_dim);
      i += height;
    }
  }

  Head& head_;
  const AttentionShape& s_;
  const AttentionGradients& g_;
  float *keys_, *values_, *keys_transposed_;
  float *q_, *dout_, *dq_;        // strips [head_dim, width]
  float *q_depth_, *dout_depth_;  // strips [columns, width]
  float *log_sum_, *delta_;       // per column
  float *p_, *ds_, *transposed_;
  Strip strip_;
};

int64_t thread_floats(const AttentionShape& s) {
  return round_up(std::max(forward_floats(s), backward_floats(s)), 16);
}

}  // namespace

size_t attention_training_workspace_bytes(const AttentionShape& shape, int threads) {
  return static_cast<size_t>(threads * thread_floats(shape)) * sizeof(float);
}

void attention_forward(ThreadPool& pool, const AttentionShape& s, float* out, float* lse,
                       std::byte* workspace) {
  LUMEN_CHECK(s.kv_heads > 0 && s.heads % s.kv_heads == 0);
  auto* memory = reinterpret_cast<float*>(workspace);
  const int64_t columns = s.tokens * (s.heads / s.kv_heads), heads = s.batch * s.kv_heads;
  const int64_t chunks = (columns + kTaskColumns - 1) / kTaskColumns;
  // Causal chunks cost more the later they come: hand them out from the last, in turn.
  pool.run([&](int thread, int threads) {
    for (int64_t task = thread; task < chunks * heads; task += threads) {
      const int64_t begin = (chunks - 1 - task / heads) * kTaskColumns, at = task % heads;
      Head head(s, at / s.kv_heads, at % s.kv_heads, memory + thread * thread_floats(s));
      forward(head, begin, std::min(columns, begin + kTaskColumns), out, lse);
    }
  });
}

void attention_backward(ThreadPool& pool, const AttentionShape& s, const AttentionGradients& g,
                        std::byte* workspace) {
  LUMEN_CHECK(s.kv_heads > 0 && s.heads % s.kv_heads == 0);
  auto* memory = reinterpret_cast<float*>(workspace);
  pool.run([&](int thread, int threads) {
    for (int64_t at = thread; at < s.batch * s.kv_heads; at += threads) {
      Head head(s, at / s.kv_heads, at % s.kv_heads, memory + thread * thread_floats(s));
      Backward(head, g).run();
    }
  });
}

}  // namespace lumen::kernels
