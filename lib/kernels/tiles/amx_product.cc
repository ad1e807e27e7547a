#include "lib/kernels/tiles/amx_product.h"

#include <algorithm>
#include <bit>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/streaming.h"

namespace lumen::kernels {
namespace {

// Sizes are derived in ../README.md. A strip of B, two panels, stays in L1 while the strips of A
// pass by; a block of A and the sums of a block of columns stay in L2 meanwhile.
constexpr int64_t kStrip = 2 * kTileRows;
constexpr int64_t kBlockCols = 256;
// From so many strips per thread on, one more or less is not worth taking one apart.
constexpr int64_t kManyStrips = 16;
// A C of so many bytes is not in a cache any more when it is read, however large the last one is.
constexpr int64_t kStreamedBytes = 32 << 20;
constexpr int64_t kStripNumbers = 2 * kStrip * kBlockDepth;  // of two parts
constexpr int64_t kMaxPanels = kMaxAmxRows / kTileRows * 2 * (kMaxPassDepth / kBlockDepth);

static_assert(kBlockDepth / 2 % kTileDepth == 0 && kBlockCols % kStrip == 0);

// The workspace: for each thread the sums of a block of columns, the strips of B of a block and
// scratch, then the panels of A, of all threads or of each.
constexpr int64_t kStripsNumbers = kBlockCols / kStrip * kStripNumbers;
constexpr int64_t kThreadBytes = kStripsNumbers * 2 + kScratchFloats * sizeof(float);

// Sums of a C that is rounded or streamed lie in rows of a block, so far apart that those of a
// strip share no sets of L1, else strip by strip.
constexpr int64_t kRowPitch = kBlockCols + kStrip;

int64_t sums_bytes(int64_t m) {
  return round_up(std::min(m, kMaxAmxRows), kStrip) * kRowPitch * sizeof(float);
}

// The products of `s` as float32: where a product of parts could make a NaN of an infinity.
void multiply_nonfinite(const TileStrips& s) {
  auto number = [](const uint16_t* high, const uint16_t* low, int64_t at) {
    auto widen = [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); };
    return low == nullptr ? widen(high[at]) : widen(high[at]) + widen(low[at]);
  };
  constexpr int64_t kTile = kTileRows * kTileDepth;
  for (int64_t i = 0; i < kTileRows * s.row_panels; ++i) {
    for (int64_t j = 0; j < kTileRows * s.col_panels; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < s.steps * kTileDepth; ++k) {
        const int64_t tile = k / kTileDepth * kTile, step = k % kTileDepth;
        const int64_t a = i / kTileRows * s.a_pitch + tile + i % kTileRows * kTileDepth + step;
        const int64_t b =
            j / kTileRows * s.b_pitch + tile + step / 2 * kStrip + j % kTileRows * 2 + step % 2;
        sum += number(s.a_high, s.a_low, a) * number(s.b_high, s.b_low, b);
      }
      s.c[i * s.c_stride + j] = s.add ? s.add[i * s.add_stride + j] + sum : sum;
    }
  }
}

// What the panels of a strip hold together.
PanelContent worse(PanelContent a, PanelContent b) {
  return std::max(a, b);
}

// One pass: rows [row, row + rows) of C, columns [k, k + depth) of the operands.
struct Pass {
  const AmxProduct& product;
  const TileUnit& unit;
  std::byte* a;  // contents of the panels of A, then the panels: all high parts, all low parts
  int64_t row, rows, k, depth;

  int64_t padded_rows() const { return round_up(rows, kTileRows); }
  // Numbers of two parts are not quantised: their blocks may end anywhere, and are alike. Their
  // tiles take part in more products each, so that a strip may be read from L2, if that makes sums
  // pass between L1 and L2 less often.
  int64_t block_depth() const {
    if (!two_parts()) return unit.strip_depth;
    const int64_t most = depth < unit.strip_depth ? unit.strip_depth / 2 : unit.strip_depth;
    return round_up(divide_up(depth, divide_up(depth, most)), kTileDepth);
  }
  bool two_parts() const { return product.products > 1; }
  bool is_first() const { return k == 0; }
  bool is_last() const { return k + depth == product.k; }

