#include "lib/kernels/select.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/fold_rows.h"
#include "lib/kernels/order.h"

namespace lumen::kernels {
namespace {

constexpr int64_t kGrain = 4096;

// The lines along one axis of a shape, numbered row-major over the other axes. Lines that follow
// each other and differ in the last other axis only form bundles: where elements of a line are far
// apart and those of a bundle beside each other, a bundle is walked across its lines.
class Lines {
 public:
  Lines(const Shape& shape, int axis)
      : shape_(shape),
        axis_(axis),
        beside_(axis == shape.rank() - 1 ? axis - 1 : shape.rank() - 1) {
    for (int i = 0; i < shape.rank(); ++i) count_ *= i == axis ? 1 : shape[i];
  }

  int64_t length() const { return shape_[axis_]; }
  int64_t count() const { return count_; }
  bool is_one_bundle() const { return beside_ >= 0 && shape_[beside_] == count_; }
  bool is_last() const { return axis_ == shape_.rank() - 1; }
  int64_t stride(const Strides& strides) const { return strides[static_cast<size_t>(axis_)]; }
  // From a line of a bundle to the next.
  int64_t step(const Strides& strides) const {
    return beside_ < 0 ? 0 : strides[static_cast<size_t>(beside_)];
  }

  // Element offset of the start of a line.
  int64_t offset(const Strides& strides, int64_t line) const {
    int64_t offset = 0;
    for (int i = shape_.rank() - 1; i >= 0; --i) {
      if (i == axis_) continue;
      offset += line % shape_[i] * strides[static_cast<size_t>(i)];
      line /= shape_[i];
    }
    return offset;
  }

  // body(line, count, thread) for bundles of `count` lines, at most `most` and no more than leave
  // something for every thread, from `line` on.
  template <typename Body>
  void parallel(ThreadPool& pool, int64_t most, Body body) const {
    if (count_ == 0) return;
    constexpr int64_t kLeast = 16;
    const int64_t share = std::max(kLeast, divide_up(count_, pool.threads()));
    const int64_t row = beside_ < 0 ? 1 : shape_[beside_], width = std::min({row, most, share});
    const int64_t per_row = divide_up(row, width);
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, length() * width));
    pool.parallel_for(count_ / row * per_row, grain, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % per_row * width;
        body(i / per_row * row + first, std::min(width, row - first), thread);
      }
    });
  }

  // The most lines of a bundle that is walked: as many as keep `length` elements of each, of
  // `bytes`, in L2; of lines of a few elements, whose beginnings take longer to find, many.
  int64_t bundle(int64_t length, int64_t bytes) const {
    constexpr int64_t kWindow = 512 << 10, kShort = 4;
    if (axis_ > beside_) return this->length() <= kShort && beside_ >= 0 ? 512 : 1;
    return std::clamp<int64_t>(kWindow / std::max<int64_t>(1, length * bytes), 16, 512);
  }

  // visit(i, l) for element i of line l of a bundle of `count`, across the lines.
  template <typename Visit>
  void walk(int64_t count, Visit visit) const {
    const int64_t n = length();
    if (count == 1) {
      for (int64_t i = 0; i < n; ++i) visit(i, 0);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t l = 0; l < count; ++l) visit(i, l);
    }
  }

 private:
  const Shape& shape_;
  int axis_, beside_;  // beside: the last other axis; −1 if there is none
  int64_t count_ = 1;
};

// Element i of memory that may not be aligned.
template <typename T>
T element(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <typename T>
void set_element(std::byte* data, int64_t i, T value) {
  std::memcpy(data + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// body(I{}) with the type of the indices.
template <typename Body>
auto with_index_type(DType dtype, Body body) {
  return dtype == DType::kI32 ? body(int32_t{}) : body(int64_t{});
}

// body(T{}) with an unsigned integer as large as the elements.
template <typename Body>
void with_bits_type(DType dtype, Body body) {
  switch (info(dtype).block_bytes) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      LUMEN_CHECK(info(dtype).block_bytes == 8);
      return body(uint64_t{});
  }
}

// body(T{}) with a type whose + is that of the elements.
template <typename Body>
void with_sum_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::kF32:
      return body(float{});
    case DType::kF64:
      return body(double{});
    case DType::kI8:
    case DType::kU8:
      return body(uint8_t{});
    case DType::kI32:
      return body(uint32_t{});
    case DType::kI64:
      return body(uint64_t{});
    default:
      LUMEN_CHECK(dtype == DType::kBool);
      return body(std::byte{});
  }
}

