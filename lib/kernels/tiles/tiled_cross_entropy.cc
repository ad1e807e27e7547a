#include "lib/kernels/tiles/tiled_cross_entropy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "lib/base/round_up.h"
#include "lib/kernels/memory_pieces.h"
#include "lib/kernels/soft_cap.h"
#include "lib/kernels/tiles/logit_exponentials.h"

namespace lumen::kernels {
namespace {

// Sizes are derived in ../README.md.
constexpr int64_t kStrip = kLogitRows;
constexpr int64_t kBlockClasses = 128;  // that a thread works on at a time
// Rows of a chunk are so many that their exponentials take 128 MiB, within these bounds: a batch of
// common size has several chunks, so that its logits do not lie in memory whole in any form.
constexpr int64_t kExponentialBytes = 128 << 20, kMinRows = 512, kMaxRows = 1024;
static_assert(kMinRows % kStrip == 0 && kMaxRows % kStrip == 0);
// The exponentials of so many classes' logits are kept for dhidden, more if it takes that to busy
// all threads. Sums are continued from group to group in one order: their size changes no bits.
constexpr int64_t kGroupClasses = 1024;
// A row's exponentials count from the logit of its target, so their sum is about e^loss: beyond
// this the network has diverged, and what divides by it might be too small for float32.
constexpr float kLargestSum = 0x1p90f;

// Panels of one operand, one behind the other, `depth` numbers deep.
struct Panels {
  uint16_t *high, *low;  // low null: one part
  int64_t depth;

  int64_t pitch() const { return kTileRows * depth; }
  // Of rows from `row` on, columns from `at` on.
  Bf16Panel from(int64_t row, int64_t at) const {
    const int64_t offset = row / kTileRows * pitch() + at * kTileRows;
    return {high + offset, low == nullptr ? nullptr : low + offset};
  }
};

int64_t chunk_rows(int64_t rows, int64_t classes, int64_t parts) {
  const int64_t row_bytes = classes * parts * int64_t{sizeof(uint16_t)};
  const int64_t most = std::clamp(kExponentialBytes / row_bytes, kMinRows, kMaxRows);
  return round_up(divide_up(rows, divide_up(rows, most)), kStrip);
}

int64_t parts_of(bool bf16) {
  return bf16 ? 1 : 2;
}

struct Sizes {
  int64_t rows, dim;      // of a chunk, padded
  int64_t blocks, group;  // blocks of classes; classes in a group
  int64_t parts;

  Sizes(int64_t all_rows, int64_t all_dim, int64_t classes, int threads, int64_t part_count)
      : rows(chunk_rows(all_rows, classes, part_count)),
        dim(round_up(all_dim, kStrip)),
        blocks(divide_up(classes, kBlockClasses)),
        group(
            std::min(blocks * kBlockClasses, std::max(kGroupClasses, 2 * kBlockClasses * threads))),
        parts(part_count) {}
};

Panels take_panels(MemoryPieces& pieces, int64_t rows, int64_t depth, int64_t parts) {
  static_assert(sizeof(float) == 2 * sizeof(uint16_t));
  const int64_t numbers = rows * depth;
  uint16_t* const high = bf16_numbers(pieces.take(numbers * parts / 2));
  return {high, parts == 2 && high != nullptr ? high + numbers : nullptr, depth};
}

// What a thread works with.
struct ThreadBuffers {
  Panels weight;  // a block: rows classes, columns dim; A
  float* logits;  // [kBlockClasses][kStrip]

  ThreadBuffers(MemoryPieces& pieces, const Sizes& s)
      : weight(take_panels(pieces, kBlockClasses, s.dim, s.parts)),
        logits(pieces.take(kBlockClasses * kStrip)) {}
};

struct SharedBuffers {
  // Of the chunk, as B: rows of hidden states with columns dim; and dim with columns rows, which
  // are `scaled`, [rows][dim]: hidden states times what their exponentials are still to be
  // multiplied with.
  Panels hidden, hidden_turned;
  float* scaled;
  // Of a group of classes. As A: dim, columns classes; as B: rows, columns classes.
  Panels weight_turned, group;
  Panels exponentials;  // of the chunk, as A: classes, columns rows
  float* sum;           // [blocks][rows], of all blocks in the first
  float *reference, *target_logit, *target_gradient, *scale;
  float* dhidden;  // [strips of rows][dim][kStrip]

