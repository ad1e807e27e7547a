#include "lib/kernels/tiled_cross_entropy.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "lib/base/round_up.h"
#include "lib/kernels/memory_pieces.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/tiled_cross_entropy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/bf16_parts-inl.h"
#include "lib/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Logits are [classes][kTileStrip]: a column per row of the hidden states.
constexpr int64_t kTileStrip = 2 * kTileRows;

using RowsTag = hn::CappedTag<float, kTileRows>;

// exp x for x ≤ 0; `coarse`, for sums and gradients of bfloat16 products, has an error of 2.6e-6.
template <bool kCoarse>
HWY_INLINE hn::Vec<RowsTag> exp_of_logit(hn::Vec<RowsTag> x) {
  const RowsTag d;
  return kCoarse ? exp2_coarse(d, hn::Mul(x, hn::Set(d, kLog2E))) : exp_nonpositive(d, x);
}

template <bool kCoarse>
void logit_statistics(const float* logits, int64_t classes, float* maximum, float* sum) {
  const RowsTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::max());
  for (int64_t i = 0; i < kTileStrip; i += lanes) {
    auto top0 = lowest, top1 = lowest;
    for (int64_t c = 0; c + 2 <= classes; c += 2) {
      top0 = hn::Max(top0, hn::Load(d, logits + c * kTileStrip + i));
      top1 = hn::Max(top1, hn::Load(d, logits + (c + 1) * kTileStrip + i));
    }
    if (classes % 2) top0 = hn::Max(top0, hn::Load(d, logits + (classes - 1) * kTileStrip + i));
    const auto top = hn::Max(top0, top1);
    auto total = hn::Zero(d);
    for (int64_t c = 0; c < classes; ++c) {
      const auto x = hn::Load(d, logits + c * kTileStrip + i);
      total = hn::Add(total, exp_of_logit<kCoarse>(hn::Sub(x, top)));
    }
    hn::StoreU(top, d, maximum + i);
    hn::StoreU(total, d, sum + i);
  }
}

// max x and Σ exp(x − max) of each column.
void column_statistics(bool coarse, const float* logits, int64_t classes, float* maximum,
                       float* sum) {
  (coarse ? logit_statistics<true> : logit_statistics<false>)(logits, classes, maximum, sum);
}

// The statistics of all blocks, `stride` apart, as those of the first.
void join_statistics(int64_t blocks, int64_t stride, float* maximum, float* sum) {
  const RowsTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < kTileStrip; i += lanes) {
    auto top = hn::LoadU(d, maximum + i);
    for (int64_t b = 1; b < blocks; ++b) top = hn::Max(top, hn::LoadU(d, maximum + b * stride + i));
    auto total = hn::Zero(d);
    for (int64_t b = 0; b < blocks; ++b) {
      const auto weight = exp_nonpositive(d, hn::Sub(hn::LoadU(d, maximum + b * stride + i), top));
      total = hn::MulAdd(weight, hn::LoadU(d, sum + b * stride + i), total);
    }
    hn::StoreU(top, d, maximum + i);
    hn::StoreU(total, d, sum + i);
  }
}

// Two classes and two vectors of rows at a time: what is stored is a whole number of panels' rows.
template <bool kTwoParts>
class LogitGradientWriter {
 public:
  LogitGradientWriter(const float* logits, int64_t classes, const GradientPanels& to)
      : logits_(logits), classes_(classes), to_(to) {}

  void write(const float* maximum, const float* scale) const {
    for (int64_t i = 0; i < kTileStrip; i += 2 * kLanes) {
      for (int64_t c = 0; c < to_.classes; c += 2) {
        RowsVector x[2][2];
        for (int64_t k = 0; k < 2; ++k) {
          for (int64_t j = 0; j < 2; ++j) {
            x[k][j] = gradient(c + k, i + j * kLanes, maximum, scale);
          }
        }
        store(c, i, x);
      }
    }
  }

 private:
  using RowsVector = hn::Vec<RowsTag>;
  static constexpr int64_t kLanes = hn::MaxLanes(RowsTag());