template <typename T>
T sum_of(T a, T b) {
  return static_cast<T>(a + b);  // integers wrap
}
std::byte sum_of(std::byte a, std::byte b) {  // bool: or
  return a | std::byte{b != std::byte{0}};
}

// Whether all of n indices are in [0, limit): neither j nor limit − 1 − j has a sign.
template <typename I>
bool all_in_range(const std::byte* index, int64_t n, int64_t limit) {
  const auto last = static_cast<I>(std::min<int64_t>(limit - 1, std::numeric_limits<I>::max()));
  I signs = 0;
  for (int64_t i = 0; i < n; ++i) {
    const I j = element<I>(index, i);
    signs |= j | static_cast<I>(static_cast<std::make_unsigned_t<I>>(last) -
                                static_cast<std::make_unsigned_t<I>>(j));
  }
  return signs >= 0;
}

bool all_in_range(ThreadPool& pool, const TypedOperand& index, const Shape& shape, int64_t limit) {
  int64_t bad = 0;
  return find_out_of_range(pool, index, shape, limit, bad) < 0;
}

// Whether elements of one line follow one another in all three, and lines are walked one by one:
// indices are checked line by line then, where they are read, else before.
bool has_rows(const Lines& lines, const Strides& x, const Strides& index, const Strides& y) {
  return lines.is_last() && lines.bundle(1, 1) == 1 && lines.stride(x) == 1 &&
         lines.stride(index) == 1 && lines.stride(y) == 1;
}

// Whether the index is the same for all lines: it only advances along the axis.
bool is_shared(const TypedOperand& index, const Shape& shape, int axis) {
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis && shape[i] > 1 && index.strides[static_cast<size_t>(i)] != 0) return false;
  }
  return true;
}

// y[i] = x[index[i]]. Nothing overlaps, which a compiler cannot know of bytes.
template <typename T, typename I>
void take_row(const std::byte* __restrict x, const std::byte* __restrict index, int64_t n,
              std::byte* __restrict y) {
  for (int64_t i = 0; i < n; ++i) set_element(y, i, element<T>(x, element<I>(index, i)));
}

template <typename T, typename I>
bool take_as(ThreadPool& pool, const TypedOperand& x, const TypedOperand& index, int64_t x_length,
             const Shape& shape, int axis, std::byte* y) {
  const Lines lines(shape, axis);
  const Strides to = contiguous_strides(shape);
  const int64_t x_stride = lines.stride(x.strides), x_step = lines.step(x.strides);
  const int64_t index_stride = lines.stride(index.strides), index_step = lines.step(index.strides);
  const int64_t y_stride = lines.stride(to), y_step = lines.step(to);
  const bool rows = has_rows(lines, x.strides, index.strides, to);
  // What all lines share is checked once.
  const bool checked = !rows || is_shared(index, shape, axis);
  if (checked && !all_in_range(pool, index, shape, x_length)) return false;
  std::atomic<bool> in_range = true;
  lines.parallel(pool, lines.bundle(x_length, sizeof(T)), [&](int64_t line, int64_t count, int) {
    const int64_t from = lines.offset(x.strides, line), at = lines.offset(index.strides, line);
    const int64_t out = lines.offset(to, line);
    if (rows) {
      const std::byte* const from_line = x.data + from * static_cast<int64_t>(sizeof(T));
      const std::byte* const at_line = index.data + at * static_cast<int64_t>(sizeof(I));
      std::byte* const to_line = y + out * static_cast<int64_t>(sizeof(T));
      const int64_t n = lines.length();
      if (!checked && !all_in_range<I>(at_line, n, x_length)) {
        in_range = false;
        return;
      }
      take_row<T, I>(from_line, at_line, n, to_line);
      return;
    }
    lines.walk(count, [&](int64_t i, int64_t l) {
      const int64_t j = element<I>(index.data, at + i * index_stride + l * index_step);
      set_element(y, out + i * y_stride + l * y_step,
                  element<T>(x.data, from + j * x_stride + l * x_step));
    });
  });
  return in_range;
}

