#include "lib/kernels/attention/attention_prompt.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "lib/kernels/attention/attention_block.h"
#include "lib/kernels/attention/attention_prompt_tiles.h"
#include "lib/kernels/attention/attention_rows.h"
#include "lib/kernels/attention/attention_words.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/memory_pieces.h"

namespace lumen::kernels {
namespace {

namespace block = attention_block;
namespace words = attention_words;
using namespace attention_rows;
using block::kPositions;

// The queries of `columns` as q [pitch, width], scaled, with zeros beyond head_dim.
void load_queries(const AttentionArgs& args, const QueryColumns& columns, int64_t width, float* q) {
  const float scale = query_scale(args);
  for (int64_t c = 0; c < width; ++c) {
    const float* x = columns.query(c);
    for (int64_t i = 0; i < args.head_dim; ++i) q[i * width + c] = x[i] * scale;
  }
  std::fill(q + args.head_dim * width, q + pitch_of(args.head_dim) * width, 0.0f);
}

// Their results, from output [pitch, width].
void store_results(const AttentionArgs& args, const QueryColumns& columns, int64_t width,
                   const float* output, const float* maximum, const float* sum) {
  for (int64_t c = 0; c < columns.count(); ++c) {
    float* y = columns.output(c);
    const float inverse = columns.inverse_sum_of(c, maximum[c], sum[c]);
    for (int64_t i = 0; i < args.head_dim; ++i) y[i] = output[i * width + c] * inverse;
  }
}

// ---- In float32

struct ColumnBuffers {
  ColumnBuffers(MemoryPieces& pieces, int64_t head_dim)
      : kv(pieces.take(kPositions * pitch_of(head_dim))),
        q(pieces.take(pitch_of(head_dim) * block::kMaxColumns)),
        scores(pieces.take(kPositions * block::kMaxColumns)),
        output(pieces.take(pitch_of(head_dim) * block::kMaxColumns)),
        maximum(pieces.take(block::kMaxColumns)),
        sum(pieces.take(block::kMaxColumns)),
        first(pieces.take(block::kMaxColumns)),
        last(pieces.take(block::kMaxColumns)) {}

  float* kv;  // a block of keys or values
  float *q, *scores, *output, *maximum, *sum, *first, *last;
};

void attend_columns(const AttentionArgs& args, const QueryBlock& queries, float* memory) {
  const int64_t pitch = pitch_of(args.head_dim), width = block::columns();
  const QueryColumns query_columns(args, queries, width);
  MemoryPieces pieces(memory);
  const ColumnBuffers m(pieces, args.head_dim);
  const block::Columns columns{args.head_dim, pitch,    m.q,     m.scores, m.maximum,
                               m.sum,         m.output, m.first, m.last};
  load_queries(args, query_columns, width, m.q);
  query_columns.load_seen(m.first, m.last);
  begin_softmax(m.maximum, m.sum, m.output, width, pitch);

  const int64_t slot = slot_of(args, queries.b);
  const KeyRange early = query_columns.early(), late = query_columns.late();
  for (int64_t begin = early.begin; begin < late.end; begin += kPositions) {
    const int64_t count = std::min(kPositions, late.end - begin);
    load_rows(args.k, slot, queries.kv_head, begin, count, args.head_dim, m.kv);
    block::score_columns(columns, m.kv, count);
    cap_scores(args, false, count * width, m.scores);
    query_columns.add_bias(begin, count, m.scores);
    block::softmax_columns(columns, begin, count, hides(early, late, begin, count));
    load_rows(args.v, slot, queries.kv_head, begin, count, args.head_dim, m.kv);
    block::accumulate_columns(columns, m.kv, count);
  }
  store_results(args, query_columns, width, m.output, m.maximum, m.sum);
}

// ---- Over a cache of 16 or 8 bits, as int16

// Heads of fewer dimensions stay in float32, as do those with linear biases.
constexpr int64_t kMinHeadDim = 32;

// Blocks of columns that share the rounding of each block of keys and values.
constexpr int64_t kWordBlocks = 8;

bool takes_words(const AttentionArgs& args) {
  return args.k.dtype != DType::kF32 && args.v.dtype != DType::kF32 &&
         args.head_dim >= kMinHeadDim && args.max_bias == 0 && words::available() &&
         !ExactProductsScope::active();
}

int16_t* take_words(MemoryPieces& pieces, int64_t count) {
  return reinterpret_cast<int16_t*>(pieces.take(divide_up(count, 2)));
}

// What a block of columns keeps.
struct WordColumnBuffers {
  WordColumnBuffers(MemoryPieces& pieces, int64_t head_dim)
      : codes(take_words(pieces, pitch_of(head_dim) * words::kMaxColumns)),
        q_scale(pieces.take(words::kMaxColumns)),
        maximum(pieces.take(words::kMaxColumns)),
        sum(pieces.take(words::kMaxColumns)),
        output(pieces.take(pitch_of(head_dim) * words::kMaxColumns)),
        first(pieces.take(words::kMaxColumns)),
        last(pieces.take(words::kMaxColumns)) {}

  int16_t* codes;
  float *q_scale, *maximum, *sum, *output, *first, *last;
};

// What all of them share.
struct WordBuffers {
  WordBuffers(MemoryPieces& pieces, int64_t head_dim)
      : kv(pieces.take(kPositions * pitch_of(head_dim))),
        q(pieces.take(pitch_of(head_dim) * words::kMaxColumns)),
        k(take_words(pieces, kPositions * pitch_of(head_dim))),
        v(take_words(pieces, kPositions * pitch_of(head_dim))),
        k_scale(pieces.take(kPositions)),
        v_log(pieces.take(kPositions)),
        v_inverse(pieces.take(kPositions)),
        scores(pieces.take(kPositions * words::kMaxColumns)),
        weights(take_words(pieces, kPositions * words::kMaxColumns)) {}

