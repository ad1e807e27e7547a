// The columns of attention for training: the queries of one key/value head, numbered token · group
// + head within the group, in strips of as many as a product takes, and what they see. Private to
// this room.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/base/round_up.h"
#include "lib/kernels/attention/attention_columns.h"
#include "lib/kernels/attention/attention_products.h"
#include "lib/kernels/attention/attention_tile.h"
#include "lib/kernels/attention_backward.h"
#include "lib/kernels/linear_bias.h"
#include "lib/kernels/memory_pieces.h"
#include "lib/kernels/soft_cap.h"

namespace lumen::kernels {

// Keys per tile of scores.
inline constexpr int64_t kKeysPerTile = 128;

// One key/value head of one sample.
class AttentionHead {
 public:
  AttentionHead(const AttentionShape& shape, const AttentionProducts& products, int64_t b,
                int64_t kv_head)
      : s_(shape),
        products_(products),
        b_(b),
        kv_head_(kv_head),
        group_(shape.heads / shape.kv_heads) {}

  int64_t columns() const { return s_.tokens * group_; }
  int64_t width() const { return products_.width(); }
  int64_t batch() const { return b_; }
  int64_t kv_head() const { return kv_head_; }
  const AttentionShape& shape() const { return s_; }
  const AttentionProducts& products() const { return products_; }

  // Calls body(i, token, head) for columns begin + i, i in [0, count).
  template <class Body>
  void for_each_column(int64_t begin, int64_t count, const Body& body) const {
    int64_t token = begin / group_, member = begin % group_;
    for (int64_t i = 0; i < count; ++i) {
      body(i, token, kv_head_ * group_ + member);
      if (++member < group_) continue;
      member = 0;
      ++token;
    }
  }

  int64_t keys_of(int64_t begin) const { return std::min(kKeysPerTile, s_.positions - begin); }

  // Keys (or values) as rows of left operands, block by block.
  void pack_rows(const HeadRows& x, float* blocks) const {
    for (int64_t begin = 0; begin < s_.positions; begin += kKeysPerTile) {
      products_.pack_left(rows_from(x, begin), keys_of(begin), s_.head_dim, rows_at(blocks, begin));
    }
  }
  // The block of position `begin`.
  template <class Float>
  Float* rows_at(Float* blocks, int64_t begin) const {
    return blocks +
           begin / kKeysPerTile * AttentionProducts::left_floats(kKeysPerTile, s_.head_dim);
  }

  // Their transpose likewise.
  void pack_transposed(const HeadRows& x, float* blocks) const {
    for (int64_t begin = 0; begin < s_.positions; begin += kKeysPerTile) {
      const PanelSource rows = rows_from(x, begin);
      products_.pack_left(rows.with_strides(1, x.row_stride), s_.head_dim, keys_of(begin),
                          transposed_at(blocks, begin));
    }
  }
  template <class Float>
  Float* transposed_at(Float* blocks, int64_t begin) const {
    return blocks +
           begin / kKeysPerTile * AttentionProducts::left_floats(s_.head_dim, kKeysPerTile);
  }

  // scores[key][column] = Σ_i key[i] · right[i][column] of a strip, for the first `keys` rows of
  // the block of position `begin`.
  void multiply_rows(const float* blocks, int64_t begin, int64_t keys, const float* right,
                     float* scores) const {
    products_.multiply({.left = rows_at(blocks, begin),
                        .row = 0,
                        .rows = keys,
                        .right = right,
                        .cols = width(),
                        .depth = s_.head_dim,
                        .begin = 0,
                        .end = s_.head_dim,
                        .add = false,
                        .c = scores,
                        .c_stride = width()});
  }

  // sums[i][column] += Σ_key key[i] · weights[key][column] of a strip likewise, `blocks` being
  // those of the transpose.
  void add_transposed(const float* blocks, int64_t begin, int64_t keys, const float* weights,
                      float* sums) const {
    products_.multiply({.left = transposed_at(blocks, begin),
                        .row = 0,
                        .rows = s_.head_dim,
                        .right = weights,
                        .cols = width(),
                        .depth = keys_of(begin),
                        .begin = 0,
                        .end = keys,
                        .add = true,
                        .c = sums,
                        .c_stride = width()});
  }

