#include "lib/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/attention_block.h"
#include "lib/kernels/attention_words.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {
namespace {

namespace block = attention_block;
namespace words = attention_words;
using block::kPositions;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A decoding query's positions are cut into at most this many chunks of at least kMinChunk, so
// that a few heads occupy many threads. The cut depends on the positions alone.
constexpr int64_t kMaxChunks = 16;
constexpr int64_t kMinChunk = 256;

// A task below this many multiply-adds is not worth a second thread.
constexpr int64_t kMinWork = 1 << 15;

int64_t pitch_of(int64_t head_dim) {
  return round_up(head_dim, block::kPadding);
}

// Floats of scratch per thread: a block of keys or values; for each query row its query and output
// (pitch each), its scores, maximum, sum and range of positions.
int64_t thread_floats(int64_t rows, int64_t head_dim) {
  const int64_t pitch = pitch_of(head_dim);
  return kPositions * pitch + round_up(rows, block::kPadding) * (2 * pitch + kPositions + 4);
}

// Takes consecutive pieces of a scratch area.
class Scratch {
 public:
  explicit Scratch(float* begin) : next_(begin) {}
  float* take(int64_t floats) {
    float* piece = next_;
    next_ += floats;
    return piece;
  }

 private:
  float* next_;
};

struct Range {
  int64_t begin, end;
};

// The positions that query `token` of batch row b sees.
Range visible(const AttentionArgs& args, int64_t b, int64_t token) {
  if (!args.causal) return {0, args.positions};
  const int64_t own = args.start[b * args.start_stride] + token;
  const int64_t end = std::min(args.positions, own + 1);
  const int64_t begin = args.window > 0 ? own + 1 - args.window : 0;
  return {std::max<int64_t>(0, begin), end};
}

const float* query_row(const AttentionArgs& args, int64_t b, int64_t token, int64_t head) {
  return args.q + b * args.q_batch_stride + token * args.q_token_stride + head * args.q_head_stride;
}

float* output_row(const AttentionArgs& args, int64_t b, int64_t token, int64_t head) {
  return args.out + ((b * args.tokens + token) * args.heads + head) * args.head_dim;
}

// What queries are multiplied by: scores come out in units of ln 2.
float query_scale(const AttentionArgs& args) {
  constexpr float kLog2E = 1.44269504089f;
  return args.scale * kLog2E;
}

// A query that sees nothing (sum 0) gives zeros.
float inverse_sum(float sum) {
  return sum == 0 ? 0.0f : 1.0f / sum;
}

int64_t slot_of(const AttentionArgs& args, int64_t b) {
  return args.slots ? args.slots[b] : b;
}

// Rows [begin, begin + count) of one head as floats, zeros up to the pitch and for the rows up to
// the next multiple of 8, which tiles read.
void load_rows(const KvView& view, int64_t slot, int64_t head, int64_t begin, int64_t count,
               int64_t head_dim, float* y) {
  const std::byte* x =
      view.data + slot * view.batch_stride + head * view.head_stride + begin * view.position_stride;
  const int64_t pitch = pitch_of(head_dim);
  if (pitch == head_dim && view.position_stride == row_bytes(view.dtype, head_dim)) {
    to_float(view.dtype, x, y, count * head_dim);
  } else {
    for (int64_t p = 0; p < count; ++p) {
      to_float(view.dtype, x + p * view.position_stride, y + p * pitch, head_dim);
      std::fill(y + p * pitch + head_dim, y + (p + 1) * pitch, 0.0f);
    }
  }
  std::fill(y + count * pitch, y + round_up(count, 8) * pitch, 0.0f);
}

// ---- Few queries: decoding, and drafts to verify

// Consecutive queries of one batch row whose positions are cut into chunks alike, so that each key
// and value is read once for all of them. The cut depends on a query's own positions alone.
struct QueryRun {
  int64_t b, token, count;
  int64_t begin, chunk;  // first position; positions per chunk
  int64_t chunks;        // of the last query, which sees most
};

int64_t chunk_length(Range range) {
  const int64_t length = range.end - range.begin;
  return std::max(kMinChunk, round_up((length + kMaxChunks - 1) / kMaxChunks, kPositions));
}

// Chunks of `chunk` positions that cover a range; one if it is empty.
int64_t chunk_count(Range range, int64_t chunk) {
  return std::max<int64_t>(1, (range.end - range.begin + chunk - 1) / chunk);
}

// Fills `runs` (up to batch · tokens) and returns how many there are.
int64_t find_runs(const AttentionArgs& args, QueryRun* runs) {
  int64_t count = 0;
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t token = 0; token < args.tokens; ++token) {
      const Range range = visible(args, b, token);
      const int64_t chunk = chunk_length(range), chunks = chunk_count(range, chunk);
      QueryRun* last = token > 0 ? runs + count - 1 : nullptr;
      if (last && last->begin == range.begin && last->chunk == chunk) {
        ++last->count;
        last->chunks = std::max(last->chunks, chunks);
      } else {
        runs[count++] = {b, token, 1, range.begin, chunk, chunks};
      }
    }
  }
  return count;
}

