#include "lib/kernels/attention_backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/attention/attention_head.h"
#include "lib/kernels/products/gemm_tile.h"

namespace lumen::kernels {
namespace {

// Columns per block of the backward pass: a multiple of every strip's width.
constexpr int64_t kColumns = 128;
constexpr int64_t kMinStrip = 8;  // columns
// Columns per task of the forward pass: keys and values are packed once per task.
constexpr int64_t kTaskColumns = 512;

int64_t blocks_of(const AttentionShape& s) {
  return divide_up(s.positions, kKeysPerTile);
}
// Rows of sums are whole tiles.
int64_t padded_dim(const AttentionShape& s) {
  return round_up(s.head_dim, kTileRows);
}

struct ForwardBuffers {
  ForwardBuffers(MemoryPieces& pieces, const AttentionShape& s)
      : keys(pieces.take(blocks_of(s) * AttentionProducts::left_floats(kKeysPerTile, s.head_dim))),
        values(
            pieces.take(blocks_of(s) * AttentionProducts::left_floats(s.head_dim, kKeysPerTile))),
        rows(pieces.take(kMaxTileCols * s.head_dim)),
        q(pieces.take(AttentionProducts::right_floats(kMaxTileCols, s.head_dim))),
        output(pieces.take(padded_dim(s) * kMaxTileCols)),
        scores(pieces.take(kKeysPerTile * kMaxTileCols)),
        weights(pieces.take(AttentionProducts::right_floats(kMaxTileCols, kKeysPerTile))),
        reference(pieces.take(kMaxTileCols)),
        sum(pieces.take(kMaxTileCols)),
        lse(pieces.take(kMaxTileCols)),
        strip(pieces, s) {}

  float *keys, *values;    // blocks of left operands
  float *rows, *q;         // of a strip, as it is and as a right operand
  float *output, *scores;  // [head_dim, width], [keys, width]
  float* weights;          // scores as a right operand
  float *reference, *sum, *lse;
  ColumnStrip::Buffers strip;
};

// Columns [begin, end) of one head.
class Forward {
 public:
  Forward(const AttentionHead& head, const ForwardBuffers& buffers, float* out, float* lse)
      : head_(head),
        s_(head.shape()),
        m_(buffers),
        out_(out),
        lse_(lse),
        strip_(head, buffers.strip) {}

  void run(int64_t begin, int64_t end) {
    head_.pack_rows(s_.k, m_.keys);
    head_.pack_transposed(s_.v, m_.values);
    for (int64_t at = begin; at < end; at += head_.width()) {
      strip_.set(at, std::min(head_.width(), end - at));
      strip();
    }
  }

 private:
  void strip() {
    const int64_t width = head_.width(), begin = strip_.begin(), count = strip_.count();
    head_.products().pack_right(head_.columns(s_.q, begin, count, m_.rows), count, width,
                                s_.head_dim, m_.q);
    begin_softmax(m_.reference, m_.sum, m_.output, width, padded_dim(s_));
    const KeyRange seen = strip_.seen();
    for (int64_t p = seen.begin / kKeysPerTile * kKeysPerTile; p < seen.end; p += kKeysPerTile)
      add_keys(p);
    attention_tile::finish_softmax(state(), width, m_.lse);
    head_.for_each_column(begin, count, [&](int64_t c, int64_t token, int64_t h) {
      lse_[(head_.batch() * s_.heads + h) * s_.tokens + token] = m_.lse[c];
    });
    attention_tile::scale_columns(m_.output, s_.head_dim, width, m_.sum);
    head_.scatter(m_.output, begin, count, out_);
  }

  void add_keys(int64_t p) {
    const int64_t keys = head_.keys_of(p);
    attention_tile::Mask mask;
    bool masked = false;
    const int64_t rows = strip_.look(p, keys, mask, masked);
    if (rows == 0) return;
    head_.multiply_rows(m_.keys, p, rows, m_.q, m_.scores);
    const AttentionProducts& products = head_.products();
    attention_tile::Tile tile = strip_.scores(p, rows, m_.scores);
    if (masked) tile.mask = &mask;
    tile.factors = strip_.factors(p, rows);
    attention_tile::softmax(tile, m_.scores, state(), products.right_panels(m_.weights, keys));
    head_.add_transposed(m_.values, p, rows, products.right_of(m_.scores, m_.weights), m_.output);
  }