  SharedBuffers(MemoryPieces& pieces, const Sizes& s)
      : hidden(take_panels(pieces, s.rows, s.dim, s.parts)),
        hidden_turned(take_panels(pieces, s.dim, s.rows, s.parts)),
        scaled(pieces.take(s.rows * s.dim)),
        weight_turned(take_panels(pieces, s.dim, s.group, s.parts)),
        group(take_panels(pieces, s.rows, s.group, s.parts)),
        exponentials(take_panels(pieces, s.blocks * kBlockClasses, s.rows, s.parts)),
        sum(pieces.take(s.blocks * s.rows)),
        reference(pieces.take(s.rows)),
        target_logit(pieces.take(s.rows)),
        target_gradient(pieces.take(s.rows)),
        scale(pieces.take(s.rows)),
        dhidden(pieces.take(s.rows * s.dim)) {}
};

class Loss {
 public:
  Loss(ThreadPool& pool, const TileUnit& unit, const LinearCrossEntropy& args, MemoryPieces memory,
       float* losses)
      : pool_(pool),
        unit_(unit),
        args_(args),
        sizes_(args.rows, args.dim, args.classes, pool.threads(), parts_of(args.bf16)),
        losses_(losses),
        thread_floats_(floats_of<ThreadBuffers>(sizes_)),
        thread_memory_(memory.take(pool.threads() * thread_floats_)),
        m_(memory, sizes_) {}

  bool run() {
    for (int64_t row = 0; row < args_.rows; row += sizes_.rows) {
      first_row_ = row;
      rows_ = std::min(sizes_.rows, args_.rows - row);
      pack_hidden();
      find_references();
      make_exponentials();
      if (!nonfinite_) find_losses();
      if (nonfinite_) return false;
      if (args_.dhidden) store_dhidden();
      if (args_.dweight) find_dweight();
    }
    return true;
  }

 private:
  ThreadBuffers buffers_of(int thread) const {
    MemoryPieces pieces(thread_memory_ + thread * thread_floats_);
    return {pieces, sizes_};
  }
  int64_t strips() const { return divide_up(rows_, kStrip); }
  // Of two parts, whose tiles take part in more products, nothing needs to stay in L1.
  int64_t depth_step(int64_t depth) const { return sizes_.parts == 2 ? depth : unit_.strip_depth; }

  // Columns [at, at + depth) of two panels of each operand; sums are [kStrip][c_stride].
  void multiply(const Panels& a, int64_t a_row, const Panels& b, int64_t b_row, int64_t at,
                int64_t depth, bool add, float* c, int64_t c_stride) const {
    const Bf16Panel from_a = a.from(a_row, at), from_b = b.from(b_row, at);
    unit_.multiply({.a_high = from_a.high,
                    .a_low = from_a.low,
                    .b_high = from_b.high,
                    .b_low = from_b.low,
                    .a_pitch = a.pitch(),
                    .b_pitch = b.pitch(),
                    .steps = depth / kTileDepth,
                    .row_panels = 2,
                    .col_panels = 2,
                    .add = add ? c : nullptr,
                    .add_stride = c_stride,
                    .c = c,
                    .c_stride = c_stride,
                    .low_low = true});
  }

  // Packs kStrip rows from `row` on of a matrix that has `rows`.
  void pack(const StripSource& x, int64_t row, int64_t rows, int64_t depth, PanelOrder order,
            const Bf16Panel& panel, int64_t pitch) {
    for (int64_t i = 0; i < kStrip; i += kTileRows) {
      const StripSource from = {x.x + (row + i) * x.row_stride, x.row_stride, x.col_stride};
      const Bf16Panel to = {panel.high + i / kTileRows * pitch,
                            panel.low ? panel.low + i / kTileRows * pitch : nullptr};
      const int64_t count = std::clamp<int64_t>(rows - row - i, 0, kTileRows);
      const PanelContent content = pack_bf16_panel(from, count, depth, order, to);
      if (content == PanelContent::kNonfinite) nonfinite_ = true;
    }
  }