  std::byte* thread_memory(int thread) const {
    return product.workspace + thread * (kThreadBytes + sums_bytes(product.m));
  }
  // The strips of a block, one behind the other.
  uint16_t* strip_of(int thread) const {
    return reinterpret_cast<uint16_t*>(thread_memory(thread));
  }
  float* scratch_of(int thread) const {
    return reinterpret_cast<float*>(strip_of(thread) + kStripsNumbers);
  }
  float* sums_of(int thread) const { return scratch_of(thread) + kScratchFloats; }
  // Of strip [i, i + kStrip) × [j, j + kStrip), counted from the first row that is computed and
  // from the block's first column.
  float* sums_at(int thread, int64_t i, int64_t j) const {
    return sums_of(thread) + (sums_in_rows() ? i * kRowPitch + j : i * kBlockCols + j * kStrip);
  }
  int64_t sums_pitch() const { return sums_in_rows() ? kRowPitch : kStrip; }
  bool sums_in_rows() const { return product.c_bf16 || streams_c(); }

  // Columns of C are computed strip by strip; those of two halves take turns.
  int64_t strip_width() const { return product.combine ? 2 * kStrip : kStrip; }
  int64_t row_of_b(int64_t column) const {
    if (product.combine == nullptr) return column;
    const int64_t strip = column / kStrip;
    return strip % 2 * (product.n / 2) + strip / 2 * kStrip + column % kStrip;
  }

  uint16_t* packed_a() const { return reinterpret_cast<uint16_t*>(a + kMaxPanels); }
  // Of rows [i, i + kTileRows) in the block at `at`, whose panels are `panel_depth` deep.
  Bf16Panel panel_of_a(int64_t i, int64_t at, int64_t panel_depth) const {
    const int64_t before = at / block_depth() * unit.panel_depth(block_depth());
    uint16_t* const high = packed_a() + before * padded_rows() + i * panel_depth;
    return {high, two_parts() ? high + padded_rows() * padded_depth(depth) : nullptr};
  }
  PanelContent& content_of_a(int64_t i, int64_t at) const {
    const int64_t block = at / block_depth();
    return reinterpret_cast<PanelContent*>(a)[block * (kMaxAmxRows / kTileRows) + i / kTileRows];
  }

  // Packs the panels of A in rows [begin, end) of the pass.
  void pack_a(int64_t begin, int64_t end, int thread) const {
    for (int64_t at = 0; at < depth; at += block_depth()) {
      const int64_t part = std::min(block_depth(), depth - at);
      for (int64_t step = 0; step < part; step += product.a_depth) {
        for (int64_t i = begin; i < end; i += kTileRows) {
          Bf16Panel panel = panel_of_a(i, at, unit.panel_depth(part));
          panel.high += step * kTileRows;
          if (panel.low) panel.low += step * kTileRows;
          const PanelContent content =
              product.pack_a({.row = row + i,
                              .rows = std::min(kTileRows, rows - i),
                              .k = k + at + step,
                              .depth = std::min(product.a_depth, part - step),
                              .panel = panel,
                              .scratch = scratch_of(thread)});
          PanelContent& all = content_of_a(i, at);
          all = step == 0 ? content : worse(all, content);
        }
      }
    }
  }

  // Computes columns [begin, end) of rows [first, last) of the pass; `first` starts a strip.
  void multiply(int64_t first, int64_t last, int64_t begin, int64_t end, int thread) const {
    unit.enter();
    for (int64_t j = begin; j < end; j += kBlockCols) {
      const int64_t cols = std::min(kBlockCols, end - j);
      if (goes_by_rows()) {
        multiply_by_rows(first, last, j, cols, end, thread);
        continue;
      }
      for (int64_t at = 0; at < depth; at += block_depth()) {
        multiply_block(first, last, j, cols, end, at, thread);
      }
      finish(first, last, j, cols, thread);
    }
    if (streams_c()) finish_streams();
    unit.leave();
  }