// How many of the last elements of each slice along `axis` lie together.
int64_t run_length(const TypedOperand& x, const Shape& shape, int axis) {
  int64_t length = 1;
  for (int i = shape.rank() - 1; i > axis; --i) {
    if (shape[i] > 1 && x.strides[static_cast<size_t>(i)] != length) break;
    length *= shape[i];
  }
  return length;
}

// Slices of x by a shared index, in runs of `run` elements.
template <typename I>
void take_slices(ThreadPool& pool, const TypedOperand& x, const TypedOperand& index,
                 const Shape& shape, int axis, int64_t run, std::byte* y) {
  const int64_t size = info(x.dtype).block_bytes, bytes = run * size;
  int64_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  const int64_t index_stride = index.strides[static_cast<size_t>(axis)];
  Strides within = x.strides;  // all but the axis, along which the index goes
  within[static_cast<size_t>(axis)] = 0;
  const Lines lines(shape, axis);
  const int64_t runs = shape.elements() / run;
  pool.parallel_for(runs, std::max<int64_t>(1, kGrain / run), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * run, slice = first / inner;
      const int64_t outer = slice / shape[axis], line = outer * inner + first % inner;
      const int64_t j = element<I>(index.data, slice % shape[axis] * index_stride);
      const int64_t from = lines.offset(within, line) + j * x.strides[static_cast<size_t>(axis)];
      std::memcpy(y + i * bytes, x.data + from * size, static_cast<size_t>(bytes));
    }
  });
}

// y[i] += x[i], or = x[i], which do not overlap: in vectors.
template <typename T, bool kAdd>
void put_row(const std::byte* __restrict x, int64_t n, std::byte* __restrict y) {
  for (int64_t i = 0; i < n; ++i) {
    T value = element<T>(x, i);
    if constexpr (kAdd) value = sum_of(element<T>(y, i), value);
    set_element(y, i, value);
  }
}

// The same of y[index[i]], in order.
template <typename T, typename I, bool kAdd>
void scatter_row(const std::byte* __restrict x, const std::byte* __restrict index, int64_t n,
                 std::byte* __restrict y) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t j = element<I>(index, i);
    put_row<T, kAdd>(x + i * static_cast<int64_t>(sizeof(T)), 1,
                     y + j * static_cast<int64_t>(sizeof(T)));
  }
}

// A bundle of lines that follow one another.
constexpr int64_t kLinesTogether = 8;

// The same of `lines` lines, whose elements are so many apart in the three: some at once, so that
// what is added to one of them need not wait for what was just added there.
template <typename T, typename I, bool kAdd>
void scatter_lines(const std::byte* __restrict x, int64_t x_step, const std::byte* __restrict index,
                   int64_t index_step, int64_t n, int64_t lines, std::byte* __restrict y,
                   int64_t y_step) {
  constexpr int64_t kSize = sizeof(T), kIndexSize = sizeof(I), kTogether = 4;
  int64_t line = 0;
  for (; line + kTogether <= lines; line += kTogether) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t l = line; l < line + kTogether; ++l) {
        const int64_t j = element<I>(index, l * index_step + i);
        put_row<T, kAdd>(x + (l * x_step + i) * kSize, 1, y + (l * y_step + j) * kSize);
      }
    }
  }
  for (; line < lines; ++line) {
    scatter_row<T, I, kAdd>(x + line * x_step * kSize, index + line * index_step * kIndexSize, n,
                            y + line * y_step * kSize);
  }
}

