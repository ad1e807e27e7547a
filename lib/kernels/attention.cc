#include "lib/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lib/base/check.h"
#include "lib/kernels/attention_block.h"
#include "lib/kernels/convert.h"

namespace lumen::kernels {
namespace {

namespace block = attention_block;
using block::kPositions;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A decoding query's positions are cut into at most this many chunks of at least kMinChunk, so
// that a few heads occupy many threads. The cut depends on the positions alone.
constexpr int64_t kMaxChunks = 16;
constexpr int64_t kMinChunk = 256;

// A task below this many multiply-adds is not worth a second thread.
constexpr int64_t kMinWork = 1 << 15;

int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}
int64_t pitch_of(int64_t head_dim) {
  return round_up(head_dim, block::kPadding);
}

// Floats of scratch per thread: a block of keys or values; for each query row its query and output
// (pitch each), its scores, maximum, sum and range of positions.
int64_t thread_floats(int64_t rows, int64_t head_dim) {
  const int64_t pitch = pitch_of(head_dim);
  return kPositions * pitch + round_up(rows, block::kPadding) * (2 * pitch + kPositions + 4);
}

// Rows of scratch that suffice for a prompt and, so that a plan for many tokens can run one, for
// decoding.
int64_t prefill_rows(int64_t heads) {
  return std::max(heads, block::kMaxColumns);
}

// Floats of the partial results of one decoding query: output, maximum and sum per chunk.
int64_t partial_floats(int64_t heads, int64_t head_dim) {
  return heads * kMaxChunks * (pitch_of(head_dim) + 2);
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

// The positions that query `token` sees.
Range visible(const AttentionArgs& args, int64_t token) {
  if (!args.causal) return {0, args.positions};
  const int64_t end = std::min(args.positions, args.start + token + 1);
  const int64_t begin = args.window > 0 ? args.start + token + 1 - args.window : 0;
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

// Rows [begin, begin + count) of one head as floats, zeros up to the pitch and for the rows up to
// the next multiple of 8, which tiles read.
void load_rows(const KvView& view, int64_t b, int64_t head, int64_t begin, int64_t count,
               int64_t head_dim, float* y) {
  const std::byte* x =
      view.data + b * view.batch_stride + head * view.head_stride + begin * view.position_stride;
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

// ---- Decoding: one query token

// The query heads of one key/value head over the positions of `range`; leaves maximum, sum and
// output (not yet divided by the sum) in the returned rows, which lie in `scratch`.
block::Rows attend_rows(const AttentionArgs& args, int64_t b, int64_t kv_head, Range range,
                        float* scratch_begin) {
  const int64_t group = args.heads / args.kv_heads, pitch = pitch_of(args.head_dim);
  Scratch scratch(scratch_begin);
  float* kv = scratch.take(kPositions * pitch);
  float* q = scratch.take(group * pitch);
  const block::Rows rows{group,
                         args.head_dim,
                         pitch,
                         q,
                         scratch.take(group * kPositions),
                         scratch.take(group),
                         scratch.take(group),
                         scratch.take(group * pitch)};
  const float scale = query_scale(args);
  for (int64_t g = 0; g < group; ++g) {
    const float* x = query_row(args, b, 0, kv_head * group + g);
    float* y = q + g * pitch;
    for (int64_t i = 0; i < args.head_dim; ++i) y[i] = x[i] * scale;
    std::fill(y + args.head_dim, y + pitch, 0.0f);
  }
  std::fill(rows.maximum, rows.maximum + group, -kInf);
  std::fill(rows.sum, rows.sum + group, 0.0f);
  std::fill(rows.output, rows.output + group * pitch, 0.0f);

  for (int64_t begin = range.begin; begin < range.end; begin += kPositions) {
    const int64_t count = std::min(kPositions, range.end - begin);
    load_rows(args.k, b, kv_head, begin, count, args.head_dim, kv);
    block::score_rows(rows, kv, count);
    block::softmax_rows(rows, count);
    load_rows(args.v, b, kv_head, begin, count, args.head_dim, kv);
    block::accumulate_rows(rows, kv, count);
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

void decode(ThreadPool& pool, const AttentionArgs& args) {
  const int64_t group = args.heads / args.kv_heads, pitch = pitch_of(args.head_dim);
  const Range range = visible(args, 0);
  const int64_t length = range.end - range.begin;
  const int64_t chunk =
      std::max(kMinChunk, round_up((length + kMaxChunks - 1) / kMaxChunks, kPositions));
  const int64_t chunks = std::max<int64_t>(1, (length + chunk - 1) / chunk);
  float* partials = reinterpret_cast<float*>(args.workspace);
  float* scratch = partials + partial_floats(args.heads, args.head_dim);
  const int64_t scratch_floats = thread_floats(args.heads, args.head_dim);
  const int64_t work = std::max<int64_t>(1, std::min(length, chunk) * group * args.head_dim);
  const int64_t grain = std::max<int64_t>(1, kMinWork / work);

  for (int64_t b = 0; b < args.batch; ++b) {
    pool.parallel_for(args.kv_heads * chunks, grain, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t kv_head = task / chunks, c = task % chunks;
        const int64_t first = range.begin + c * chunk;
        const block::Rows rows =
            attend_rows(args, b, kv_head, {first, std::min(range.end, first + chunk)},
                        scratch + thread * scratch_floats);
        for (int64_t g = 0; g < group; ++g) {
          const int64_t head = kv_head * group + g;
          const float* output = rows.output + g * pitch;
          if (chunks == 1) {
            divide(output, rows.sum[g], args.head_dim, output_row(args, b, 0, head));
            continue;
          }
          float* partial = partials + (head * chunks + c) * (pitch + 2);
          std::memcpy(partial, output, static_cast<size_t>(pitch) * sizeof(float));
          partial[pitch] = rows.maximum[g];
          partial[pitch + 1] = rows.sum[g];
        }
      }
    });
    if (chunks == 1) continue;
    for (int64_t head = 0; head < args.heads; ++head) {
      merge_chunks(partials + head * chunks * (pitch + 2), chunks, args.head_dim, pitch,
                   output_row(args, b, 0, head));
    }
  }
}

// ---- Prompts: many query tokens

// The rows [row, row + count) of one key/value head's queries, numbered token · group + head within
// the group.
struct QueryBlock {
  int64_t b, kv_head, row, count;
};

void attend_columns(const AttentionArgs& args, const QueryBlock& queries, float* scratch_begin) {
  const int64_t group = args.heads / args.kv_heads, pitch = pitch_of(args.head_dim);
  const int64_t width = block::columns();
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
  const auto token_of = [&](int64_t c) { return (queries.row + c) / group; };
  const auto head_of = [&](int64_t c) {
    return queries.kv_head * group + (queries.row + c) % group;
  };
  const float scale = query_scale(args);
  // Unused columns repeat the last query: nothing special for the kernels.
  for (int64_t c = 0; c < width; ++c) {
    const int64_t used = std::min(c, queries.count - 1);
    const float* x = query_row(args, queries.b, token_of(used), head_of(used));
    for (int64_t i = 0; i < args.head_dim; ++i) q[i * width + c] = x[i] * scale;
    const Range seen = visible(args, token_of(used));
    first[c] = static_cast<float>(seen.begin);
    last[c] = static_cast<float>(seen.end);
  }
  std::fill(columns.maximum, columns.maximum + width, -kInf);
  std::fill(columns.sum, columns.sum + width, 0.0f);
  std::fill(columns.output, columns.output + pitch * width, 0.0f);

  const Range early = visible(args, token_of(0));
  const Range late = visible(args, token_of(queries.count - 1));
  for (int64_t begin = early.begin; begin < late.end; begin += kPositions) {
    const int64_t count = std::min(kPositions, late.end - begin);
    const bool masked = begin < late.begin || begin + count > early.end;
    load_rows(args.k, queries.b, queries.kv_head, begin, count, args.head_dim, kv);
    block::score_columns(columns, kv, count);
    block::softmax_columns(columns, begin, count, masked);
    load_rows(args.v, queries.b, queries.kv_head, begin, count, args.head_dim, kv);
    block::accumulate_columns(columns, kv, count);
  }

  for (int64_t c = 0; c < queries.count; ++c) {
    float* y = output_row(args, queries.b, token_of(c), head_of(c));
    const float inverse = inverse_sum(columns.sum[c]);
    for (int64_t i = 0; i < args.head_dim; ++i) y[i] = columns.output[i * width + c] * inverse;
  }
}

void prefill(ThreadPool& pool, const AttentionArgs& args) {
  const int64_t rows = args.tokens * (args.heads / args.kv_heads);
  const int64_t width = block::columns();
  const int64_t blocks = (rows + width - 1) / width;
  const int64_t heads = args.batch * args.kv_heads;
  float* scratch =
      reinterpret_cast<float*>(args.workspace) + partial_floats(args.heads, args.head_dim);
  const int64_t scratch_floats = thread_floats(prefill_rows(args.heads), args.head_dim);
  // Causal blocks cost more the later they come: hand them out from the last, in turn.
  pool.run([&](int thread, int threads) {
    for (int64_t task = thread; task < blocks * heads; task += threads) {
      const int64_t index = blocks - 1 - task / heads, head = task % heads;
      const QueryBlock queries{head / args.kv_heads, head % args.kv_heads, index * width,
                               std::min(width, rows - index * width)};
      attend_columns(args, queries, scratch + thread * scratch_floats);
    }
  });
}

}  // namespace

size_t attention_workspace_bytes(int64_t tokens, int64_t heads, int64_t head_dim, int threads) {
  const int64_t rows = tokens == 1 ? heads : prefill_rows(heads);
  const int64_t floats = partial_floats(heads, head_dim) + threads * thread_floats(rows, head_dim);
  return static_cast<size_t>(floats) * sizeof(float);
}

void attention(ThreadPool& pool, const AttentionArgs& args) {
  LUMEN_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  LUMEN_CHECK(args.head_dim % info(args.k.dtype).block_elements == 0 &&
              args.head_dim % info(args.v.dtype).block_elements == 0);
  if (args.tokens == 1) {
    decode(pool, args);
  } else {
    prefill(pool, args);
  }
}

}  // namespace lumen::kernels
