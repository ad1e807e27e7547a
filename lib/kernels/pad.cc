// Zeros around a tensor along any of its axes.
#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/copy.h"

namespace lumen::kernels {
namespace {

// Single elements, kSize bytes, as rows of `to_row` bytes, `front` of them before the element: what
// is filled with zeros is still in L1 when its elements come.
template <int64_t kSize>
void pad_elements(const std::byte* x, int64_t rows, int64_t front, int64_t to_row, std::byte* y) {
  const int64_t together = std::max<int64_t>(1, (8 << 10) / to_row);
  for (int64_t i = 0; i < rows; i += together) {
    const int64_t count = std::min(together, rows - i);
    std::memset(y, 0, static_cast<size_t>(count * to_row));
    for (int64_t k = 0; k < count; ++k) std::memcpy(y + front + k * to_row, x + k * kSize, kSize);
    x += count * kSize;
    y += count * to_row;
  }
}

// Rows of `row` bytes of x as rows of front + row + back bytes.
void pad_rows(const std::byte* x, int64_t row, int64_t rows, int64_t front, int64_t back,
              std::byte* y) {
  // Of a few hundred bytes, as images have them: fixed sizes need no calls, and what is written
  // beyond the zeros between two rows the next row overwrites.
  constexpr int64_t kStep = 64, kShort = 1024;
  const int64_t to_row = front + row + back;
  if (row == 8) return pad_elements<8>(x, rows, front, to_row, y);
  if (row == 4) return pad_elements<4>(x, rows, front, to_row, y);
  if (row == 2) return pad_elements<2>(x, rows, front, to_row, y);
  if (row == 1) return pad_elements<1>(x, rows, front, to_row, y);
  if (row < kStep || row > kShort || front + back > kStep) {
    for (int64_t i = 0; i < rows; ++i, x += row, y += to_row) {
      std::memset(y, 0, static_cast<size_t>(front));
      if (row > 0) std::memcpy(y + front, x, static_cast<size_t>(row));
      std::memset(y + front + row, 0, static_cast<size_t>(back));
    }
    return;
  }
  std::memset(y, 0, static_cast<size_t>(front));
  y += front;
  for (int64_t i = 0; i < rows; ++i, x += row, y += to_row) {
    for (int64_t at = 0; at + kStep <= row; at += kStep) std::memcpy(y + at, x + at, kStep);
    std::memcpy(y + row - kStep, x + row - kStep, kStep);
    std::memset(y + row, 0, i + 1 < rows ? kStep : static_cast<size_t>(back));
  }
}

// What is padded along its last axis, behind which everything is joined to it, as rows of bytes.
class Padding {
 public:
  Padding(const std::byte* x, int64_t element_bytes, const Shape& shape, const Shape& before,
          const Shape& to, std::byte* y)
      : x_(x), y_(y), shape_(shape), before_(before), to_(to) {
    last_ = shape.rank() - 1;
    while (last_ > 0 && shape[last_] == to[last_]) --last_;
    int64_t inner = element_bytes;
    for (int i = last_ + 1; i < shape.rank(); ++i) inner *= shape[i];
    row_ = shape[last_] * inner;
    to_row_ = to[last_] * inner;
    front_ = before[last_] * inner;
    for (int i = 0; i < last_; ++i) rows_ *= to[i];
  }

  void run(ThreadPool& pool) const {
    if (to_row_ == 0 || rows_ == 0) return;
    // So many bytes are worth a second thread; a task is a piece of a row, or rows.
    constexpr int64_t kPiece = 64 << 10;
    const int64_t pieces = divide_up(to_row_, kPiece), most = divide_up(to_row_, pieces);
    const int64_t grain = std::max<int64_t>(1, kPiece / to_row_);
    pool.parallel_for(rows_ * pieces, grain, [&](int64_t begin, int64_t end, int) {
      if (pieces == 1) return pad(begin, end);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % pieces * most;
        pad_piece(i / pieces, first, std::min(to_row_, first + most));
      }
    });
  }

 private:
  // Which plane (all axes but the last two) of x lies at one of y; −1 if it is in the zeros.
  int64_t plane_of_x(int64_t plane) const {
    int64_t found = 0, step = 1;
    for (int i = last_ - 2; i >= 0; --i) {
      const int64_t at = plane % to_[i] - before_[i];
      if (at < 0 || at >= shape_[i]) return -1;
      found += at * step;
      step *= shape_[i];
      plane /= to_[i];
    }
    return found;
  }

  void clear(int64_t begin, int64_t end) const {
    if (end > begin) {
      std::memset(y_ + begin * to_row_, 0, static_cast<size_t>((end - begin) * to_row_));
    }
  }

  // Rows [begin, end) of y.
  void pad(int64_t begin, int64_t end) const {
    if (last_ == 0) return pad_rows(x_, row_, 1, front_, to_row_ - front_ - row_, y_);
    const int64_t height = to_[last_ - 1], inside = shape_[last_ - 1];
    for (int64_t row = begin; row < end;) {
      const int64_t plane = row / height, top = plane * height, stop = std::min(end, top + height);
      const int64_t from = plane_of_x(plane), start = top + before_[last_ - 1];
      if (from < 0) {
        clear(row, stop);
      } else {
        const int64_t first = std::clamp(start, row, stop);
        const int64_t last = std::clamp(start + inside, first, stop);
        clear(row, first);
        if (last > first) {
          pad_rows(x_ + (from * inside + first - start) * row_, row_, last - first, front_,
                   to_row_ - front_ - row_, y_ + first * to_row_);
        }
        clear(last, stop);
      }
      row = stop;
    }
  }

  // Bytes [begin, end) of a long row of y.
  void pad_piece(int64_t row, int64_t begin, int64_t end) const {
    std::byte* const y = y_ + row * to_row_;
    int64_t from = 0;
    if (last_ > 0) {
      const int64_t height = to_[last_ - 1], inside = shape_[last_ - 1];
      const int64_t plane = plane_of_x(row / height), at = row % height - before_[last_ - 1];
      from = plane < 0 || at < 0 || at >= inside ? -1 : plane * inside + at;
    }
    const int64_t first = from < 0 ? end : std::clamp(front_, begin, end);
    const int64_t last = from < 0 ? end : std::clamp(front_ + row_, first, end);
    std::memset(y + begin, 0, static_cast<size_t>(first - begin));
    if (last > first) {
      std::memcpy(y + first, x_ + from * row_ + first - front_, static_cast<size_t>(last - first));
    }
    std::memset(y + last, 0, static_cast<size_t>(end - last));
  }

  const std::byte* x_;
  std::byte* y_;
  const Shape &shape_, &before_, &to_;
  int last_ = 0;
  int64_t row_ = 0, to_row_ = 0, front_ = 0, rows_ = 1;  // of y; a row in bytes
};

}  // namespace

void pad(ThreadPool& pool, int64_t element_bytes, const std::byte* x, const Shape& shape,
         const Shape& before, const Shape& to, std::byte* y) {
  Padding(x, element_bytes, shape, before, to, y).run(pool);
}

}  // namespace lumen::kernels