  // Sums of rows [first, last) and the block of `cols` columns at j, over the columns of the
  // operands in the block at `at`. The thread's last block ends at column `end`.
  void multiply_block(int64_t first, int64_t last, int64_t j, int64_t cols, int64_t end, int64_t at,
                      int thread) const {
    PanelContent content[kBlockCols / kStrip];
    if (packs_blocks()) pack_strips(j, 0, cols, at, thread, content);
    for (int64_t strip = 0; strip < cols; strip += kStrip) {
      const int64_t strip_cols = std::min(kStrip, cols - strip);
      if (!packs_blocks()) pack_strips(j, strip, strip_cols, at, thread, content);
      multiply_strip(first, last, j, strip, strip_cols, at, thread, content[strip / kStrip],
                     stored_after(j, strip, cols, end, at));
    }
  }

  // Where one block of columns of the operands is all there is, all strips of B pass by one of A,
  // so that sums leave for C while they are in L1.
  bool goes_by_rows() const {
    return unit.multiply_row != nullptr && depth <= block_depth() && !adds_to_c();
  }
  // multiply_block and finish, strip of rows by strip of rows.
  void multiply_by_rows(int64_t first, int64_t last, int64_t j, int64_t cols, int64_t end,
                        int thread) const {
    PanelContent content[kBlockCols / kStrip], together = PanelContent::kOnePart;
    StoredColumns next[kBlockCols / kStrip];
    pack_strips(j, 0, cols, 0, thread, content);
    for (int64_t strip = 0; strip < cols; strip += kStrip) {
      together = worse(together, content[strip / kStrip]);
      next[strip / kStrip] = stored_at(j + cols + strip, 0, end);
    }
    for (int64_t i = first; i < last; i += kStrip) {
      const int64_t to = std::min(last, i + kStrip);
      for (int64_t strip = 0; strip < cols; strip += kStrip) {
        fetch_columns(next[strip / kStrip], (i - first) / kStrip, divide_up(last - first, kStrip));
      }
      int64_t strip = multiply_row(i, to, j, cols, thread, together);
      for (; strip < cols; strip += kStrip) {
        multiply_strip(i, to, j, strip, std::min(kStrip, cols - strip), 0, thread,
                       content[strip / kStrip], {});
      }
      finish(i, to, j, cols, thread);
    }
  }
  // Sums of rows [first, last), one strip, and the packed strips at j that are whole, of `content`
  // together; returns of how many columns.
  int64_t multiply_row(int64_t first, int64_t last, int64_t j, int64_t cols, int thread,
                       PanelContent content) const {
    const int64_t whole = cols / kStrip * kStrip;
    if (last - first <= kTileRows || whole == 0) return 0;
    content = worse(content, worse(content_of_a(first, 0), content_of_a(first + kTileRows, 0)));
    if (content == PanelContent::kNonfinite) return 0;
    const bool one_part = content == PanelContent::kOnePart;
    const bool direct = is_direct(last - first, whole);
    const int64_t padded = unit.panel_depth(depth);
    const Bf16Panel a = panel_of_a(first, 0, padded), b = strip_at(thread, 0, padded);
    float* const sums = sums_at(thread, 0, 0);
    float* const c = direct ? product.c + (row + first) * product.c_stride + j : sums;
    unit.multiply_row({.a_high = a.high,
                       .a_low = one_part ? nullptr : a.low,
                       .b_high = b.high,
                       .b_low = one_part ? nullptr : b.low,
                       .a_pitch = kTileRows * padded,
                       .b_pitch = kTileRows * padded,
                       .steps = padded / kTileDepth,
                       .row_panels = 2,
                       .col_panels = 2,
                       .add = nullptr,
                       .add_stride = 0,
                       .c = c,
                       .c_stride = direct ? product.c_stride : sums_pitch(),
                       .low_low = product.products == 4,
                       .strips = whole / kStrip,
                       .b_strip = strip_at(thread, kStrip, padded).high - b.high,
                       .c_strip = direct ? kStrip : sums_at(thread, 0, kStrip) - sums});
    return whole;
  }

