#include "lib/kernels/attention/attention_prompt_tiles.h"

#include <algorithm>
#include <limits>

#include "lib/kernels/attention/attention_products.h"
#include "lib/kernels/attention/attention_tile.h"
#include "lib/kernels/memory_pieces.h"

namespace lumen::kernels {
namespace {

using namespace attention_rows;

constexpr int64_t kWidth = kPromptTileColumns;
// Positions of a tile of scores, and those that are packed before the strips take them in: what a
// strip keeps comes from L2 once for them.
constexpr int64_t kKeys = 128, kPackedKeys = 1024;

int64_t padded_dim(int64_t head_dim) {
  return round_up(head_dim, kTileRows);
}

int64_t key_floats(int64_t head_dim) {
  return AttentionProducts::left_floats(kKeys, head_dim);
}
int64_t value_floats(int64_t head_dim) {
  return AttentionProducts::left_floats(head_dim, kKeys);
}

// What all strips share.
struct SharedBuffers {
  SharedBuffers(MemoryPieces& pieces, int64_t head_dim)
      : kv(pieces.take(kKeys * pitch_of(head_dim))),
        rows(pieces.take(kWidth * head_dim)),
        keys(pieces.take(kPackedKeys / kKeys * key_floats(head_dim))),
        values(pieces.take(kPackedKeys / kKeys * value_floats(head_dim))),
        scores(pieces.take(kKeys * kWidth)),
        weights(pieces.take(AttentionProducts::right_floats(kWidth, kKeys))) {}

  float *kv, *rows;      // kKeys keys or values; a strip's queries
  float *keys, *values;  // left operands, kKeys at a time: of the scores, and the transpose
  float* scores;         // [kKeys, kWidth]
  float* weights;        // a right operand
};

// What a strip keeps.
struct StripBuffers {
  StripBuffers(MemoryPieces& pieces, int64_t head_dim)
      : q(pieces.take(AttentionProducts::right_floats(kWidth, head_dim))),
        output(pieces.take(padded_dim(head_dim) * kWidth)),
        reference(pieces.take(kWidth)),
        sum(pieces.take(kWidth)),
        first(pieces.take(kWidth)),
        last(pieces.take(kWidth)) {}

  float* q;       // a right operand
  float* output;  // [head_dim, kWidth]
  float *reference, *sum, *first, *last;
};

class PromptTiles {
 public:
  PromptTiles(const TileUnit& unit, const AttentionArgs& args, const QueryBlock& queries,
              float* memory)
      : args_(args),
        queries_(queries),
        products_(&unit, false),
        pieces_(memory),
        m_(pieces_, args.head_dim),
        strips_(divide_up(queries.count, kWidth)),
        strip_memory_(memory + pieces_.taken()) {}

  void run() {
    products_.enter();
    KeyRange all{std::numeric_limits<int64_t>::max(), 0};
    for (int64_t i = 0; i < strips_; ++i) {
      const QueryColumns columns = columns_of(i);
      begin_strip(columns, buffers_of(i));
      all = {std::min(all.begin, columns.early().begin), std::max(all.end, columns.late().end)};
    }
    for (int64_t p = all.begin / kKeys * kKeys; p < all.end; p += kPackedKeys) {
      add_positions(p, std::min(p + kPackedKeys, all.end));
    }
    for (int64_t i = 0; i < strips_; ++i) end_strip(columns_of(i), buffers_of(i));
    products_.leave();
  }

 private:
  QueryColumns columns_of(int64_t strip) const {
    const int64_t at = strip * kWidth;
    return {
        args_,
        {queries_.b, queries_.kv_head, queries_.row + at, std::min(kWidth, queries_.count - at)},
        kWidth};
  }
  StripBuffers buffers_of(int64_t strip) const {
    MemoryPieces pieces(strip_memory_ + strip * floats_of<StripBuffers>(args_.head_dim));
    return {pieces, args_.head_dim};
  }

  void begin_strip(const QueryColumns& columns, const StripBuffers& m) const {
    const int64_t dim = args_.head_dim;
    columns.for_each_run([&](int64_t c, int64_t count) {
      attention_tile::copy_rows(columns.query(c), args_.q_head_stride, count, dim,
                                query_scale(args_), m_.rows + c * dim, dim);
    });
    std::fill_n(m_.rows + columns.count() * dim, (kWidth - columns.count()) * dim, 0.0f);
    products_.pack_right({m_.rows, dim, 1}, kWidth, kWidth, dim, m.q);
    columns.load_seen(m.first, m.last);
    begin_softmax(m.reference, m.sum, m.output, kWidth, padded_dim(dim));
  }