// The queries of `run` and one key/value head over their chunk c; leaves maximum, sum and output
// (not yet divided by the sum) in the returned rows, token · group + head within the group, which
// lie in `scratch`.
block::Rows attend_rows(const AttentionArgs& args, const QueryRun& run, int64_t kv_head, int64_t c,
                        float* scratch_begin) {
  const int64_t group = args.heads / args.kv_heads, pitch = pitch_of(args.head_dim);
  const int64_t count = run.count * group;
  Scratch scratch(scratch_begin);
  float* kv = scratch.take(kPositions * pitch);
  float* q = scratch.take(count * pitch);
  auto* seen = reinterpret_cast<int64_t*>(scratch.take(2 * count));
  const block::Rows rows{count,
                         args.head_dim,
                         pitch,
                         q,
                         scratch.take(count * kPositions),
                         scratch.take(count),
                         scratch.take(count),
                         scratch.take(count * pitch)};
  const float scale = query_scale(args);
  for (int64_t r = 0; r < count; ++r) {
    const float* x = query_row(args, run.b, run.token + r / group, kv_head * group + r % group);
    float* y = q + r * pitch;
    for (int64_t i = 0; i < args.head_dim; ++i) y[i] = x[i] * scale;
    std::fill(y + args.head_dim, y + pitch, 0.0f);
  }
  std::fill(rows.maximum, rows.maximum + count, -kInf);
  std::fill(rows.sum, rows.sum + count, 0.0f);
  std::fill(rows.output, rows.output + count * pitch, 0.0f);

  const int64_t slot = slot_of(args, run.b), first = run.begin + c * run.chunk;
  const int64_t end =
      std::min(first + run.chunk, visible(args, run.b, run.token + run.count - 1).end);
  for (int64_t begin = first; begin < end; begin += kPositions) {
    const int64_t positions = std::min(kPositions, end - begin);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t own_end = visible(args, run.b, run.token + r / group).end;
      seen[r] = std::clamp<int64_t>(own_end - begin, 0, positions);
    }
    load_rows(args.k, slot, kv_head, begin, positions, args.head_dim, kv);
    block::score_rows(rows, kv, positions);
    block::softmax_rows(rows, seen);
    load_rows(args.v, slot, kv_head, begin, positions, args.head_dim, kv);
    block::accumulate_rows(rows, kv, seen);
  }
  return rows;
}

void divide(const float* x, float sum, int64_t n, float* y) {
  const float inverse = inverse_sum(sum);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse;
}

// Joins the chunks of one head, each `pitch` outputs, maximum and sum, in their order.
void merge_chunks(float* partial, int64_t chunks, int64_t head_dim, int64_t pitch, float* out) {
  float maximum = -kInf;
  for (int64_t c = 0; c < chunks; ++c) {
    maximum = std::max(maximum, partial[c * (pitch + 2) + pitch]);
  }
  const float shift = maximum == -kInf ? 0.0f : maximum;
  float sum = 0;
  for (int64_t c = 0; c < chunks; ++c) {
    const float* x = partial + c * (pitch + 2);
    const float weight = std::exp2(x[pitch] - shift);
    sum += x[pitch + 1] * weight;
    for (int64_t i = 0; i < head_dim; ++i) {
      partial[i] = c == 0 ? x[i] * weight : partial[i] + x[i] * weight;
    }
  }
  divide(partial, sum, head_dim, out);
}

// Where the partial results of a query row lie: kMaxChunks times output, maximum and sum.
int64_t partial_floats(int64_t head_dim) {
  return kMaxChunks * (pitch_of(head_dim) + 2);
}