  // Where what is packed after the strip at j + strip is stored.
  StoredColumns stored_after(int64_t j, int64_t strip, int64_t cols, int64_t end,
                             int64_t at) const {
    int64_t row = j + strip + kStrip;
    if (strip + kStrip >= cols) {
      at += block_depth();
      row = j;
      if (at >= depth) at = 0, row = j + cols;
    }
    return stored_at(row, at, end);
  }
  StoredColumns stored_at(int64_t column, int64_t at, int64_t end) const {
    if (product.stored_b == nullptr || column >= end) return {};
    return (*product.stored_b)(row_of_b(column), k + at, std::min(block_depth(), depth - at));
  }

  // Where rows of B lie together a strip is packed when its turn comes, always in the same place,
  // and is still in L1; where columns do, or all strips pass by, those of a block are packed at
  // once.
  bool packs_blocks() const { return goes_by_rows() || product.b_depth < kBlockDepth; }
  Bf16Panel strip_at(int thread, int64_t strip, int64_t padded) const {
    const int64_t place = packs_blocks() ? strip / kStrip : 0;
    const int64_t numbers = kStrip * padded * (two_parts() ? 2 : 1);
    uint16_t* const high = strip_of(thread) + place * numbers;
    return {high, two_parts() ? high + kStrip * padded : nullptr};
  }

  // Packs columns [strip, strip + cols), counted from j.
  void pack_strips(int64_t j, int64_t strip, int64_t cols, int64_t at, int thread,
                   PanelContent* content) const {
    const int64_t part = std::min(block_depth(), depth - at), padded = unit.panel_depth(part);
    for (int64_t step = 0; step < part; step += product.b_depth) {
      for (int64_t i = strip; i < strip + cols; i += kTileRows) {
        const Bf16Panel to = strip_at(thread, i, padded);
        const int64_t behind = i % kStrip * padded + step * kTileRows;
        const PanelContent one =
            product.pack_b({.row = row_of_b(j + i),
                            .rows = std::min(kTileRows, strip + cols - i),
                            .k = k + at + step,
                            .depth = std::min(product.b_depth, part - step),
                            .panel = {to.high + behind, to.low ? to.low + behind : nullptr},
                            .scratch = scratch_of(thread)});
        PanelContent& all = content[i / kStrip];
        all = step == 0 && i % kStrip == 0 ? one : worse(all, one);
      }
    }
  }

  // Whether tiles of sums are stored in C itself: whole ones, whose rows are cache lines and do not
  // share so few sets of L1 that they push each other out, as those a multiple of 2 KiB apart do.
  bool is_direct(int64_t rows_left, int64_t cols_left) const {
    return has_whole_lines() && !streams_c() && product.c_stride % 512 != 0 &&
           cols_left >= kStrip && (rows_left >= kStrip || rows_left == kTileRows);
  }
  bool has_whole_lines() const {
    constexpr int64_t kLine = 64, kFloats = kLine / int64_t{sizeof(float)};
    return product.c != nullptr && reinterpret_cast<uintptr_t>(product.c) % kLine == 0 &&
           product.c_stride % kFloats == 0 && !product.c_transposed && !product.combine;
  }
  // Whether C is written past the caches, from the sums of a block of columns.
  bool streams_c() const {
    const int64_t bytes = product.m * product.n * int64_t{sizeof(float)};
    return has_whole_lines() && !adds_to_c() && is_last() &&
           (streams(bytes) || bytes >= kStreamedBytes);
  }
  bool adds_to_c() const { return product.accumulate || !is_first(); }

