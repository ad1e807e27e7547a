#include "lib/kernels/tiled_cross_entropy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "lib/base/round_up.h"
#include "lib/kernels/bf16_panels.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/tiled_cross_entropy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Logits are [classes][kTileStrip]: a column per row of the hidden states.
constexpr int64_t kTileStrip = 2 * kTileRows;

using RowsTag = hn::CappedTag<float, kTileRows>;

// max x and Σ exp(x − max) of each column.
void column_statistics(const float* logits, int64_t classes, float* maximum, float* sum) {
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
      total = hn::Add(total, exp_nonpositive(d, hn::Sub(x, top)));
    }
    hn::StoreU(top, d, maximum + i);
    hn::StoreU(total, d, sum + i);
  }
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

// x = exp(x − maximum) · scale.
void scaled_softmax(int64_t classes, const float* maximum, const float* scale, float* logits) {
  const RowsTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < kTileStrip; i += lanes) {
    const auto top = hn::LoadU(d, maximum + i), factor = hn::LoadU(d, scale + i);
    for (int64_t c = 0; c < classes; ++c) {
      float* const x = logits + c * kTileStrip + i;
      const auto power = exp_nonpositive(d, hn::Sub(hn::Load(d, x), top));
      hn::Store(hn::Mul(power, factor), d, x);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(column_statistics);
HWY_EXPORT(join_statistics);
HWY_EXPORT(scaled_softmax);

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

// How the workspace is divided.
struct Room {
  int64_t rows, dim, blocks, group;  // rows of a chunk, padded; dim padded
  int64_t parts;

  Room(const LinearCrossEntropy& args, int threads, int64_t number_of_parts)
      : Room(args.rows, args.dim, args.classes, threads, number_of_parts) {}
  Room(int64_t all_rows, int64_t all_dim, int64_t classes, int threads, int64_t number_of_parts)
      : rows(chunk_rows(all_rows)),
        dim(round_up(all_dim, kStrip)),
        blocks(divide_up(classes, kBlockClasses)),
        group(
            std::min(blocks * kBlockClasses, std::max(kGroupClasses, 2 * kBlockClasses * threads))),
        parts(number_of_parts) {}

  // Numbers are 16 bits wide, of one part.
  int64_t hidden() const { return rows * dim; }
  int64_t group_weight() const { return dim * group; }
  int64_t group_logits() const { return rows * group; }
  int64_t block_weight() const { return kBlockClasses * dim; }
  int64_t block_logits() const { return kBlockClasses * rows; }
  int64_t shared_numbers() const { return 2 * hidden() + group_weight() + group_logits(); }
  int64_t thread_numbers() const { return block_weight() + block_logits(); }
  // Floats.
  int64_t statistics() const { return 2 * blocks * rows; }
  int64_t shared_floats() const { return statistics() + 2 * rows + rows * dim; }
  int64_t thread_floats() const { return kStrip * std::max(kBlockClasses, kStrip); }

  int64_t shared_bytes() const { return shared_numbers() * parts * 2 + shared_floats() * 4; }
  int64_t thread_bytes() const { return thread_numbers() * parts * 2 + thread_floats() * 4; }
};

// Takes memory piece by piece; all pieces are whole cache lines.
class Memory {
 public:
  explicit Memory(std::byte* begin) : next_(begin) {}

  float* floats(int64_t count) { return reinterpret_cast<float*>(take(count * 4)); }
  // Room for `count` numbers of each part.
  Panels panels(int64_t count, int64_t parts, int64_t depth) {
    auto* const high = reinterpret_cast<uint16_t*>(take(count * parts * 2));
    return {high, parts == 2 ? high + count : nullptr, depth};
  }

 private:
  std::byte* take(int64_t bytes) {
    std::byte* const piece = next_;
    next_ += bytes;
    return piece;
  }

  std::byte* next_;
};

// What a thread works with.
struct Bench {
  Panels weight;    // a block: rows classes, columns dim; A
  Panels gradient;  // of a block's logits: rows classes, columns rows of the chunk; A
  float* logits;    // [kBlockClasses][kStrip]

  Bench(std::byte* memory, const Room& room) {
    Memory m(memory);
    weight = m.panels(room.block_weight(), room.parts, room.dim);
    gradient = m.panels(room.block_logits(), room.parts, room.rows);
    logits = m.floats(room.thread_floats());
  }
};

class Loss {
 public:
  Loss(ThreadPool& pool, const TileUnit& unit, const LinearCrossEntropy& args, std::byte* workspace,
       float* losses)
      : pool_(pool),
        unit_(unit),
        args_(args),
        room_(args, pool.threads(), args.bf16 ? 1 : 2),
        losses_(losses),
        benches_(workspace) {
    Memory m(workspace + pool.threads() * room_.thread_bytes());
    hidden_ = m.panels(room_.hidden(), room_.parts, room_.dim);
    hidden_turned_ = m.panels(room_.hidden(), room_.parts, room_.rows);
    weight_turned_ = m.panels(room_.group_weight(), room_.parts, room_.group);
    gradient_ = m.panels(room_.group_logits(), room_.parts, room_.group);
    maximum_ = m.floats(room_.statistics() / 2);
    sum_ = m.floats(room_.statistics() / 2);
    target_logit_ = m.floats(room_.rows);
    scale_ = m.floats(room_.rows);
    dhidden_ = m.floats(room_.rows * room_.dim);
  }

  bool run() {
    for (int64_t row = 0; row < args_.rows; row += room_.rows) {
      first_row_ = row;
      rows_ = std::min(room_.rows, args_.rows - row);
      pack_hidden();
      find_statistics();
      if (nonfinite_) return false;
      find_losses();
      if (!args_.dhidden && !args_.dweight) continue;
      for (int64_t c = 0; c < args_.classes; c += room_.group) differentiate_group(c);
      if (args_.dhidden) store_dhidden();
    }
    return true;
  }

 private:
  Bench bench(int thread) const { return {benches_ + thread * room_.thread_bytes(), room_}; }
  int64_t strips() const { return divide_up(rows_, kStrip); }
  // Of two parts, whose tiles take part in more products, nothing needs to stay in L1.
  int64_t depth_step(int64_t depth) const { return room_.parts == 2 ? depth : unit_.strip_depth; }

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
      const PanelContent content = pack_bf16_panel(count > 0 ? from : x, count, depth, order, to);
      if (content == PanelContent::kNonfinite) nonfinite_ = true;
    }
  }

  void pack_hidden() {
    const float* const x = args_.hidden + first_row_ * args_.dim;
    pool_.parallel_for(rows_, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; i += kStrip) {
        pack({x, args_.dim, 1}, i, rows_, args_.dim, PanelOrder::kPairs, hidden_.from(i, 0),
             hidden_.pitch());
      }
    });
    if (!args_.dweight) return;
    pool_.parallel_for(args_.dim, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; i += kStrip) {
        pack({x, 1, args_.dim}, i, args_.dim, rows_, PanelOrder::kPairs, hidden_turned_.from(i, 0),
             hidden_turned_.pitch());
      }
    });
  }

  // Calls body(first class, classes, what the thread works with) for the blocks of classes in
  // [begin, end), whose weights are packed then.
  template <class Body>
  void for_each_block(int64_t begin, int64_t end, const Body& body) {
    const int64_t blocks = divide_up(end - begin, kBlockClasses);
    pool_.parallel_pieces(blocks, 1, 1, [&](int64_t block, int64_t, int thread) {
      const Bench with = bench(thread);
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
  void multiply_logits(int64_t row, int64_t classes, const Bench& with) const {
    const int64_t step = depth_step(room_.dim);
    for (int64_t at = 0; at < room_.dim; at += step) {
      for (int64_t c = 0; c < classes; c += kStrip) {
        multiply(with.weight, c, hidden_, row, at, std::min(step, room_.dim - at), at > 0,
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
    for_each_block(0, args_.classes, [&](int64_t c, int64_t classes, const Bench& with) {
      const int64_t block = c / kBlockClasses * room_.rows;
      for (int64_t row = 0; row < rows_; row += kStrip) {
        multiply_logits(row, classes, with);
        statistics(with.logits, classes, maximum_ + block + row, sum_ + block + row);
        for_each_target(row, c, classes, [&](int64_t i, int64_t at) {
          target_logit_[row + i] = with.logits[at * kStrip + i];
        });
      }
    });
  }

  void find_losses() {
    pool_.parallel_for(rows_, kStrip, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; row += kStrip) {
        HWY_DYNAMIC_DISPATCH(join_statistics)
        (room_.blocks, room_.rows, maximum_ + row, sum_ + row);
      }
      for (int64_t row = begin; row < round_up(end, kStrip); ++row) set_loss(row);
    });
  }

  void set_loss(int64_t row) {
    scale_[row] = 0;
    if (row >= rows_) return;
    const float weight = args_.token_weights[first_row_ + row];
    const int32_t target = args_.targets[first_row_ + row];
    float& loss = losses_[first_row_ + row];
    loss = 0;
    if (weight == 0) return;
    if (target < 0 || target >= args_.classes) {
      loss = scale_[row] = std::numeric_limits<float>::quiet_NaN();
      return;
    }
    loss = maximum_[row] - target_logit_[row] + std::log(sum_[row]);
    scale_[row] = weight / sum_[row];
  }

  // Adds what the logits of a group of classes from `first` on contribute to the gradients.
  void differentiate_group(int64_t first) {
    const int64_t end = std::min(args_.classes, first + room_.group);
    for_each_block(first, end, [&](int64_t c, int64_t classes, const Bench& with) {
      for (int64_t row = 0; row < rows_; row += kStrip) {
        multiply_logits(row, classes, with);
        differentiate(row, c, classes, with.logits);
        keep_gradient(row, c - first, classes, with);
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

  // logits → token weight · (softmax − one-hot), 0 for classes up to the next multiple of kStrip.
  void differentiate(int64_t row, int64_t c, int64_t classes, float* logits) const {
    HWY_DYNAMIC_DISPATCH(scaled_softmax)(classes, maximum_ + row, scale_ + row, logits);
    for_each_target(row, c, classes, [&](int64_t i, int64_t at) {
      logits[at * kStrip + i] -= args_.token_weights[first_row_ + row + i];
    });
    std::fill_n(logits + classes * kStrip, (round_up(classes, kStrip) - classes) * kStrip, 0.0f);
  }

  void keep_gradient(int64_t row, int64_t at, int64_t classes, const Bench& with) {
    for (int64_t c = 0; c < classes; c += kStrip) {
      const float* const x = with.logits + c * kStrip;
      if (args_.dhidden) {
        pack({x, 1, kStrip}, 0, kStrip, kStrip, PanelOrder::kPairs, gradient_.from(row, at + c),
             gradient_.pitch());
      }
      if (args_.dweight) {
        pack({x, kStrip, 1}, 0, kStrip, kStrip, PanelOrder::kRows, with.gradient.from(c, row),
             with.gradient.pitch());
      }
    }
  }

  // The weights of a block as columns from `at` on of panels whose rows are its columns.
  void turn_weight(int64_t c, int64_t classes, int64_t at) {
    for (int64_t i = 0; i < args_.dim; i += kStrip) {
      pack({args_.weight + c * args_.dim, 1, args_.dim}, i, args_.dim, classes, PanelOrder::kRows,
           weight_turned_.from(i, at), weight_turned_.pitch());
    }
  }

  void add_dweight(int64_t c, int64_t classes, const Bench& with) const {
    const int64_t depth = round_up(rows_, kStrip), step = depth_step(depth);
    for (int64_t j = 0; j < args_.dim; j += kStrip) {
      const int64_t cols = std::min(kStrip, args_.dim - j);
      for (int64_t at = 0; at < depth; at += step) {
        for (int64_t i = 0; i < classes; i += kStrip) {
          multiply(with.gradient, i, hidden_turned_, j, at, std::min(step, depth - at), at > 0,
                   with.logits + i * kStrip, kStrip);
        }
      }
      move_sums(with.logits, kStrip, classes, cols, first_row_ > 0,
                args_.dweight + c * args_.dim + j, args_.dim);
    }
  }

  // [strips of rows][dim][kStrip]
  float* dhidden_of(int64_t row) const { return dhidden_ + row * room_.dim; }

  void add_dhidden(int64_t row, int64_t first, int64_t depth) const {
    const int64_t step = depth_step(depth);
    for (int64_t at = 0; at < depth; at += step) {
      for (int64_t i = 0; i < room_.dim; i += kStrip) {
        multiply(weight_turned_, i, gradient_, row, at, std::min(step, depth - at), first + at > 0,
                 dhidden_of(row) + i * kStrip, kStrip);
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
  const Room room_;
  float* const losses_;
  std::byte* const benches_;
  // Of the chunk. As B: rows of hidden states with columns dim; and dim with columns rows.
  Panels hidden_, hidden_turned_;
  // Of a group of classes. As A: dim, columns classes; as B: rows, columns classes.
  Panels weight_turned_, gradient_;
  float *maximum_, *sum_;  // [blocks][rows], of all blocks in the first
  float *target_logit_, *scale_;
  float* dhidden_;
  int64_t first_row_ = 0, rows_ = 0;
  std::atomic<bool> nonfinite_ = false;
};

}  // namespace

bool is_worth_tiled_loss(int64_t rows, int64_t dim, int64_t classes) {
  return rows >= kStrip && dim >= kTileDepth && classes >= 2 * kGroupClasses;
}

size_t tiled_loss_bytes(int64_t rows, int64_t dim, int64_t classes, int threads) {
  const Room room(rows, dim, classes, threads, 2);
  return static_cast<size_t>(room.shared_bytes() + threads * room.thread_bytes());
}

bool tiled_linear_cross_entropy(ThreadPool& pool, const TileUnit& unit,
                                const LinearCrossEntropy& args, std::byte* workspace,
                                float* losses) {
  return Loss(pool, unit, args, workspace, losses).run();
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