  attention_tile::SoftmaxState state() const {
    return {m_.reference, m_.sum, m_.output, s_.head_dim};
  }

  const AttentionHead& head_;
  const AttentionShape& s_;
  const ForwardBuffers& m_;
  float *out_, *lse_;
  ColumnStrip strip_;
};

struct BackwardBuffers {
  BackwardBuffers(MemoryPieces& pieces, const AttentionShape& s)
      : keys(pieces.take(blocks_of(s) * AttentionProducts::left_floats(kKeysPerTile, s.head_dim))),
        values(
            pieces.take(blocks_of(s) * AttentionProducts::left_floats(kKeysPerTile, s.head_dim))),
        keys_transposed(
            pieces.take(blocks_of(s) * AttentionProducts::left_floats(s.head_dim, kKeysPerTile))),
        rows(pieces.take(kColumns * s.head_dim)),
        q(pieces.take(AttentionProducts::right_floats(kColumns, s.head_dim))),
        dout(pieces.take(AttentionProducts::right_floats(kColumns, s.head_dim))),
        q_depth(pieces.take(AttentionProducts::right_floats(s.head_dim, kColumns))),
        dout_depth(pieces.take(AttentionProducts::right_floats(s.head_dim, kColumns))),
        dq(pieces.take(padded_dim(s) * kColumns)),
        dk(pieces.take(blocks_of(s) * kKeysPerTile * padded_dim(s))),
        dv(pieces.take(blocks_of(s) * kKeysPerTile * padded_dim(s))),
        log_sum(pieces.take(kColumns)),
        delta(pieces.take(kColumns)),
        scores(pieces.take(kKeysPerTile * kMaxTileCols)),
        dscores(pieces.take(kKeysPerTile * kMaxTileCols)),
        dscores_right(pieces.take(AttentionProducts::right_floats(kMaxTileCols, kKeysPerTile))),
        weights_left(pieces.take(AttentionProducts::left_floats(kKeysPerTile, kColumns))),
        dscores_left(pieces.take(AttentionProducts::left_floats(kKeysPerTile, kColumns))),
        strip(pieces, s) {}

  float *keys, *values, *keys_transposed;   // blocks of left operands
  float* rows;                              // of a block of columns, as they are
  float *q, *dout, *q_depth, *dout_depth;   // right operands: strips of columns; columns as depth
  float* dq;                                // strips [head_dim, width]
  float *dk, *dv;                           // [positions, padded_dim]
  float *log_sum, *delta;                   // per column
  float *scores, *dscores, *dscores_right;  // of a strip
  float *weights_left, *dscores_left;       // of a block of columns
  ColumnStrip::Buffers strip;
};

// All columns of one head, block by block, the gradients of its keys and values added up in order.
class Backward {
 public:
  Backward(const AttentionHead& head, const BackwardBuffers& buffers,
           const AttentionGradients& gradients)
      : head_(head), s_(head.shape()), m_(buffers), g_(gradients), strip_(head, buffers.strip) {}

  void run() {
    head_.pack_rows(s_.k, m_.keys);
    head_.pack_rows(s_.v, m_.values);
    head_.pack_transposed(s_.k, m_.keys_transposed);
    for (float* sums : {m_.dk, m_.dv}) std::fill_n(sums, s_.positions * padded_dim(s_), 0.0f);
    for (int64_t at = 0; at < head_.columns(); at += kColumns) {
      block(at, std::min(kColumns, head_.columns() - at));
    }
    store(m_.dk, g_.dk);
    store(m_.dv, g_.dv);
  }

 private:
  void store(const float* sums, float* gradient) const {
    const int64_t row = s_.kv_heads * s_.head_dim;
    const int64_t first = head_.batch() * s_.positions * row + head_.kv_head() * s_.head_dim;
    if (g_.bf16) {
      return round_rows(sums, padded_dim(s_), s_.positions, s_.head_dim,
                        bf16_numbers(gradient) + first, row);
    }
    attention_tile::copy_rows(sums, padded_dim(s_), s_.positions, s_.head_dim, 1, gradient + first,
                              row);
  }