  // Up to kPackedKeys positions.
  void add_positions(int64_t begin, int64_t end) const {
    for (int64_t p = begin; p < end; p += kKeys) pack(p, std::min(kKeys, end - p), p - begin);
    for (int64_t i = 0; i < strips_; ++i) {
      const QueryColumns columns = columns_of(i);
      const StripBuffers m = buffers_of(i);
      const KeyRange early = columns.early(), late = columns.late();
      for (int64_t p = begin; p < std::min(end, late.end); p += kKeys) {
        const int64_t count = std::min(kKeys, end - p);
        if (p + count <= early.begin) continue;
        // Whole tiles of positions.
        const int64_t rows = std::min(count, round_up(late.end - p, kTileRows));
        add_to_strip(columns, m, {p, rows, count, p - begin, hides(early, late, p, rows)});
      }
    }
  }

  // Keys and values of `count` positions, the first of them the packed one `at`.
  void pack(int64_t begin, int64_t count, int64_t at) const {
    const int64_t slot = slot_of(args_, queries_.b), dim = args_.head_dim, pitch = pitch_of(dim);
    load_rows(args_.k, slot, queries_.kv_head, begin, count, dim, m_.kv);
    products_.pack_left({m_.kv, pitch, 1}, count, dim, keys_at(at));
    load_rows(args_.v, slot, queries_.kv_head, begin, count, dim, m_.kv);
    products_.pack_left({m_.kv, 1, pitch}, dim, count, values_at(at));
  }
  float* keys_at(int64_t at) const { return m_.keys + at / kKeys * key_floats(args_.head_dim); }
  float* values_at(int64_t at) const {
    return m_.values + at / kKeys * value_floats(args_.head_dim);
  }

  // The first `rows` of `count` positions from `begin` on, the packed ones from `at` on.
  struct Keys {
    int64_t begin, rows, count, at;
    bool masked;
  };
  void add_to_strip(const QueryColumns& columns, const StripBuffers& m, const Keys& keys) const {
    products_.multiply({.left = keys_at(keys.at),
                        .row = 0,
                        .rows = keys.rows,
                        .right = m.q,
                        .cols = kWidth,
                        .depth = args_.head_dim,
                        .begin = 0,
                        .end = args_.head_dim,
                        .add = false,
                        .c = m_.scores,
                        .c_stride = kWidth});
    cap_scores(args_, true, keys.rows * kWidth, m_.scores);
    columns.add_bias(keys.begin, keys.rows, m_.scores);
    const attention_tile::Mask mask = {keys.begin, m.first, m.last, nullptr, nullptr};
    attention_tile::softmax({keys.rows, kWidth, keys.masked ? &mask : nullptr, nullptr}, m_.scores,
                            {m.reference, m.sum, m.output, args_.head_dim},
                            products_.right_panels(m_.weights, keys.count));
    products_.multiply({.left = values_at(keys.at),
                        .row = 0,
                        .rows = args_.head_dim,
                        .right = products_.right_of(m_.scores, m_.weights),
                        .cols = kWidth,
                        .depth = keys.count,
                        .begin = 0,
                        .end = keys.rows,
                        .add = true,
                        .c = m.output,
                        .c_stride = kWidth});
  }

  void end_strip(const QueryColumns& columns, const StripBuffers& m) const {
    const int64_t dim = args_.head_dim;
    for (int64_t c = 0; c < kWidth; ++c) {
      m.sum[c] = columns.inverse_sum_of(c, m.reference[c], m.sum[c]);
    }
    attention_tile::scale_columns(m.output, dim, kWidth, m.sum);
    columns.for_each_run([&](int64_t c, int64_t count) {
      pack_strip({m.output + c, kWidth, 1}, dim, dim, count, dim, columns.output(c));
    });
  }

  const AttentionArgs& args_;
  QueryBlock queries_;
  AttentionProducts products_;
  MemoryPieces pieces_;
  SharedBuffers m_;
  int64_t strips_;
  float* strip_memory_;
};

}  // namespace

int64_t prompt_tiles_floats(int64_t head_dim) {
  return floats_of<SharedBuffers>(head_dim) + kPromptTileStrips * floats_of<StripBuffers>(head_dim);
}

void attend_tiles(const TileUnit& unit, const AttentionArgs& args, const QueryBlock& queries,
                  float* memory) {
  PromptTiles(unit, args, queries, memory).run();
}

}  // namespace lumen::kernels