  // Columns [begin, begin + count) of queries or their gradients as rows: where they are or, where
  // those are not equally spaced or need zeros up to a multiple of width(), copied to `room`.
  PanelSource columns(const HeadRows& x, int64_t begin, int64_t count, float* room) const {
    const PanelSource all(x.data, 1, 1, x.bf16);
    if (group_ == 1 && products_.adds_zeros()) {
      return all.at(x.offset(b_, begin, kv_head_), 0).with_strides(x.row_stride, 1);
    }
    for_each_run(x, begin, count, [&](int64_t at, int64_t offset, int64_t run, int64_t stride) {
      const PanelSource to = PanelSource(room, 1, 1, x.bf16).at(at * s_.head_dim, 0);
      copy(all.at(offset, 0), stride, run, const_cast<float*>(to.x));
    });
    if (!products_.adds_zeros()) {
      const int64_t unused = round_up(count, width()) - count;
      std::fill_n(room + count * s_.head_dim, unused * s_.head_dim, 0.0f);
    }
    return {room, s_.head_dim, 1, x.bf16};
  }

  // dots[c] = Σ_i out[c][i] · rows[c][i] for columns [begin, begin + count) of out [batch, tokens,
  // heads, head_dim].
  void dot_columns(const float* out, int64_t begin, int64_t count, const PanelSource& rows,
                   float* dots) const {
    for_each_run(output_rows(out), begin, count,
                 [&](int64_t at, int64_t offset, int64_t run, int64_t stride) {
                   const float* const y = rows.at(at, 0).x;
                   if (rows.bf16) {
                     attention_tile::dot_rows(out + offset, stride, bf16_numbers(y),
                                              rows.row_stride, run, s_.head_dim, dots + at);
                   } else {
                     attention_tile::dot_rows(out + offset, stride, y, rows.row_stride, run,
                                              s_.head_dim, dots + at);
                   }
                 });
  }

  // Moves the first `count` columns of a strip [head_dim, width()] to y [batch, tokens, heads,
  // head_dim].
  void scatter(const float* strip, int64_t begin, int64_t count, float* y) const {
    for_each_run(
        output_rows(y), begin, count, [&](int64_t at, int64_t offset, int64_t run, int64_t stride) {
          pack_strip({strip + at, width(), 1}, s_.head_dim, s_.head_dim, run, stride, y + offset);
        });
  }

  // The same, rounded to bfloat16; `room` holds as many floats.
  void scatter_rounded(const float* strip, int64_t begin, int64_t count, float* room,
                       uint16_t* y) const {
    pack_strip({strip, width(), 1}, s_.head_dim, s_.head_dim, count, s_.head_dim, room);
    for_each_run(output_rows(nullptr), begin, count,
                 [&](int64_t at, int64_t offset, int64_t run, int64_t stride) {
                   round_rows(room + at * s_.head_dim, s_.head_dim, run, s_.head_dim, y + offset,
                              stride);
                 });
  }

  // The positions that a query sees, segments aside.
  KeyRange visible(int64_t token) const {
    if (!s_.causal) return {0, s_.positions};
    return causal_range(s_.start + token, s_.window, /*chunk=*/0, s_.positions);
  }

  // What columns [begin, begin + count) see together.
  KeyRange visible(int64_t begin, int64_t count) const {
    return {visible(begin / group_).begin, visible((begin + count - 1) / group_).end};
  }

  const int32_t* segments(int64_t position) const {
    return s_.segments ? s_.segments + b_ * s_.segment_stride + position : nullptr;
  }

 private:
  // Keys (or values) from `begin` on.
  PanelSource rows_from(const HeadRows& x, int64_t begin) const {
    return PanelSource(x.data, 1, 1, x.bf16)
        .at(x.offset(b_, begin, kv_head_), 0)
        .with_strides(x.row_stride, 1);
  }

  // `rows` rows of head_dim numbers, one behind the other.
  void copy(const PanelSource& from, int64_t stride, int64_t rows, float* to) const {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = i * s_.head_dim;
      if (from.bf16) {
        std::copy_n(bf16_numbers(from.x) + i * stride, s_.head_dim, bf16_numbers(to) + at);
      } else {
        std::copy_n(from.x + i * stride, s_.head_dim, to + at);
      }
    }
  }

  HeadRows output_rows(const float* y) const {
    const int64_t row = s_.heads * s_.head_dim;
    return {y, s_.tokens * row, row, s_.head_dim};
  }

  // Calls body(column − begin, offset of the first row, rows, stride) for runs of equally spaced
  // columns.
  template <class Body>
  void for_each_run(const HeadRows& x, int64_t begin, int64_t count, const Body& body) const {
    if (group_ == 1) return body(0, x.offset(b_, begin, kv_head_), count, x.row_stride);
    for (int64_t at = 0; at < count;) {
      const int64_t token = (begin + at) / group_, member = (begin + at) % group_;
      const int64_t rows = std::min(count - at, group_ - member);
      body(at, x.offset(b_, token, kv_head_ * group_ + member), rows, x.head_stride);
      at += rows;
    }
  }