// Stores what chunk c gave for the queries of `run`: the result, if it is their only chunk.
void store_chunk(const AttentionArgs& args, const QueryRun& run, int64_t kv_head, int64_t c,
                 const block::Rows& rows, float* partials) {
  const int64_t group = args.heads / args.kv_heads, pitch = rows.pitch;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t token = run.token + r / group, head = kv_head * group + r % group;
    const int64_t chunks = chunk_count(visible(args, run.b, token), run.chunk);
    if (c >= chunks) continue;
    const float* output = rows.output + r * pitch;
    if (chunks == 1) {
      divide(output, rows.sum[r], args.head_dim, output_row(args, run.b, token, head));
      continue;
    }
    const int64_t row = (run.b * args.tokens + token) * args.heads + head;
    float* partial = partials + row * partial_floats(args.head_dim) + c * (pitch + 2);
    std::memcpy(partial, output, static_cast<size_t>(pitch) * sizeof(float));
    partial[pitch] = rows.maximum[r];
    partial[pitch + 1] = rows.sum[r];
  }
}

void attend_few(ThreadPool& pool, const AttentionArgs& args) {
  const int64_t group = args.heads / args.kv_heads, pitch = pitch_of(args.head_dim);
  auto* runs = reinterpret_cast<QueryRun*>(args.workspace);
  const int64_t run_count = find_runs(args, runs);
  const int64_t query_rows = args.batch * args.tokens * args.heads;
  auto* partials = reinterpret_cast<float*>(runs + args.batch * args.tokens);
  float* scratch = partials + query_rows * partial_floats(args.head_dim);
  const int64_t scratch_floats = thread_floats(args.tokens * group, args.head_dim);
  int64_t tasks = 0, work = 1;
  for (int64_t i = 0; i < run_count; ++i) {
    const QueryRun& run = runs[i];
    const int64_t seen = visible(args, run.b, run.token + run.count - 1).end - run.begin;
    tasks += args.kv_heads * run.chunks;
    work = std::max(work, std::min(run.chunk, seen) * run.count * group);
  }
  const int64_t grain = std::max<int64_t>(1, kMinWork / (work * args.head_dim));
  pool.parallel_pieces(tasks, grain, grain, [&](int64_t begin, int64_t end, int thread) {
    const QueryRun* run = runs;
    int64_t of_run = begin;  // counted from the run's first task
    for (int64_t task = begin; task < end; ++task, ++of_run) {
      while (of_run >= args.kv_heads * run->chunks) of_run -= args.kv_heads * run++->chunks;
      const int64_t kv_head = of_run / run->chunks, c = of_run % run->chunks;
      store_chunk(args, *run, kv_head, c,
                  attend_rows(args, *run, kv_head, c, scratch + thread * scratch_floats), partials);
    }
  });
  const int64_t merge_grain = std::max<int64_t>(1, kMinWork / partial_floats(args.head_dim));
  pool.parallel_for(query_rows, merge_grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = row / args.heads % args.tokens, b = row / (args.heads * args.tokens);
      const Range range = visible(args, b, token);
      const int64_t chunks = chunk_count(range, chunk_length(range));
      if (chunks == 1) continue;
      merge_chunks(partials + row * partial_floats(args.head_dim), chunks, args.head_dim, pitch,
                   args.out + row * args.head_dim);
    }
  });
}

// ---- Prompts: many query tokens

// The rows [row, row + count) of one key/value head's queries, numbered token · group + head within
// the group.
struct QueryBlock {
  int64_t b, kv_head, row, count;
};

// The queries of a block, a column each: unused columns repeat the last query, nothing special for
// the kernels.
class QueryColumns {
 public:
  QueryColumns(const AttentionArgs& args, const QueryBlock& queries, int64_t width)
      : args_(args), queries_(queries), width_(width), group_(args.heads / args.kv_heads) {}

  // q [pitch, width], scaled, with zeros beyond head_dim, and the positions that each column sees.
  void load(float* q, float* first, float* last) const {
    const float scale = query_scale(args_);
    for (int64_t c = 0; c < width_; ++c) {
      const float* x = query_row(args_, queries_.b, token_of(c), head_of(c));
      for (int64_t i = 0; i < args_.head_dim; ++i) q[i * width_ + c] = x[i] * scale;
      const Range seen = visible(args_, queries_.b, token_of(c));
      first[c] = static_cast<float>(seen.begin);
      last[c] = static_cast<float>(seen.end);
    }
    std::fill(q + args_.head_dim * width_, q + pitch_of(args_.head_dim) * width_, 0.0f);
  }

  // From output [pitch, width].
  void store(const float* output, const float* sum) const {
    for (int64_t c = 0; c < queries_.count; ++c) {
      float* y = output_row(args_, queries_.b, token_of(c), head_of(c));
      const float inverse = inverse_sum(sum[c]);
      for (int64_t i = 0; i < args_.head_dim; ++i) y[i] = output[i * width_ + c] * inverse;
    }
  }

  // What the first and the last query see.
  Range early() const { return visible(args_, queries_.b, token_of(0)); }
  Range late() const { return visible(args_, queries_.b, token_of(queries_.count - 1)); }