template <typename T, typename I, bool kAdd>
bool scatter_as(ThreadPool& pool, const TypedOperand& index, const TypedOperand& src,
                const Shape& shape, int axis, const Shape& y_shape, std::byte* y) {
  constexpr int64_t kSize = sizeof(T);
  const Lines lines(shape, axis);
  const Strides to = contiguous_strides(y_shape);
  const int64_t src_stride = lines.stride(src.strides), src_step = lines.step(src.strides);
  const int64_t index_stride = lines.stride(index.strides), index_step = lines.step(index.strides);
  const int64_t y_stride = lines.stride(to), y_step = lines.step(to);
  const bool rows = has_rows(lines, src.strides, index.strides, to);
  // What all lines share is checked once.
  const bool checked = !rows || is_shared(index, shape, axis);
  if (checked && !all_in_range(pool, index, shape, y_shape[axis])) return false;
  std::atomic<bool> in_range = true;
  // Rows whose elements go to one other each are added as they lie, however many there are.
  const bool whole_rows = !rows && index_step == 0 && src_step == 1 && y_step == 1;
  const int64_t most = whole_rows ? std::max<int64_t>(1, shape.elements())
                       : rows     ? kLinesTogether
                                  : lines.bundle(y_shape[axis], int64_t{sizeof(T)});
  lines.parallel(pool, most, [&](int64_t line, int64_t count, int) {
    const int64_t from = lines.offset(src.strides, line), at = lines.offset(index.strides, line);
    const int64_t out = lines.offset(to, line);
    if (rows) {
      const std::byte* const indices = index.data + at * static_cast<int64_t>(sizeof(I));
      const int64_t n = lines.length(), apart = index_step * static_cast<int64_t>(sizeof(I));
      for (int64_t l = 0; !checked && l < count; ++l) {
        if (all_in_range<I>(indices + l * apart, n, y_shape[axis])) continue;
        in_range = false;
        return;
      }
      scatter_lines<T, I, kAdd>(src.data + from * kSize, src_step, indices, index_step, n, count,
                                y + out * kSize, y_step);
      return;
    }
    if (whole_rows) {
      for (int64_t i = 0; i < lines.length(); ++i) {
        const int64_t j = element<I>(index.data, at + i * index_stride);
        put_row<T, kAdd>(src.data + (from + i * src_stride) * kSize, count,
                         y + (out + j * y_stride) * kSize);
      }
      return;
    }
    lines.walk(count, [&](int64_t i, int64_t l) {
      const int64_t j = element<I>(index.data, at + i * index_stride + l * index_step);
      put_row<T, kAdd>(src.data + (from + i * src_stride + l * src_step) * kSize, 1,
                       y + (out + j * y_stride + l * y_step) * kSize);
    });
  });
  return in_range;
}

// The first of `index` that is not in [0, limit), −1 if all are, among those of lines
// [begin, end) along the last axis.
template <typename I>
int64_t find_in_lines(const TypedOperand& index, const Lines& lines, int64_t begin, int64_t end,
                      int64_t limit) {
  const int64_t stride = lines.stride(index.strides);
  for (int64_t line = begin; line < end; ++line) {
    const int64_t from = lines.offset(index.strides, line);
    if (stride == 1) {
      if (all_in_range<I>(index.data + from * static_cast<int64_t>(sizeof(I)), lines.length(),
                          limit)) {
        continue;
      }
    } else {
      bool bad = false;
      for (int64_t i = 0; i < lines.length(); ++i) {
        const int64_t j = element<I>(index.data, from + i * stride);
        bad |= j < 0 || j >= limit;
      }
      if (!bad) continue;
    }
    for (int64_t i = 0;; ++i) {
      const int64_t j = element<I>(index.data, from + i * stride);
      if (j < 0 || j >= limit) return line * lines.length() + i;
    }
  }
  return -1;
}

// argmax_lines: what stands where.
class Argmax {
 public:
  Argmax(const TypedOperand& x, const Shape& shape, int axis, bool least)
      : dtype_(x.dtype),
        least_(least),
        size_(info(x.dtype).block_bytes),
        data_(x.data),
        strides_(x.strides),
        lines_(shape, axis),
        n_(shape[axis]),
        stride_(lines_.stride(strides_)),
        step_(lines_.step(strides_)) {}

  void run(ThreadPool& pool, int64_t* y) const {
    const int64_t lines = lines_.count();
    if (lines > 0 && lines <= kBundle / 2 && lines_.is_one_bundle() && is_across() &&
        lines * n_ >= 4 * kGrain) {
      return run_in_pieces(pool, lines, y);
    }
    lines_.parallel(pool, kBundle, [&](int64_t line, int64_t count, int) {
      find(data_ + lines_.offset(strides_, line) * size_, count, y + line);
    });
  }

 private:
  static constexpr int64_t kBundle = 256;

  bool is_across() const { return step_ == 1 && stride_ > 1; }