  // Sums of rows [first, last) and the packed strip of `cols` columns at j + strip. Meanwhile what
  // is stored at `next` is fetched.
  void multiply_strip(int64_t first, int64_t last, int64_t j, int64_t strip, int64_t cols,
                      int64_t at, int thread, PanelContent content_b,
                      const StoredColumns& next) const {
    const int64_t part = std::min(block_depth(), depth - at), padded = unit.panel_depth(part);
    const Bf16Panel b = strip_at(thread, strip, padded);
    const bool starts = at == 0, ends = at + part == depth;
    for (int64_t i = first; i < last; i += kStrip) {
      fetch_columns(next, (i - first) / kStrip, divide_up(last - first, kStrip));
      const int row_panels = last - i > kTileRows ? 2 : 1;
      PanelContent content_a = content_of_a(i, at);
      if (row_panels == 2) content_a = worse(content_a, content_of_a(i + kTileRows, at));
      const Bf16Panel a = panel_of_a(i, at, padded);
      const bool direct = is_direct(last - i, cols);
      float* const sums = sums_at(thread, i - first, strip);
      float* const c = direct ? product.c + (row + i) * product.c_stride + j + strip : nullptr;
      const bool adds = direct && adds_to_c();
      if (direct && ends && is_direct(last - i - kStrip, cols)) {
        fetch_rows(c + kStrip * product.c_stride);
      }
      const TileStrips strips = {.a_high = a.high,
                                 .a_low = content_a == PanelContent::kOnePart ? nullptr : a.low,
                                 .b_high = b.high,
                                 .b_low = content_b == PanelContent::kOnePart ? nullptr : b.low,
                                 .a_pitch = kTileRows * padded,
                                 .b_pitch = kTileRows * padded,
                                 .steps = padded / kTileDepth,
                                 .row_panels = row_panels,
                                 .col_panels = cols > kTileRows ? 2 : 1,
                                 .add = !starts ? sums
                                        : adds  ? c
                                                : nullptr,
                                 .add_stride = !starts ? sums_pitch() : product.c_stride,
                                 .c = direct && ends ? c : sums,
                                 .c_stride = direct && ends ? product.c_stride : sums_pitch(),
                                 .low_low = product.products == 4};
      if (worse(content_a, content_b) == PanelContent::kNonfinite) {
        multiply_nonfinite(strips);
      } else {
        unit.multiply(strips);
      }
    }
  }

  // A strip's rows of C, which are written next.
  void fetch_rows(const float* c) const {
    for (int64_t i = 0; i < kStrip; ++i, c += product.c_stride) {
      __builtin_prefetch(c, 1);
      __builtin_prefetch(c + kTileRows, 1);
    }
  }

  // Moves sums of a block of columns that are not in C yet there.
  void finish(int64_t first, int64_t last, int64_t j, int64_t cols, int thread) const {
    if (sums_in_rows()) return finish_rows(first, last, j, cols, thread);
    if (product.combine) return finish_combined(first, last, j, cols, thread);
    const bool add = adds_to_c();
    for (int64_t i = first; i < last; i += kStrip) {
      for (int64_t strip = 0; strip < cols; strip += kStrip) {
        if (is_direct(last - i, cols - strip)) continue;
        const bool transposed = product.c_transposed;
        const int64_t line = transposed ? j + strip : row + i,
                      at = transposed ? row + i : j + strip;
        (transposed ? move_sums_transposed : move_sums)(
            sums_at(thread, i - first, strip), kStrip, std::min(kStrip, last - i),
            std::min(kStrip, cols - strip), add, product.c + line * product.c_stride + at,
            product.c_stride);
      }
    }
    if (product.epilogue == nullptr || !is_last()) return;
    const int64_t column = product.epilogue_column + j;
    float* piece = product.c + (row + first) * product.c_stride + j;
    for (int64_t i = first; i < last; ++i, piece += product.c_stride) {
      (*product.epilogue)(row + i, column, column + cols, piece);
    }
  }