 private:
  int64_t row_of(int64_t c) const { return queries_.row + std::min(c, queries_.count - 1); }
  int64_t token_of(int64_t c) const { return row_of(c) / group_; }
  int64_t head_of(int64_t c) const { return queries_.kv_head * group_ + row_of(c) % group_; }

  const AttentionArgs& args_;
  QueryBlock queries_;
  int64_t width_, group_;
};

// Whether some of these positions are hidden from a query.
bool hides(Range early, Range late, int64_t begin, int64_t count) {
  return begin < late.begin || begin + count > early.end;
}

void attend_columns(const AttentionArgs& args, const QueryBlock& queries, float* scratch_begin) {
  const int64_t pitch = pitch_of(args.head_dim), width = block::columns();
  const QueryColumns query_columns(args, queries, width);
  Scratch scratch(scratch_begin);
  float* kv = scratch.take(kPositions * pitch);
  float* q = scratch.take(pitch * width);
  float* first = scratch.take(width);
  float* last = scratch.take(width);
  const block::Columns columns{args.head_dim,
                               pitch,
                               q,
                               scratch.take(kPositions * width),
                               scratch.take(width),
                               scratch.take(width),
                               scratch.take(pitch * width),
                               first,
                               last};
  query_columns.load(q, first, last);
  std::fill(columns.maximum, columns.maximum + width, -kInf);
  std::fill(columns.sum, columns.sum + width, 0.0f);
  std::fill(columns.output, columns.output + pitch * width, 0.0f);

  const int64_t slot = slot_of(args, queries.b);
  const Range early = query_columns.early(), late = query_columns.late();
  for (int64_t begin = early.begin; begin < late.end; begin += kPositions) {
    const int64_t count = std::min(kPositions, late.end - begin);
    load_rows(args.k, slot, queries.kv_head, begin, count, args.head_dim, kv);
    block::score_columns(columns, kv, count);
    block::softmax_columns(columns, begin, count, hides(early, late, begin, count));
    load_rows(args.v, slot, queries.kv_head, begin, count, args.head_dim, kv);
    block::accumulate_columns(columns, kv, count);
  }
  query_columns.store(columns.output, columns.sum);
}

// ---- Prompts over a cache of 16 or 8 bits, as int16

// Blocks of columns that share the rounding of each block of keys and values.
constexpr int64_t kWordBlocks = 8;

bool takes_words(const AttentionArgs& args) {
  constexpr int64_t kMinHeadDim = 32;
  return args.k.dtype != DType::kF32 && args.v.dtype != DType::kF32 &&
         args.head_dim >= kMinHeadDim && words::available() && !ExactProductsScope::active();
}

// Of a whole number of lines, so that every array begins on one if the first does.
int16_t* take_words(Scratch& scratch, int64_t count) {
  return reinterpret_cast<int16_t*>(scratch.take(round_up(count, 32) / 2));
}

int64_t words_thread_floats(int64_t head_dim) {
  const int64_t pitch = pitch_of(head_dim), width = words::kMaxColumns;
  const int64_t shared = kPositions * pitch + pitch * width + kPositions * pitch + 3 * kPositions +
                         kPositions * width * 3 / 2;
  return shared + kWordBlocks * (pitch * width * 3 / 2 + 5 * width);
}