  // A bundle of `count` lines from `x` on.
  void find(const std::byte* x, int64_t count, int64_t* y) const {
    if (is_across() && count > 1) {
      std::byte best[kBundle * 8];
      return find_across(x, stride_, n_, count, best, y);
    }
    if (stride_ == 1 && step_ == n_ && n_ <= kShortLine) {
      return over_turned_lines(x, size_, n_, 0, count,
                               [&](const std::byte* columns, int64_t lines, int64_t first) {
                                 std::byte best[kTurnedLines * 8];
                                 find_across(columns, lines, n_, lines, best, y + first);
                               });
    }
    for (int64_t l = 0; l < count; ++l) {
      const std::byte* const line = x + l * step_ * size_;
      y[l] = stride_ == 1 ? argmax_line(dtype_, least_, line, n_) : find_strided(line);
    }
  }

  // Of the columns of `rows` rows, and what stands there.
  void find_across(const std::byte* x, int64_t stride, int64_t rows, int64_t count, std::byte* best,
                   int64_t* y) const {
    // Few columns whose rows follow one another: some rows side by side.
    const int64_t beside = kBundle / count;
    if (stride == count && beside >= 4 && rows >= 2 * beside) {
      const int64_t width = beside * count, whole = rows / beside;
      std::byte wide[kBundle * 8];
      int64_t at[kBundle];
      find_across(x, width, whole, width, wide, at);
      for (int64_t i = 0; i < width; ++i) at[i] = at[i] * beside + i / count;
      std::memcpy(best, wide, static_cast<size_t>(count * size_));
      std::copy_n(at, count, y);
      for (int64_t i = count; i < width; i += count) {
        argmax_join(dtype_, least_, wide + i * size_, at + i, count, best, y);
      }
      const int64_t first = whole * beside;
      return argmax_rows(dtype_, least_, x + first * count * size_, count, first, rows - first,
                         count, best, y);
    }
    std::memcpy(best, x, static_cast<size_t>(count * size_));
    std::fill_n(y, count, 0);
    argmax_rows(dtype_, least_, x + stride * size_, stride, 1, rows - 1, count, best, y);
  }

  // Few and long columns: pieces of their rows are shared out.
  void run_in_pieces(ThreadPool& pool, int64_t count, int64_t* y) const {
    constexpr int64_t kPieces = 16;
    const int64_t piece = std::max(divide_up(n_, kPieces), divide_up(kGrain, count));
    const int64_t pieces = divide_up(n_, piece);
    std::byte best[kPieces][kBundle / 2 * 8];
    int64_t at[kPieces][kBundle / 2];
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t first = p * piece;
        find_across(data_ + first * stride_ * size_, stride_, std::min(piece, n_ - first), count,
                    best[p], at[p]);
        for (int64_t i = 0; i < count; ++i) at[p][i] += first;
      }
    });
    std::copy_n(at[0], count, y);
    for (int64_t p = 1; p < pieces; ++p) {
      argmax_join(dtype_, least_, best[p], at[p], count, best[0], y);
    }
  }

  int64_t find_strided(const std::byte* line) const {
    constexpr int64_t kChunk = 256;
    std::byte best[8], chunk[kChunk * 8];
    int64_t found = 0;
    std::memcpy(best, line, static_cast<size_t>(size_));
    for (int64_t at = 0; at < n_; at += kChunk) {
      const int64_t length = std::min(kChunk, n_ - at);
      for (int64_t i = 0; i < length; ++i) {
        std::memcpy(chunk + i * size_, line + (at + i) * stride_ * size_,
                    static_cast<size_t>(size_));
      }
      const int64_t own = argmax_line(dtype_, least_, chunk, length), place = at + own;
      argmax_join(dtype_, least_, chunk + own * size_, &place, 1, best, &found);
    }
    return found;
  }

  DType dtype_;
  bool least_;
  int64_t size_;
  const std::byte* data_;
  Strides strides_;
  Lines lines_;
  int64_t n_, stride_, step_;
};

}  // namespace