  void block(int64_t begin, int64_t count) {
    const int64_t width = head_.width(), padded = round_up(count, width);
    pack(head_.columns(s_.q, begin, count, m_.rows), count, m_.q, m_.q_depth);
    const PanelSource dout = head_.columns(g_.dout, begin, count, m_.rows);
    pack(dout, count, m_.dout, m_.dout_depth);
    set_sums(begin, count, dout);
    std::fill_n(m_.dq, padded * padded_dim(s_), 0.0f);

    const KeyRange seen = head_.visible(begin, count);
    for (int64_t p = seen.begin / kKeysPerTile * kKeysPerTile; p < seen.end; p += kKeysPerTile) {
      int64_t rows[kColumns / kMinStrip];
      for (int64_t c = 0; c < count; c += width) {
        strip_.set(begin + c, std::min(width, count - c));
        rows[c / width] = strip(p, c, padded);
      }
      add_columns(p, padded, rows);
    }
    for (int64_t c = 0; c < count; c += width) {
      const int64_t used = std::min(width, count - c);
      if (g_.bf16) {
        head_.scatter_rounded(dq_at(c), begin + c, used, m_.rows, bf16_numbers(g_.dq));
      } else {
        head_.scatter(dq_at(c), begin + c, used, g_.dq);
      }
    }
  }

  void pack(const PanelSource& rows, int64_t count, float* strips, float* as_depth) const {
    const int64_t padded = round_up(count, head_.width()), dim = s_.head_dim;
    const AttentionProducts& products = head_.products();
    products.pack_right(rows, count, padded, dim, strips);
    const int64_t depth = products.adds_zeros() ? count : padded;
    products.pack_right(rows.with_strides(1, rows.row_stride), dim, dim, depth, as_depth);
  }

  // Per column, ln Σ in units of ln 2, and scale · (dout · out − dlse), which all its scores'
  // gradients lack.
  void set_sums(int64_t begin, int64_t count, const PanelSource& dout) {
    const int64_t padded = round_up(count, head_.width()), b = head_.batch();
    head_.dot_columns(g_.out, begin, count, dout, m_.delta);
    head_.for_each_column(begin, count, [&](int64_t c, int64_t token, int64_t h) {
      const float dlse = g_.dlse[b * g_.dlse_batch_stride + h * g_.dlse_head_stride + token];
      m_.delta[c] = s_.scale * (m_.delta[c] - dlse);
      m_.log_sum[c] = g_.lse[(b * s_.heads + h) * s_.tokens + token] * kLog2E;
    });
    for (float* sums : {m_.log_sum, m_.delta}) std::fill_n(sums + count, padded - count, 0.0f);
  }

  float* dq_at(int64_t column) const { return m_.dq + column * padded_dim(s_); }

  // The weights of strip `c` of a block of `columns` and the gradients of its scores, against the
  // keys from `p` on, as columns of the left operands; adds to dq. Returns how many keys matter.
  int64_t strip(int64_t p, int64_t c, int64_t columns) {
    const AttentionProducts& products = head_.products();
    const int64_t width = head_.width(), keys = head_.keys_of(p);
    attention_tile::Mask mask;
    bool masked = false;
    const int64_t rows = strip_.look(p, keys, mask, masked);
    if (rows > 0) {
      const int64_t at = c / width * products.strip_floats(s_.head_dim);
      head_.multiply_rows(m_.keys, p, rows, m_.q + at, m_.scores);
      head_.multiply_rows(m_.values, p, rows, m_.dout + at, m_.dscores);
    }
    attention_tile::Tile tile = strip_.scores(p, rows, m_.scores);
    if (masked) tile.mask = &mask;
    if (rows > 0) tile.factors = strip_.factors(p, rows);
    products.softmax_grad(tile, m_.scores, m_.dscores, {m_.log_sum + c, m_.delta + c, s_.scale},
                          {rows, keys, c, width, columns},
                          {m_.dscores_right, m_.weights_left, m_.dscores_left});
    if (rows == 0) return 0;
    const float* const right = products.right_of(m_.dscores, m_.dscores_right);
    head_.add_transposed(m_.keys_transposed, p, rows, right, dq_at(c));
    return rows;
  }

