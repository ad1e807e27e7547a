#include "lib/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/attention/attention_block.h"
#include "lib/kernels/attention/attention_prompt.h"
#include "lib/kernels/attention/attention_rows.h"

namespace lumen::kernels {
namespace {

namespace block = attention_block;
using namespace attention_rows;
using block::kPositions;

// A decoding query's positions are cut into at most this many chunks of at least kMinChunk, so
// that a few heads occupy many threads. The cut depends on the positions alone.
constexpr int64_t kMaxChunks = 16;
constexpr int64_t kMinChunk = 256;

// A task below this many multiply-adds is not worth a second thread.
constexpr int64_t kMinWork = 1 << 15;

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

// ---- Few queries: decoding, and drafts to verify

// Consecutive queries of one batch row whose positions are cut into chunks alike, so that each key
// and value is read once for all of them. The cut depends on a query's own positions alone.
struct QueryRun {
  int64_t b, token, count;
  int64_t begin, chunk;  // first position; positions per chunk
  int64_t chunks;        // of the last query, which sees most
};

int64_t chunk_length(KeyRange range) {
  const int64_t length = range.end - range.begin;
  return std::max(kMinChunk, round_up((length + kMaxChunks - 1) / kMaxChunks, kPositions));
}

// Chunks of `chunk` positions that cover a range; one if it is empty.
int64_t chunk_count(KeyRange range, int64_t chunk) {
  return std::max<int64_t>(1, (range.end - range.begin + chunk - 1) / chunk);
}

// Fills `runs` (up to batch · tokens) and returns how many there are.
int64_t find_runs(const AttentionArgs& args, QueryRun* runs) {
  int64_t count = 0;
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t token = 0; token < args.tokens; ++token) {
      const KeyRange range = visible(args, b, token);
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

// Adds their biases to the scores of the queries of `run` and one key/value head.
void add_bias(const AttentionArgs& args, const QueryRun& run, int64_t kv_head, int64_t begin,
              int64_t positions, const block::Rows& rows) {
  const int64_t group = args.heads / args.kv_heads;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t at = query_position(args, run.b, run.token + r / group);
    const float slope = query_slope(args, kv_head * group + r % group);
    const auto distance = static_cast<float>(begin - at);
    float* const scores = rows.scores + r * kPositions;
    for (int64_t p = 0; p < positions; ++p) {
      scores[p] += slope * (distance + static_cast<float>(p));
    }
  }
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
  begin_softmax(rows.maximum, rows.sum, rows.output, count, pitch);

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
    cap_scores(args, false, (count - 1) * kPositions + positions, rows.scores);
    if (args.max_bias != 0) add_bias(args, run, kv_head, begin, positions, rows);
    block::softmax_rows(rows, seen);
    load_rows(args.v, slot, kv_head, begin, positions, args.head_dim, kv);
    block::accumulate_rows(rows, kv, seen);
  }
  return rows;
}

void scale_row(const float* x, float factor, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor;
}

// Joins the chunks of a query of `head`, each `pitch` outputs, maximum and sum, in their order.
void merge_chunks(const AttentionArgs& args, int64_t head, float* partial, int64_t chunks,
                  float* out) {
  const int64_t head_dim = args.head_dim, pitch = pitch_of(head_dim);
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
  scale_row(partial, inverse_sum(args, head, shift, sum), head_dim, out);
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
      const float inverse = inverse_sum(args, head, rows.maximum[r], rows.sum[r]);
      scale_row(output, inverse, args.head_dim, output_row(args, run.b, token, head));
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
  const int64_t group = args.heads / args.kv_heads;
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
      const KeyRange range = visible(args, b, token);
      const int64_t chunks = chunk_count(range, chunk_length(range));
      if (chunks == 1) continue;
      merge_chunks(args, row % args.heads, partials + row * partial_floats(args.head_dim), chunks,
                   args.out + row * args.head_dim);
    }
  });
}

}  // namespace

size_t attention_workspace_bytes(const AttentionArgs& sizes, int threads) {
  const int64_t tokens = sizes.tokens, head_dim = sizes.head_dim;
  if (tokens > kFewTokens) return prompt_attention_bytes(sizes, threads);
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
    prompt_attention(pool, args);
  }
}

}  // namespace lumen::kernels