  // Likewise of those in rows, rounded or past the caches.
  void finish_rows(int64_t first, int64_t last, int64_t j, int64_t cols, int thread) const {
    const int64_t column = product.epilogue_column + j;
    float* const sums = sums_at(thread, 0, 0);
    for (int64_t i = first; i < last && product.epilogue; ++i) {
      (*product.epilogue)(row + i, column, column + cols, sums + (i - first) * kRowPitch);
    }
    const int64_t at = (row + first) * product.c_stride + j;
    if (product.c_bf16) {
      return round_rows(sums, kRowPitch, last - first, cols, product.c_bf16 + at, product.c_stride);
    }
    for (int64_t i = 0; i < last - first; ++i) {
      stream(sums + i * kRowPitch, cols, product.c + at + i * product.c_stride);
    }
  }

  // Likewise of both halves.
  void finish_combined(int64_t first, int64_t last, int64_t j, int64_t cols, int thread) const {
    for (int64_t i = first; i < last; i += kStrip) {
      const int64_t count = std::min(kStrip, last - i);
      float* c = product.c + (row + i) * product.c_stride + j / 2;
      for (int64_t strip = 0; strip < cols; strip += 2 * kStrip, c += kStrip) {
        float* const sums = sums_at(thread, i - first, strip);
        (*product.combine)(sums, sums_at(thread, i - first, strip + kStrip), count * kStrip, sums);
        move_sums(sums, kStrip, count, kStrip, false, c, product.c_stride);
      }
    }
  }

  // Divides the columns.
  void run(ThreadPool& pool) const {
    const int threads = pool.threads();
    pool.parallel_for(rows, kTileRows,
                      [&](int64_t begin, int64_t end, int thread) { pack_a(begin, end, thread); });
    // The strips of B are divided among the threads, and where their number is small and uneven,
    // the rows of some: `heights` parts of each strip.
    const int64_t strips = divide_up(product.n, strip_width()), heights = divide_up(rows, kStrip);
    const bool whole = strips % threads == 0 || strips >= kManyStrips * threads;
    pool.parallel_pieces(strips * heights, whole ? heights : 1,
                         kBlockCols / strip_width() * heights,
                         [&](int64_t begin, int64_t end, int thread) {
                           multiply_parts(begin, end, heights, thread);
                         });
  }

  // Computes parts [begin, end), strip by strip.
  void multiply_parts(int64_t begin, int64_t end, int64_t heights, int thread) const {
    while (begin < end) {
      const int64_t strip = begin / heights, from = begin % heights;
      const int64_t to = std::min(heights, from + end - begin);
      // As many strips as are whole, or what there is of one.
      const int64_t count = from == 0 && to == heights ? (end - begin) / heights : 1;
      multiply(from * kStrip, std::min(rows, to * kStrip), strip * strip_width(),
               std::min(product.n, (strip + count) * strip_width()), thread);
      begin += (to - from) * count;
    }
  }
};

// Of two parts: more than panels of one part take from 64 columns on, whatever their unit adds.
size_t panels_of_a_bytes(int64_t rows, int64_t k) {
  const int64_t depth = padded_depth(std::min(k, kMaxPassDepth));
  return static_cast<size_t>(kMaxPanels + round_up(rows, kTileRows) * depth * 2 * 2);
}

// Rows of A that a thread has for itself: all of its share at once, if they are not too many.
int64_t own_rows(int64_t m, int threads) {
  return std::min(round_up(divide_up(m, threads), kStrip), kMaxAmxRows);
}