  float *kv, *q;
  int16_t *k, *v;
  float *k_scale, *v_log, *v_inverse;
  float* scores;
  int16_t* weights;
};

int64_t word_floats(int64_t head_dim) {
  return floats_of<WordBuffers>(head_dim) + kWordBlocks * floats_of<WordColumnBuffers>(head_dim);
}

void attend_words(const AttentionArgs& args, const QueryBlock& queries, float* memory) {
  const int64_t pitch = pitch_of(args.head_dim), width = words::columns();
  MemoryPieces pieces(memory);
  const WordBuffers m(pieces, args.head_dim);
  const words::Keys keys{args.head_dim, pitch, m.k, m.v, m.k_scale, m.v_log, m.v_inverse};
  const int64_t blocks = divide_up(queries.count, width);
  struct Part {
    QueryColumns columns;
    words::Queries state;
    KeyRange early, late;
  };
  std::optional<Part> parts[kWordBlocks];
  KeyRange all{std::numeric_limits<int64_t>::max(), 0};
  for (int64_t i = 0; i < blocks; ++i) {
    const QueryColumns columns(args,
                               {queries.b, queries.kv_head, queries.row + i * width,
                                std::min(width, queries.count - i * width)},
                               width);
    const WordColumnBuffers own(pieces, args.head_dim);
    const words::Queries state{args.head_dim, pitch,    own.codes,  own.q_scale,
                               own.maximum,   own.sum,  own.output, own.first,
                               own.last,      m.scores, m.weights,  score_cap(args)};
    load_queries(args, columns, width, m.q);
    columns.load_seen(own.first, own.last);
    words::encode_queries(m.q, state);
    begin_softmax(state.maximum, state.sum, state.output, width, pitch);
    parts[i].emplace(Part{columns, state, columns.early(), columns.late()});
    all = {std::min(all.begin, parts[i]->early.begin), std::max(all.end, parts[i]->late.end)};
  }

  // Blocks of positions begin at multiples of their length: the rounding of a query's weights does
  // not depend on the queries beside it.
  const int64_t slot = slot_of(args, queries.b);
  for (int64_t begin = all.begin / kPositions * kPositions; begin < all.end; begin += kPositions) {
    const int64_t count = std::min(kPositions, all.end - begin);
    load_rows(args.k, slot, queries.kv_head, begin, count, args.head_dim, m.kv);
    words::encode_keys(m.kv, count, keys);
    load_rows(args.v, slot, queries.kv_head, begin, count, args.head_dim, m.kv);
    words::encode_values(m.kv, count, keys);
    for (int64_t i = 0; i < blocks; ++i) {
      const KeyRange early = parts[i]->early, late = parts[i]->late;
      if (begin >= late.end || begin + count <= early.begin) continue;
      words::attend(parts[i]->state, keys, begin, count, hides(early, late, begin, count));
    }
  }
  for (int64_t i = 0; i < blocks; ++i) {
    const words::Queries& state = parts[i]->state;
    store_results(args, parts[i]->columns, width, state.output, state.maximum, state.sum);
  }
}

// ---- Which of them

// How queries are taken: blocks of up to `most` times `width` columns by `attend`.
struct Way {
  int64_t width, most;
  void (*attend)(const AttentionArgs& args, const QueryBlock& queries, float* memory);
};

Way way_of(const AttentionArgs& args) {
  if (takes_words(args)) return {words::columns(), kWordBlocks, attend_words};
  return {block::columns(), 1, attend_columns};
}

bool may_take_tiles(const AttentionArgs& args) {
  return args.bf16 && args.head_dim >= kMinHeadDim;
}

int64_t thread_floats(const AttentionArgs& args) {
  int64_t floats = floats_of<ColumnBuffers>(args.head_dim);
  if (words::available()) floats = std::max(floats, word_floats(args.head_dim));
  return may_take_tiles(args) ? std::max(floats, prompt_tiles_floats(args.head_dim)) : floats;
}

}  // namespace

size_t prompt_attention_bytes(const AttentionArgs& sizes, int threads) {
  return static_cast<size_t>(threads * thread_floats(sizes)) * sizeof(float);
}

void prompt_attention(ThreadPool& pool, const AttentionArgs& args) {
  const int64_t rows = args.tokens * (args.heads / args.kv_heads);
  const int64_t heads = args.batch * args.kv_heads;
  const TileUnit* const unit = may_take_tiles(args) ? tile_unit() : nullptr;
  const Way way = unit ? Way{kPromptTileColumns, kPromptTileStrips, nullptr} : way_of(args);
  // As many together as leave work for all threads.
  const int64_t shares = rows * heads / (4 * pool.threads() * way.width);
  const int64_t width = way.width * std::clamp<int64_t>(shares, 1, way.most);
  const int64_t blocks = divide_up(rows, width);
  auto* const memory = reinterpret_cast<float*>(args.workspace);
  const int64_t floats = thread_floats(args);
  // Causal blocks cost more the later they come: the last of a head is handed out first.
  pool.parallel_pieces(blocks * heads, 1, 1, [&](int64_t task, int64_t, int thread) {
    const int64_t head = task / blocks, index = blocks - 1 - task % blocks;
    const QueryBlock queries{head / args.kv_heads, head % args.kv_heads, index * width,
                             std::min(width, rows - index * width)};
    float* const own = memory + thread * floats;
    unit ? attend_tiles(*unit, args, queries, own) : way.attend(args, queries, own);
  });
}

}  // namespace lumen::kernels