  // dv[key] += Σ_column weights[key][column] · dout[column] and dk likewise, for the keys from `p`
  // on, of which the strips of columns see the first rows[…].
  void add_columns(int64_t p, int64_t columns, const int64_t* rows) const {
    const int64_t keys = head_.keys_of(p), width = head_.width();
    const int64_t strips = columns / width, chunk = 2 * head_.products().row_step();
    for (int64_t key = 0; key < keys; key += chunk) {
      const auto sees = [&](int64_t seen) { return seen > key; };
      const int64_t* const first = std::find_if(rows, rows + strips, sees);
      if (first == rows + strips) continue;
      int64_t last = strips;
      while (!sees(rows[last - 1])) --last;
      AttentionProduct product = {.left = m_.weights_left,
                                  .row = key,
                                  .rows = std::min(chunk, keys - key),
                                  .right = m_.dout_depth,
                                  .cols = s_.head_dim,
                                  .depth = columns,
                                  .begin = (first - rows) * width,
                                  .end = last * width,
                                  .add = true,
                                  .c = m_.dv + (p + key) * padded_dim(s_),
                                  .c_stride = padded_dim(s_)};
      head_.products().multiply(product);
      product.left = m_.dscores_left;
      product.right = m_.q_depth;
      product.c = m_.dk + (p + key) * padded_dim(s_);
      head_.products().multiply(product);
    }
  }

  const AttentionHead& head_;
  const AttentionShape& s_;
  const BackwardBuffers& m_;
  const AttentionGradients& g_;
  ColumnStrip strip_;
};

int64_t thread_floats(const AttentionShape& s) {
  return std::max(floats_of<ForwardBuffers>(s), floats_of<BackwardBuffers>(s));
}

// What multiplies; asked on the calling thread, as scopes are the thread's. Tiles that are partly
// empty, and packing for few products, take longer than float32 (measurements/attention.md).
const TileUnit* unit_of(const AttentionShape& s) {
  const int64_t least = s.bf16 ? 32 : 64, columns = s.tokens * (s.heads / s.kv_heads);
  const bool is_worth_tiles = std::min(columns, s.positions) >= least;
  const TileUnit* const unit = s.bf16 ? bf16_unit() : tile_unit();
  return is_worth_tiles ? unit : nullptr;
}

AttentionProducts products_of(const AttentionShape& s) {
  return AttentionProducts(unit_of(s), !s.bf16);
}

// Calls body(head, buffers, part) for all parts of all heads. The heads of a sample, whose rows
// share cache lines, are one thread's, as far as threads do not run out of work.
template <class Buffers, class Body>
void for_each_task(ThreadPool& pool, const AttentionShape& s, int64_t parts, std::byte* workspace,
                   const Body& body) {
  LUMEN_CHECK(s.kv_heads > 0 && s.heads % s.kv_heads == 0);
  auto* const memory = reinterpret_cast<float*>(workspace);
  const AttentionProducts products = products_of(s);
  const int64_t tasks = s.batch * s.kv_heads * parts;
  const int64_t piece = std::min<int64_t>(4, pool.eighth(tasks, 1));
  pool.parallel_pieces(tasks, 1, piece, [&](int64_t begin, int64_t end, int thread) {
    MemoryPieces pieces(memory + thread * thread_floats(s));
    const Buffers buffers(pieces, s);
    products.enter();
    for (int64_t task = begin; task < end; ++task) {
      const int64_t at = task / parts;
      const AttentionHead head(s, products, at / s.kv_heads, at % s.kv_heads);
      body(head, buffers, task % parts);
    }
    products.leave();
  });
}

}  // namespace

bool attention_takes_bf16(const AttentionShape& shape) {
  return shape.bf16 && unit_of(shape) != nullptr;
}

size_t attention_training_workspace_bytes(const AttentionShape& shape, int threads) {
  return static_cast<size_t>(threads * thread_floats(shape)) * sizeof(float);
}

void attention_forward(ThreadPool& pool, const AttentionShape& s, float* out, float* lse,
                       std::byte* workspace) {
  const int64_t columns = s.tokens * (s.heads / s.kv_heads);
  const int64_t chunks = divide_up(columns, kTaskColumns);
  for_each_task<ForwardBuffers>(
      pool, s, chunks, workspace,
      [&](const AttentionHead& head, const ForwardBuffers& buffers, int64_t part) {
        // Causal chunks cost more the later they come: the last is the first.
        const int64_t begin = (chunks - 1 - part) * kTaskColumns;
        Forward(head, buffers, out, lse).run(begin, std::min(columns, begin + kTaskColumns));
      });
}

void attention_backward(ThreadPool& pool, const AttentionShape& s, const AttentionGradients& g,
                        std::byte* workspace) {
  for_each_task<BackwardBuffers>(pool, s, 1, workspace,
                                 [&](const AttentionHead& head, const BackwardBuffers& buffers,
                                     int64_t) { Backward(head, buffers, g).run(); });
}

}  // namespace lumen::kernels