  const float* hidden_row(int64_t row) const {
    return args_.hidden + (first_row_ + row) * args_.dim;
  }
  int32_t target_of(int64_t row) const { return args_.targets[first_row_ + row]; }
  bool has_target(int64_t row) const {
    return target_of(row) >= 0 && target_of(row) < args_.classes;
  }
  // Whether the row's exponentials are asked for.
  bool counts(int64_t row) const {
    return row < rows_ && args_.token_weights[first_row_ + row] != 0 && has_target(row);
  }
  const float* target_weight(int64_t row) const {
    return args_.weight + target_of(row) * args_.dim;
  }

  void pack_hidden() {
    pool_.parallel_for(rows_, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; i += kStrip) {
        pack({hidden_row(0), args_.dim, 1}, i, rows_, args_.dim, PanelOrder::kPairs,
             m_.hidden.from(i, 0), m_.hidden.pitch());
      }
    });
  }

  // About the logit of each row's target.
  void find_references() const {
    pool_.parallel_for(round_up(rows_, kStrip), kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        m_.reference[row] = counts(row)
                                ? capped(dot(hidden_row(row), target_weight(row), args_.dim))
                                : kBeyondLogits;
      }
    });
  }

  float capped(float logit) const {
    const float cap = args_.logit_cap;
    return cap == 0 ? logit : cap * std::tanh(logit / cap);
  }
  float slope(float capped_logit) const {
    const float part = args_.logit_cap == 0 ? 0 : capped_logit / args_.logit_cap;
    return 1 - part * part;
  }

  // Calls body(first class, classes, what the thread works with) for the blocks of classes in
  // [begin, end), whose weights are packed then.
  template <class Body>
  void for_each_block(int64_t begin, int64_t end, const Body& body) {
    const int64_t blocks = divide_up(end - begin, kBlockClasses);
    pool_.parallel_pieces(blocks, 1, 1, [&](int64_t block, int64_t, int thread) {
      const ThreadBuffers with = buffers_of(thread);
      const int64_t c = begin + block * kBlockClasses;
      const int64_t classes = std::min(kBlockClasses, end - c);
      for (int64_t i = 0; i < classes; i += kStrip) {
        pack({args_.weight, args_.dim, 1}, c + i, args_.classes, args_.dim, PanelOrder::kRows,
             with.weight.from(i, 0), with.weight.pitch());
      }
      unit_.enter();
      body(c, classes, with);
      unit_.leave();
    });
  }

  // The logits of a block of classes for kStrip rows from `row` on.
  void multiply_logits(int64_t row, int64_t classes, const ThreadBuffers& with) const {
    const int64_t step = depth_step(sizes_.dim);
    for (int64_t at = 0; at < sizes_.dim; at += step) {
      for (int64_t c = 0; c < classes; c += kStrip) {
        multiply(with.weight, c, m_.hidden, row, at, std::min(step, sizes_.dim - at), at > 0,
                 with.logits + c * kStrip, kStrip);
      }
    }
  }

  // Calls body(column, class − c) for those of kStrip rows from `row` on whose target is among
  // `classes` classes from c on.
  template <class Body>
  void for_each_target(int64_t row, int64_t c, int64_t classes, const Body& body) const {
    const int32_t* const targets = args_.targets + first_row_ + row;
    for (int64_t i = 0; i < std::min(kStrip, rows_ - row); ++i) {
      const int64_t at = targets[i] - c;
      if (at >= 0 && at < classes) body(i, at);
    }
  }

  // The exponentials of all logits and their sums, and with them dhidden but for the rows' scale,
  // group by group.
  void make_exponentials() {
    const int64_t step = args_.dhidden ? sizes_.group : args_.classes;
    for (int64_t first = 0; first < args_.classes; first += step) {
      const int64_t end = std::min(args_.classes, first + step);
      for_each_block(first, end, [&](int64_t c, int64_t classes, const ThreadBuffers& with) {
        for (int64_t row = 0; row < rows_; row += kStrip) {
          multiply_logits(row, classes, with);
          keep_exponentials(row, c, classes, c - first, with);
        }
        if (args_.dhidden) turn_weight(c, classes, c - first);
      });
      if (!args_.dhidden) continue;
      pool_.parallel_pieces(strips(), 1, 1, [&](int64_t strip, int64_t, int) {
        unit_.enter();
        add_dhidden(strip * kStrip, first, round_up(end - first, kStrip));
        unit_.leave();
      });
    }
  }

  // Of logits that are columns from `at` on of the group. Those of targets are kept apart.
  void keep_exponentials(int64_t row, int64_t c, int64_t classes, int64_t at,
                         const ThreadBuffers& with) const {
    if (const float cap = args_.logit_cap; cap != 0) {
      soft_cap({1 / cap, cap}, sizes_.parts == 1, classes * kStrip, with.logits);
    }
    for_each_target(row, c, classes, [&](int64_t i, int64_t target) {
      float& logit = with.logits[target * kStrip + i];
      m_.target_logit[row + i] = logit;
      logit = -kBeyondLogits;
    });
    const ExponentialPanels to = {
        .pairs = args_.dhidden ? m_.group.from(row, at) : Bf16Panel{},
        .pairs_pitch = m_.group.pitch(),
        .rows = args_.dweight ? m_.exponentials.from(c, row) : Bf16Panel{},
        .rows_pitch = m_.exponentials.pitch(),
        .classes = round_up(classes, kStrip),
        .two_parts = sizes_.parts == 2,
        .inverse_cap = args_.logit_cap == 0 ? 0 : 1 / args_.logit_cap,
    };
    write_exponentials(with.logits, classes, m_.reference + row, to,
                       m_.sum + c / kBlockClasses * sizes_.rows + row);
  }

  void find_losses() {
    pool_.parallel_for(round_up(rows_, kStrip), kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t block = 1; block < sizes_.blocks; ++block) {
        const float* const sum = m_.sum + block * sizes_.rows;
        for (int64_t row = begin; row < end; ++row) m_.sum[row] += sum[row];
      }
      for (int64_t row = begin; row < end; ++row) set_loss(row);
    });
  }

  void set_loss(int64_t row) {
    const float others = m_.sum[row];
    m_.scale[row] = m_.target_gradient[row] = 0;
    if (!(others < kLargestSum)) nonfinite_ = true;
    if (row >= rows_) return;
    float& loss = losses_[first_row_ + row];
    loss = 0;
    const float weight = args_.token_weights[first_row_ + row];
    if (weight == 0) return;
    if (!has_target(row)) {
      loss = m_.scale[row] = std::numeric_limits<float>::quiet_NaN();
      return;
    }
    const float target = std::exp(m_.target_logit[row] - m_.reference[row]);
    loss = std::log1p(others / target);
    m_.scale[row] = weight / (others + target);
    m_.target_gradient[row] = -others * m_.scale[row] * slope(m_.target_logit[row]);
  }

  // The weights of a block as columns from `at` on of panels whose rows are its columns.
  void turn_weight(int64_t c, int64_t classes, int64_t at) {
    for (int64_t i = 0; i < args_.dim; i += kStrip) {
      pack({args_.weight + c * args_.dim, 1, args_.dim}, i, args_.dim, classes, PanelOrder::kRows,
           m_.weight_turned.from(i, at), m_.weight_turned.pitch());
    }
  }

  void find_dweight() {
    pool_.parallel_for(rows_, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        add_multiple(hidden_row(row), m_.scale[row], args_.dim, false, m_.scaled + row * args_.dim);
      }
    });
    pool_.parallel_for(args_.dim, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; i += kStrip) {
        pack({m_.scaled, 1, args_.dim}, i, args_.dim, rows_, PanelOrder::kPairs,
             m_.hidden_turned.from(i, 0), m_.hidden_turned.pitch());
      }
    });
    pool_.parallel_pieces(sizes_.blocks, 1, 1, [&](int64_t block, int64_t, int thread) {
      const int64_t c = block * kBlockClasses;
      unit_.enter();
      add_dweight(c, std::min(kBlockClasses, args_.classes - c), buffers_of(thread));
      unit_.leave();
    });
  }

  void add_dweight(int64_t c, int64_t classes, const ThreadBuffers& with) const {
    const int64_t depth = round_up(rows_, kStrip), step = depth_step(depth);
    for (int64_t j = 0; j < args_.dim; j += kStrip) {
      const int64_t cols = std::min(kStrip, args_.dim - j);
      for (int64_t at = 0; at < depth; at += step) {
        for (int64_t i = 0; i < classes; i += kStrip) {
          multiply(m_.exponentials, c + i, m_.hidden_turned, j, at, std::min(step, depth - at),
                   at > 0, with.logits + i * kStrip, kStrip);
        }
      }
      move_sums(with.logits, kStrip, classes, cols, first_row_ > 0,
                args_.dweight + c * args_.dim + j, args_.dim);
    }
    for (int64_t row = 0; row < rows_; row += kStrip) {
      for_each_target(row, c, classes, [&](int64_t i, int64_t target) {
        add_multiple(hidden_row(row + i), m_.target_gradient[row + i], args_.dim, true,
                     args_.dweight + (c + target) * args_.dim);
      });
    }
  }

  float* dhidden_of(int64_t row) const { return m_.dhidden + row * sizes_.dim; }

  void add_dhidden(int64_t row, int64_t first, int64_t depth) const {
    const int64_t step = depth_step(depth);
    for (int64_t at = 0; at < depth; at += step) {
      for (int64_t i = 0; i < sizes_.dim; i += kStrip) {
        multiply(m_.weight_turned, i, m_.group, row, at, std::min(step, depth - at), first + at > 0,
                 dhidden_of(row) + i * kStrip, kStrip);
      }
    }
  }

  void store_dhidden() const {
    pool_.parallel_for(rows_, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; row += kStrip) {
        float* const to = args_.dhidden + (first_row_ + row) * args_.dim;
        const int64_t rows = std::min(kStrip, end - row);
        scale_columns(m_.scale + row, args_.dim, dhidden_of(row));
        for (int64_t i = 0; i < args_.dim; i += kStrip) {
          move_sums_transposed(dhidden_of(row) + i * kStrip, kStrip,
                               std::min(kStrip, args_.dim - i), rows, false, to + i, args_.dim);
        }
        for (int64_t i = 0; i < rows; ++i) {
          if (!counts(row + i)) continue;
          add_multiple(target_weight(row + i), m_.target_gradient[row + i], args_.dim, true,
                       to + i * args_.dim);
        }
      }
    });
  }

  ThreadPool& pool_;
  const TileUnit& unit_;
  const LinearCrossEntropy& args_;
  const Sizes sizes_;
  float* const losses_;
  const int64_t thread_floats_;
  float* const thread_memory_;
  const SharedBuffers m_;
  int64_t first_row_ = 0, rows_ = 0;
  std::atomic<bool> nonfinite_ = false;
};

}  // namespace

bool is_worth_tiled_loss(int64_t rows, int64_t dim, int64_t classes) {
  return rows >= kStrip && dim >= kTileDepth && classes >= 2 * kGroupClasses;
}

size_t tiled_loss_bytes(int64_t rows, int64_t dim, int64_t classes, int threads, bool bf16) {
  const Sizes sizes(rows, dim, classes, threads, parts_of(bf16));
  const int64_t floats =
      threads * floats_of<ThreadBuffers>(sizes) + floats_of<SharedBuffers>(sizes);
  return static_cast<size_t>(floats) * sizeof(float);
}

bool tiled_linear_cross_entropy(ThreadPool& pool, const TileUnit& unit,
                                const LinearCrossEntropy& args, std::byte* workspace,
                                float* losses) {
  MemoryPieces memory(reinterpret_cast<float*>(workspace));
  return Loss(pool, unit, args, memory, losses).run();
}

}  // namespace lumen::kernels