int64_t find_out_of_range(ThreadPool& pool, const TypedOperand& operand, const Shape& shape,
                          int64_t limit, int64_t& bad) {
  if (shape.elements() == 0) return -1;
  // What is repeated is read once.
  Shape distinct = shape.rank() > 0 ? shape : Shape{1};
  for (int i = 0; i < shape.rank(); ++i) {
    if (operand.strides[static_cast<size_t>(i)] == 0) distinct[i] = 1;
  }
  // Short lines that follow one another are one.
  constexpr int64_t kShort = 16;
  bool joins = distinct[-1] <= kShort;
  int64_t length = 1;
  for (int i = distinct.rank() - 1; i >= 0; --i) {
    joins &= distinct[i] == 1 || operand.strides[static_cast<size_t>(i)] == length;
    length *= distinct[i];
  }
  TypedOperand index = operand;
  if (joins) index.strides[0] = 1;
  const Shape walked = joins ? Shape{length} : distinct;
  const Lines lines(walked, walked.rank() - 1);
  std::atomic<int64_t> first = std::numeric_limits<int64_t>::max();
  const int64_t grain = std::max<int64_t>(1, 4 * kGrain / lines.length());
  pool.parallel_for(walked.elements() / lines.length(), grain,
                    [&](int64_t begin, int64_t end, int) {
                      const int64_t at = with_index_type(index.dtype, [&](auto type) {
                        return find_in_lines<decltype(type)>(index, lines, begin, end, limit);
                      });
                      if (at < 0) return;
                      int64_t seen = first;
                      while (at < seen && !first.compare_exchange_weak(seen, at)) continue;
                    });
  if (first == std::numeric_limits<int64_t>::max()) return -1;
  const int64_t from = lines.offset(index.strides, first / lines.length()) +
                       first % lines.length() * lines.stride(index.strides);
  bad = with_index_type(
      index.dtype, [&](auto type) { return int64_t{element<decltype(type)>(index.data, from)}; });
  // Its number among all elements.
  int64_t number = 0, place = 1, rest = first;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    number += rest % distinct[i] * place;
    rest /= distinct[i];
    place *= shape[i];
  }
  return number;
}

bool take_along(ThreadPool& pool, const TypedOperand& x, const TypedOperand& index,
                int64_t x_length, const Shape& shape, int axis, std::byte* y) {
  constexpr int64_t kLeastRun = 8;
  const int64_t run = run_length(x, shape, axis);
  const bool slices = run >= kLeastRun && is_shared(index, shape, axis);
  if (slices && !all_in_range(pool, index, shape, x_length)) return false;
  bool done = true;
  with_index_type(index.dtype, [&](auto type) {
    using I = decltype(type);
    if (slices) return take_slices<I>(pool, x, index, shape, axis, run, y);
    with_bits_type(x.dtype, [&](auto bits) {
      done = take_as<decltype(bits), I>(pool, x, index, x_length, shape, axis, y);
    });
  });
  return done;
}

bool scatter(ThreadPool& pool, const TypedOperand& index, const TypedOperand& src,
             const Shape& shape, int axis, bool add, const Shape& y_shape, std::byte* y) {
  bool done = true;
  with_index_type(index.dtype, [&](auto type) {
    using I = decltype(type);
    if (add) {
      with_sum_type(src.dtype, [&](auto value) {
        done = scatter_as<decltype(value), I, true>(pool, index, src, shape, axis, y_shape, y);
      });
    } else {
      with_bits_type(src.dtype, [&](auto bits) {
        done = scatter_as<decltype(bits), I, false>(pool, index, src, shape, axis, y_shape, y);
      });
    }
  });
  return done;
}

void argmax_lines(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis, bool least,
                  int64_t* y) {
  Argmax(x, shape, axis, least).run(pool, y);
}

void argsort_lines(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis,
                   int64_t count, bool descending, std::byte* workspace, int64_t* y) {
  if (shape.elements() == 0) return;
  Shape sorted = shape;
  sorted[axis] = count;
  const Lines lines(shape, axis);
  const Strides to = contiguous_strides(sorted);
  const int64_t n = lines.length();
  lines.parallel(pool, 1, [&](int64_t line, int64_t, int thread) {
    const int64_t from = lines.offset(x.strides, line);
    order_line(x.dtype, x.data + from * info(x.dtype).block_bytes, lines.stride(x.strides), n,
               count, descending,
               workspace + order_workspace_bytes(n) * static_cast<size_t>(thread),
               y + lines.offset(to, line), lines.stride(to));
  });
}

size_t argsort_workspace(int64_t line, int threads) {
  return order_workspace_bytes(line) * static_cast<size_t>(threads);
}

}  // namespace lumen::kernels