  const AttentionShape& s_;
  const AttentionProducts& products_;
  int64_t b_, kv_head_, group_;
};

// A strip of columns and what they see.
class ColumnStrip {
 public:
  struct Buffers {
    Buffers(MemoryPieces& pieces, const AttentionShape& s)
        : first(pieces.take(kMaxTileCols)),
          last(pieces.take(kMaxTileCols)),
          segments(reinterpret_cast<int32_t*>(pieces.take(kMaxTileCols))),
          factors(s.dropout > 0 ? pieces.take(kKeysPerTile * kMaxTileCols) : nullptr) {}

    float *first, *last;
    int32_t* segments;
    float* factors;
  };

  ColumnStrip(const AttentionHead& head, const Buffers& buffers)
      : head_(head),
        first_(buffers.first),
        last_(buffers.last),
        segments_(buffers.segments),
        factors_(buffers.factors) {}

  // Columns that are not used repeat the last one.
  void set(int64_t begin, int64_t count) {
    begin_ = begin;
    count_ = count;
    const AttentionShape& s = head_.shape();
    head_.for_each_column(begin, count, [&](int64_t c, int64_t token, int64_t h) {
      late_ = head_.visible(token);
      if (c == 0) early_ = late_;
      first_[c] = static_cast<float>(late_.begin);
      last_[c] = static_cast<float>(late_.end);
      if (head_.segments(0)) segments_[c] = *head_.segments(token);
      if (s.max_bias == 0) return;
      bias_.set(c, bias_slope(s.heads, s.max_bias, h) * kLog2E, s.start + token);
    });
    const int64_t unused = head_.width() - count;
    std::fill_n(first_ + count, unused, first_[count - 1]);
    std::fill_n(last_ + count, unused, last_[count - 1]);
    if (head_.segments(0)) std::fill_n(segments_ + count, unused, segments_[count - 1]);
    for (int64_t c = count; s.max_bias != 0 && c < head_.width(); ++c) bias_.set(c, 0, 0);
  }
  int64_t begin() const { return begin_; }
  int64_t count() const { return count_; }
  KeyRange seen() const { return {early_.begin, late_.end}; }

  // How many of the keys from `position` on matter, by whole steps of rows; sets the tile's mask.
  int64_t look(int64_t position, int64_t keys, attention_tile::Mask& mask, bool& masked) const {
    const int64_t seen = std::min(position + keys, late_.end) - position;
    if (seen <= 0 || position + keys <= early_.begin) return 0;
    const int64_t rows = std::min(keys, round_up(seen, head_.products().row_step()));
    masked = position < late_.begin || position + rows > early_.end;
    const int64_t clear = position < late_.begin ? 0 : early_.end - position;
    mask = {position, first_,    last_,
            nullptr,  segments_, std::clamp<int64_t>(clear, 0, rows) / 2 * 2};
    if (const int32_t* key_segments = head_.segments(position)) {
      const auto [key_low, key_high] = std::minmax_element(key_segments, key_segments + rows);
      const auto [low, high] = std::minmax_element(segments_, segments_ + count_);
      if (*key_high < *low || *key_low > *high) return 0;
      if (*key_low != *key_high || *low != *high) {
        masked = true;
        mask.key_segments = key_segments;
        mask.clear = 0;
      }
    }
    return rows;
  }

  // `rows` rows of products of keys, from `position` on, and queries as a tile of scores, without
  // mask and factors; they become scores with their cap or bias, if there is one.
  attention_tile::Tile scores(int64_t position, int64_t rows, float* products) const {
    const AttentionShape& s = head_.shape();
    const int64_t width = head_.width();
    const float scale = s.scale * kLog2E;
    if (s.max_bias != 0) {
      bias_.apply(scale, position, rows, width, products);
      return {rows, width, nullptr, nullptr, 1};
    }
    if (s.cap == 0) return {rows, width, nullptr, nullptr, scale};
    const float cap = s.cap * kLog2E;
    soft_cap({s.scale / s.cap, cap}, head_.products().rounds(), rows * width, products);
    return {rows, width, nullptr, nullptr, 1, 1 / cap};
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
  const AttentionHead& head_;
  float *first_, *last_;
  int32_t* segments_;
  float* factors_;
  int64_t begin_ = 0, count_ = 0;
  KeyRange early_{}, late_{};
  ColumnBias bias_;
};

}  // namespace lumen::kernels