void attend_words(const AttentionArgs& args, const QueryBlock& queries, float* scratch_begin) {
  const int64_t pitch = pitch_of(args.head_dim), width = words::columns();
  Scratch scratch(scratch_begin);
  float* kv = scratch.take(kPositions * pitch);
  float* q = scratch.take(pitch * width);
  const words::Keys keys{.head_dim = args.head_dim,
                         .pitch = pitch,
                         .k = take_words(scratch, kPositions * pitch),
                         .v = take_words(scratch, kPositions * pitch),
                         .k_scale = scratch.take(kPositions),
                         .v_log = scratch.take(kPositions),
                         .v_inverse = scratch.take(kPositions)};
  float* scores = scratch.take(kPositions * width);
  int16_t* weights = take_words(scratch, kPositions * width);
  const int64_t blocks = divide_up(queries.count, width);
  struct Part {
    QueryColumns columns;
    words::Queries state;
    Range early, late;
  };
  std::optional<Part> parts[kWordBlocks];
  Range all{std::numeric_limits<int64_t>::max(), 0};
  for (int64_t i = 0; i < blocks; ++i) {
    const QueryColumns columns(args,
                               {queries.b, queries.kv_head, queries.row + i * width,
                                std::min(width, queries.count - i * width)},
                               width);
    int16_t* codes = take_words(scratch, pitch * width);
    float* first = scratch.take(width);
    float* last = scratch.take(width);
    const words::Queries state{.head_dim = args.head_dim,
                               .pitch = pitch,
                               .q = codes,
                               .q_scale = scratch.take(width),
                               .maximum = scratch.take(width),
                               .sum = scratch.take(width),
                               .output = scratch.take(pitch * width),
                               .first = first,
                               .last = last,
                               .scores = scores,
                               .weights = weights};
    columns.load(q, first, last);
    words::encode_queries(q, state);
    std::fill(state.maximum, state.maximum + width, -kInf);
    std::fill(state.sum, state.sum + width, 0.0f);
    std::fill(state.output, state.output + pitch * width, 0.0f);
    parts[i].emplace(Part{columns, state, columns.early(), columns.late()});
    all = {std::min(all.begin, parts[i]->early.begin), std::max(all.end, parts[i]->late.end)};
  }

  // Blocks of positions begin at multiples of their length: the rounding of a query's weights does
  // not depend on the queries beside it.
  const int64_t slot = slot_of(args, queries.b);
  for (int64_t begin = all.begin / kPositions * kPositions; begin < all.end; begin += kPositions) {
    const int64_t count = std::min(kPositions, all.end - begin);
    load_rows(args.k, slot, queries.kv_head, begin, count, args.head_dim, kv);
    words::encode_keys(kv, count, keys);
    load_rows(args.v, slot, queries.kv_head, begin, count, args.head_dim, kv);
    words::encode_values(kv, count, keys);
    for (int64_t i = 0; i < blocks; ++i) {
      const Range early = parts[i]->early, late = parts[i]->late;
      if (begin >= late.end || begin + count <= early.begin) continue;
      words::attend(parts[i]->state, keys, begin, count, hides(early, late, begin, count));
    }
  }
  for (int64_t i = 0; i < blocks; ++i)
    parts[i]->columns.store(parts[i]->state.output, parts[i]->state.sum);
}

int64_t prompt_thread_floats(int64_t head_dim) {
  const int64_t floats = thread_floats(block::kMaxColumns, head_dim);
  return words::available() ? std::max(floats, words_thread_floats(head_dim)) : floats;
}

void prefill(ThreadPool& pool, const AttentionArgs& args) {
  const bool as_words = takes_words(args);
  const int64_t rows = args.tokens * (args.heads / args.kv_heads);
  const int64_t heads = args.batch * args.kv_heads;
  int64_t width = as_words ? words::columns() : block::columns();
  if (as_words) {
    // As many together as leave work for all threads.
    const int64_t shares = rows * heads / (4 * pool.threads() * width);
    width *= std::clamp<int64_t>(shares, 1, kWordBlocks);
  }
  const int64_t blocks = (rows + width - 1) / width;
  auto* scratch = reinterpret_cast<float*>(args.workspace);
  const int64_t scratch_floats = prompt_thread_floats(args.head_dim);
  // Causal blocks cost more the later they come: the last of a head is handed out first.
  pool.parallel_pieces(blocks * heads, 1, 1, [&](int64_t task, int64_t, int thread) {
    const int64_t head = task / blocks, index = blocks - 1 - task % blocks;
    const QueryBlock queries{head / args.kv_heads, head % args.kv_heads, index * width,
                             std::min(width, rows - index * width)};
    (as_words ? attend_words : attend_columns)(args, queries, scratch + thread * scratch_floats);
  });
}

}  // namespace

size_t attention_workspace_bytes(const AttentionArgs& sizes, int threads) {
  const int64_t tokens = sizes.tokens, head_dim = sizes.head_dim;
  if (tokens > kFewTokens) {
    return static_cast<size_t>(threads * prompt_thread_floats(head_dim)) * sizeof(float);
  }
  const int64_t floats = sizes.batch * tokens * sizes.heads * partial_floats(head_dim) +
                         threads * thread_floats(tokens * (sizes.heads / sizes.kv_heads), head_dim);
  return static_cast<size_t>(floats) * sizeof(float) +
         static_cast<size_t>(sizes.batch * tokens) * sizeof(QueryRun);
}

void attention(ThreadPool& pool, const AttentionArgs& args) {
  LUMEN_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  LUMEN_CHECK(args.head_dim % info(args.k.dtype).block_elements == 0 &&
              args.head_dim % info(args.v.dtype).block_elements == 0);
  if (args.tokens <= kFewTokens) {
    attend_few(pool, args);
  } else {
    prefill(pool, args);
  }
}

}  // namespace lumen::kernels