// Whether the rows are divided among the threads, not the columns. Each thread then multiplies what
// it packed itself, without waiting, but packs all of B: worth it where B is not packed more often
// in all, or is small beside A or beside the thread's rows of C. Those are then, as far as other
// operations divide C in the order of its elements, in the cache of the thread that reads them.
bool divides_rows(int64_t m, int64_t n, int64_t k, int threads) {
  const int64_t passes = divide_up(m, own_rows(m, threads) * threads) * threads;
  return m >= 2 * kStrip * threads &&
         (passes <= divide_up(m, kMaxAmxRows) || 4 * n <= m || k * threads <= m);
}

void check_product(const TileUnit& unit, const AmxProduct& product) {
  LUMEN_CHECK(unit.extra_depth == 0 || product.k >= 2 * kTileDepth);
  LUMEN_CHECK(!product.c_bf16 || (product.c == nullptr && product.k <= kMaxPassDepth &&
                                  !product.c_transposed && !product.accumulate));
  LUMEN_CHECK(!product.combine ||
              (amx_product_combines(product.n / 2, product.k) && product.c != nullptr &&
               product.epilogue == nullptr && !product.c_transposed && !product.accumulate));
}

// Calls run(pass) for rows [begin, end), at most `most` at a time, whose panels go to `a`.
template <class Run>
void for_each_pass(const TileUnit& unit, const AmxProduct& product, int64_t begin, int64_t end,
                   int64_t most, std::byte* a, const Run& run) {
  for (int64_t row = begin; row < end; row += most) {
    for (int64_t k = 0; k < product.k; k += kMaxPassDepth) {
      run(Pass{.product = product,
               .unit = unit,
               .a = a,
               .row = row,
               .rows = std::min(most, end - row),
               .k = k,
               .depth = std::min(kMaxPassDepth, product.k - k)});
    }
  }
}

// Rows [begin, end) on one thread.
void run_rows(const TileUnit& unit, const AmxProduct& product, int64_t begin, int64_t end,
              int64_t most, std::byte* a, int thread) {
  for_each_pass(unit, product, begin, end, most, a, [&](const Pass& pass) {
    pass.pack_a(0, pass.rows, thread);
    pass.multiply(0, pass.rows, 0, product.n, thread);
  });
}

}  // namespace

size_t amx_product_bytes(int64_t m, int64_t k, int threads) {
  // Rows of all threads, however few of them there will be.
  const int64_t rows = std::min(m + kStrip * threads, kMaxAmxRows * threads);
  return static_cast<size_t>(threads * (kMaxPanels + kThreadBytes + sums_bytes(m))) +
         panels_of_a_bytes(rows, k);
}

bool amx_product_combines(int64_t rows, int64_t k) {
  return rows % kStrip == 0 && k <= kMaxPassDepth;
}

void amx_product(ThreadPool& pool, const TileUnit& unit, const AmxProduct& product) {
  check_product(unit, product);
  const int threads = pool.threads();
  std::byte* const panels = product.workspace + threads * (kThreadBytes + sums_bytes(product.m));
  if (!divides_rows(product.m, product.n, product.k, threads)) {
    return for_each_pass(unit, product, 0, product.m, kMaxAmxRows, panels,
                         [&](const Pass& pass) { pass.run(pool); });
  }
  const int64_t most = own_rows(product.m, threads);
  pool.parallel_for(product.m, kStrip, [&](int64_t begin, int64_t end, int thread) {
    std::byte* const a = panels + thread * panels_of_a_bytes(most, product.k);
    run_rows(unit, product, begin, end, most, a, thread);
  });
}

void amx_product_alone(const TileUnit& unit, const AmxProduct& product) {
  check_product(unit, product);
  std::byte* const panels = product.workspace + kThreadBytes + sums_bytes(product.m);
  run_rows(unit, product, 0, product.m, own_rows(product.m, 1), panels, 0);
}

}  // namespace lumen::kernels