  HWY_INLINE RowsVector gradient(int64_t c, int64_t i, const float* maximum,
                                 const float* scale) const {
    if (c >= classes_) return hn::Zero(d_);
    const auto x = hn::Sub(hn::Load(d_, logits_ + c * kTileStrip + i), hn::LoadU(d_, maximum + i));
    return hn::Mul(exp_of_logit<!kTwoParts>(x), hn::LoadU(d_, scale + i));
  }

  HWY_INLINE void store(int64_t c, int64_t i, const RowsVector (&x)[2][2]) const {
    for (int64_t j = 0; j < 2 && to_.pairs.high; ++j) {
      const int64_t at = to_.place_in_pairs(c, i + j * kLanes);
      store_pair_of<kTwoParts>(x[0][j], x[1][j], to_.pairs.high, to_.pairs.low, at);
    }
    for (int64_t k = 0; k < 2 && to_.rows.high; ++k) {
      const int64_t at = to_.place_in_rows(c + k, i);
      store_row_of<kTwoParts>(x[k][0], x[k][1], to_.rows.high, to_.rows.low, at);
    }
  }

  RowsTag d_;
  const float* logits_;
  int64_t classes_;
  const GradientPanels& to_;
};

// exp(x − maximum) · scale of `classes` classes, then zeros.
void write_gradients(const float* logits, int64_t classes, const float* maximum, const float* scale,
                     const GradientPanels& to) {
  if (to.two_parts) return LogitGradientWriter<true>(logits, classes, to).write(maximum, scale);
  LogitGradientWriter<false>(logits, classes, to).write(maximum, scale);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(column_statistics);
HWY_EXPORT(join_statistics);
HWY_EXPORT(write_gradients);

namespace {

// Sizes are derived in README.md.
constexpr int64_t kStrip = 2 * kTileRows;
constexpr int64_t kMaxRows = 1024;      // of a chunk
constexpr int64_t kBlockClasses = 128;  // that a thread works on at a time
// The gradients of so many classes' logits are kept, more if it takes that to busy all threads.
// Sums are continued from group to group in one order: their size changes no bits.
constexpr int64_t kGroupClasses = 1024;

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

int64_t chunk_rows(int64_t rows) {
  return round_up(divide_up(rows, divide_up(rows, kMaxRows)), kStrip);
}

struct Sizes {
  int64_t rows, dim;      // of a chunk, padded
  int64_t blocks, group;  // blocks of classes; classes in a group
  int64_t parts;

  Sizes(int64_t all_rows, int64_t all_dim, int64_t classes, int threads, int64_t part_count)
      : rows(chunk_rows(all_rows)),
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
  Panels weight;    // a block: rows classes, columns dim; A
  Panels gradient;  // of a block's logits: rows classes, columns rows of the chunk; A
  float* logits;    // [kBlockClasses][kStrip]

  ThreadBuffers(MemoryPieces& pieces, const Sizes& s)
      : weight(take_panels(pieces, kBlockClasses, s.dim, s.parts)),
        gradient(take_panels(pieces, kBlockClasses, s.rows, s.parts)),
        logits(pieces.take(kBlockClasses * kStrip)) {}
};

struct SharedBuffers {
  // Of the chunk, as B: rows of hidden states with columns dim; and dim with columns rows.
  Panels hidden, hidden_turned;
  // Of a group of classes. As A: dim, columns classes; as B: rows, columns classes.
  Panels weight_turned, gradient;
  float *maximum, *sum;  // [blocks][rows], of all blocks in the first
  float *target_logit, *scale;
  float* dhidden;  // [strips of rows][dim][kStrip]

  SharedBuffers(MemoryPieces& pieces, const Sizes& s)
      : hidden(take_panels(pieces, s.rows, s.dim, s.parts)),
        hidden_turned(take_panels(pieces, s.dim, s.rows, s.parts)),
        weight_turned(take_panels(pieces, s.dim, s.group, s.parts)),
        gradient(take_panels(pieces, s.rows, s.group, s.parts)),
        maximum(pieces.take(s.blocks * s.rows)),
        sum(pieces.take(s.blocks * s.rows)),
        target_logit(pieces.take(s.rows)),
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
        sizes_(args.rows, args.dim, args.classes, pool.threads(), args.bf16 ? 1 : 2),
        losses_(losses),
        thread_floats_(floats_of<ThreadBuffers>(sizes_)),
        thread_memory_(memory.take(pool.threads() * thread_floats_)),
        m_(memory, sizes_) {}

  bool run() {
    for (int64_t row = 0; row < args_.rows; row += sizes_.rows) {
      first_row_ = row;
      rows_ = std::min(sizes_.rows, args_.rows - row);
      pack_hidden();
      find_statistics();
      if (nonfinite_) return false;
      find_losses();
      if (!args_.dhidden && !args_.dweight) continue;
      for (int64_t c = 0; c < args_.classes; c += sizes_.group) differentiate_group(c);
      if (args_.dhidden) store_dhidden();
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

  void pack_hidden() {
    const float* const x = args_.hidden + first_row_ * args_.dim;
    pool_.parallel_for(rows_, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; i += kStrip) {
        pack({x, args_.dim, 1}, i, rows_, args_.dim, PanelOrder::kPairs, m_.hidden.from(i, 0),
             m_.hidden.pitch());
      }
    });
    if (!args_.dweight) return;
    pool_.parallel_for(args_.dim, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; i += kStrip) {
        pack({x, 1, args_.dim}, i, args_.dim, rows_, PanelOrder::kPairs,
             m_.hidden_turned.from(i, 0), m_.hidden_turned.pitch());
      }
    });
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

  void find_statistics() {
    const auto statistics = HWY_DYNAMIC_DISPATCH(column_statistics);
    for_each_block(0, args_.classes, [&](int64_t c, int64_t classes, const ThreadBuffers& with) {
      const int64_t block = c / kBlockClasses * sizes_.rows;
      for (int64_t row = 0; row < rows_; row += kStrip) {
        multiply_logits(row, classes, with);
        statistics(sizes_.parts == 1, with.logits, classes, m_.maximum + block + row,
                   m_.sum + block + row);
        for_each_target(row, c, classes, [&](int64_t i, int64_t at) {
          m_.target_logit[row + i] = with.logits[at * kStrip + i];
        });
      }
    });
  }

  void find_losses() {
    pool_.parallel_for(rows_, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; row += kStrip) {
        HWY_DYNAMIC_DISPATCH(join_statistics)
        (sizes_.blocks, sizes_.rows, m_.maximum + row, m_.sum + row);
      }
      for (int64_t row = begin; row < round_up(end, kStrip); ++row) set_loss(row);
    });
  }

  void set_loss(int64_t row) {
    m_.scale[row] = 0;
    if (row >= rows_) return;
    const float weight = args_.token_weights[first_row_ + row];
    const int32_t target = args_.targets[first_row_ + row];
    float& loss = losses_[first_row_ + row];
    loss = 0;
    if (weight == 0) return;
    if (target < 0 || target >= args_.classes) {
      loss = m_.scale[row] = std::numeric_limits<float>::quiet_NaN();
      return;
    }
    loss = m_.maximum[row] - m_.target_logit[row] + std::log(m_.sum[row]);
    m_.scale[row] = weight / m_.sum[row];
  }

  // Adds what the logits of a group of classes from `first` on contribute to the gradients.
  void differentiate_group(int64_t first) {
    const int64_t end = std::min(args_.classes, first + sizes_.group);
    for_each_block(first, end, [&](int64_t c, int64_t classes, const ThreadBuffers& with) {
      for (int64_t row = 0; row < rows_; row += kStrip) {
        multiply_logits(row, classes, with);
        keep_gradient(row, c, classes, c - first, with);
      }
      if (args_.dhidden) turn_weight(c, classes, c - first);
      if (args_.dweight) add_dweight(c, classes, with);
    });
    if (!args_.dhidden) return;
    pool_.parallel_pieces(strips(), 1, 1, [&](int64_t strip, int64_t, int) {
      unit_.enter();
      add_dhidden(strip * kStrip, first, round_up(end - first, kStrip));
      unit_.leave();
    });
  }

  // Token weight · (softmax − one-hot) of logits that are columns from `at` on of the group.
  void keep_gradient(int64_t row, int64_t c, int64_t classes, int64_t at,
                     const ThreadBuffers& with) const {
    const GradientPanels to = {
        .pairs = args_.dhidden ? m_.gradient.from(row, at) : Bf16Panel{},
        .pairs_pitch = m_.gradient.pitch(),
        .rows = args_.dweight ? with.gradient.from(0, row) : Bf16Panel{},
        .rows_pitch = with.gradient.pitch(),
        .classes = round_up(classes, kStrip),
        .two_parts = sizes_.parts == 2,
    };
    HWY_DYNAMIC_DISPATCH(write_gradients)
    (with.logits, classes, m_.maximum + row, m_.scale + row, to);
    for_each_target(row, c, classes, [&](int64_t i, int64_t target) {
      const float softmax = std::exp(with.logits[target * kStrip + i] - m_.maximum[row + i]);
      const float x = softmax * m_.scale[row + i] - args_.token_weights[first_row_ + row + i];
      store_number(x, to.pairs, to.place_in_pairs(target, i));
      store_number(x, to.rows, to.place_in_rows(target, i));
    });
  }

  static void store_number(float x, const Bf16Panel& panel, int64_t at) {
    if (panel.high == nullptr) return;
    const bf16 high = to_bf16(x);
    panel.high[at] = std::bit_cast<uint16_t>(high);
    if (panel.low) panel.low[at] = std::bit_cast<uint16_t>(to_bf16(x - to_float(high)));
  }

  // The weights of a block as columns from `at` on of panels whose rows are its columns.
  void turn_weight(int64_t c, int64_t classes, int64_t at) {
    for (int64_t i = 0; i < args_.dim; i += kStrip) {
      pack({args_.weight + c * args_.dim, 1, args_.dim}, i, args_.dim, classes, PanelOrder::kRows,
           m_.weight_turned.from(i, at), m_.weight_turned.pitch());
    }
  }

  void add_dweight(int64_t c, int64_t classes, const ThreadBuffers& with) const {
    const int64_t depth = round_up(rows_, kStrip), step = depth_step(depth);
    for (int64_t j = 0; j < args_.dim; j += kStrip) {
      const int64_t cols = std::min(kStrip, args_.dim - j);
      for (int64_t at = 0; at < depth; at += step) {
        for (int64_t i = 0; i < classes; i += kStrip) {
          multiply(with.gradient, i, m_.hidden_turned, j, at, std::min(step, depth - at), at > 0,
                   with.logits + i * kStrip, kStrip);
        }
      }
      move_sums(with.logits, kStrip, classes, cols, first_row_ > 0,
                args_.dweight + c * args_.dim + j, args_.dim);
    }
  }

  float* dhidden_of(int64_t row) const { return m_.dhidden + row * sizes_.dim; }

  void add_dhidden(int64_t row, int64_t first, int64_t depth) const {
    const int64_t step = depth_step(depth);
    for (int64_t at = 0; at < depth; at += step) {
      for (int64_t i = 0; i < sizes_.dim; i += kStrip) {
        multiply(m_.weight_turned, i, m_.gradient, row, at, std::min(step, depth - at),
                 first + at > 0, dhidden_of(row) + i * kStrip, kStrip);
      }
    }
  }

  void store_dhidden() const {
    pool_.parallel_for(rows_, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; row += kStrip) {
        for (int64_t i = 0; i < args_.dim; i += kStrip) {
          move_sums_transposed(dhidden_of(row) + i * kStrip, kStrip,
                               std::min(kStrip, args_.dim - i), std::min(kStrip, end - row), false,
                               args_.dhidden + (first_row_ + row) * args_.dim + i, args_.dim);
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

size_t tiled_loss_bytes(int64_t rows, int64_t dim, int64_t classes, int threads) {
  const Sizes sizes(rows, dim, classes, threads, 2);
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
#endif  // HWY_ONCE
