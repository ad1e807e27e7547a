#include "lib/kernels/copy.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/streaming.h"
#include "lib/kernels/transpose.h"
#include "lib/kernels/typed.h"

namespace lumen::kernels {
namespace {

// Elements per step where values are gathered or converted in a buffer on the stack.
constexpr int64_t kChunk = 256;

// A task of fewer elements is not worth a second thread.
constexpr int64_t kGrain = 16384;

// Axes of a copy after joining those that are contiguous with their inner neighbour. The last is
// the innermost; strides are those of the source, in elements.
struct Axes {
  int64_t dims[Shape::kMaxRank];
  int64_t strides[Shape::kMaxRank];
  int rank = 0;

  Axes(const Shape& shape, const Strides& source) {
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] == 1) continue;
      if (rank > 0 && strides[rank - 1] == source[static_cast<size_t>(i)] * shape[i]) {
        dims[rank - 1] *= shape[i];
        strides[rank - 1] = source[static_cast<size_t>(i)];
      } else {
        dims[rank] = shape[i];
        strides[rank++] = source[static_cast<size_t>(i)];
      }
    }
    if (rank == 0) {
      dims[0] = 1;
      strides[rank++] = 1;
    }
  }

  int64_t rows() const {  // all axes but the innermost
    int64_t product = 1;
    for (int i = 0; i + 1 < rank; ++i) product *= dims[i];
    return product;
  }
};

// Walks the rows of `axes` in order, keeping the offset of the source.
class RowCursor {
 public:
  RowCursor(const Axes& axes, int outer_axes, int64_t row) : axes_(axes), outer_(outer_axes) {
    for (int i = outer_ - 1; i >= 0; --i) {
      index_[i] = row % axes.dims[i];
      row /= axes.dims[i];
      offset_ += index_[i] * axes.strides[i];
    }
  }

  int64_t offset() const { return offset_; }

  // Rows from this one on that are one stride apart each.
  int64_t left() const { return outer_ > 0 ? axes_.dims[outer_ - 1] - index_[outer_ - 1] : 1; }

  void next(int64_t count = 1) {  // at most left()
    for (int i = outer_ - 1; i >= 0; --i, count = 1) {
      offset_ += count * axes_.strides[i];
      if ((index_[i] += count) < axes_.dims[i]) return;
      offset_ -= axes_.dims[i] * axes_.strides[i];
      index_[i] = 0;
    }
  }

 private:
  const Axes& axes_;
  int outer_;
  int64_t index_[Shape::kMaxRank] = {};
  int64_t offset_ = 0;
};

// y[i · times + j] = x[i] for j < times.
template <class T, int64_t kTimes = 0>
void repeat(const std::byte* x, int64_t n, int64_t times, std::byte* y) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  if constexpr (kTimes == 0) {
    if (times == 2) return repeat<T, 2>(x, n, times, y);
  }
  const int64_t count = kTimes != 0 ? kTimes : times;
  for (int64_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, x + i * kSize, sizeof(T));
    for (int64_t j = 0; j < count; ++j) std::memcpy(y + (i * count + j) * kSize, &value, sizeof(T));
  }
}

// y[i] = x[i · stride] for elements of type T (only its size matters).
template <class T, int64_t kStride = 0>
void gather(const std::byte* x, int64_t stride, std::byte* y, int64_t n) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  if constexpr (kStride == 0) {  // what is known becomes vectors
    if (stride == 2) return gather<T, 2>(x, stride, y, n);
    if (stride == 0 && n > 0) return repeat<T>(x, 1, n, y);
  }
  const int64_t step = kStride != 0 ? kStride : stride;
  for (int64_t i = 0; i < n; ++i) std::memcpy(y + i * kSize, x + i * step * kSize, sizeof(T));
}

using GatherKernel = void (*)(const std::byte*, int64_t, std::byte*, int64_t);
using RepeatKernel = void (*)(const std::byte*, int64_t, int64_t, std::byte*);

// What `choose` makes of an element of so many bytes.
template <class Choose>
auto for_size(int element_bytes, const Choose& choose) {
  switch (element_bytes) {
    case 1:
      return choose(uint8_t{});
    case 2:
      return choose(uint16_t{});
    case 4:
      return choose(uint32_t{});
    default:
      return choose(uint64_t{});
  }
}

GatherKernel gather_kernel(int element_bytes) {
  return for_size(element_bytes, [](auto x) -> GatherKernel { return gather<decltype(x)>; });
}
RepeatKernel repeat_kernel(int element_bytes) {
  return for_size(element_bytes, [](auto x) -> RepeatKernel { return repeat<decltype(x)>; });
}

// Whether a conversion rounds or widens between the types that models are stored in; the others
// are casts, exact where both types can be.
bool is_through_float(DType from, DType to) {
  auto fits_float = [](DType dtype) {
    return is_quantized(dtype) || (is_float(dtype) && dtype != DType::kF64);
  };
  return fits_float(from) && fits_float(to);
}

// y = x for n consecutive elements. Quantised types: n a multiple of the block.
void convert_row(DType from, const std::byte* x, DType to, std::byte* y, int64_t n) {
  if (from == to) {
    std::memcpy(y, x, static_cast<size_t>(row_bytes(from, n)));
    return;
  }
  if (to == DType::kF32) {
    to_float(from, x, reinterpret_cast<float*>(y), n);
    return;
  }
  if (!is_quantized(from) && !is_quantized(to) && !is_through_float(from, to)) {
    cast(from, x, to, y, n);
    return;
  }
  if (from == DType::kF32) {
    from_float(to, reinterpret_cast<const float*>(x), y, n);
    return;
  }
  float buffer[kChunk];  // kChunk is a multiple of every block
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    to_float(from, x + row_bytes(from, i), buffer, count);
    if (is_quantized(to) || is_through_float(from, to)) {
      from_float(to, buffer, y + row_bytes(to, i), count);
    } else {
      cast(DType::kF32, reinterpret_cast<const std::byte*>(buffer), to, y + row_bytes(to, i),
           count);
    }
  }
}

// y[i] = x[i · stride], converted.
void copy_row(DType from, const std::byte* x, int64_t stride, DType to, std::byte* y, int64_t n) {
  if (stride == 1 || n == 1) {
    convert_row(from, x, to, y, n);
    return;
  }
  const int element_bytes = info(from).block_bytes;
  if (from == to && stride == -1) {
    return reverse_rows(element_bytes, x - (n - 1) * element_bytes, n, 1, n, y);
  }
  if (from == to) {
    gather_kernel(element_bytes)(x, stride, y, n);
    return;
  }
  alignas(8) std::byte gathered[kChunk * 8];
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    gather_kernel(element_bytes)(x + i * stride * element_bytes, stride, gathered, count);
    convert_row(from, gathered, to, y + row_bytes(to, i), count);
  }
}

// Rows of so many bytes are copied in steps of fixed sizes, which need no calls.
constexpr int64_t kShortRow = 512;

// `rows` rows of `bytes` ≥ kStep bytes, `stride` bytes apart, one after another; the last step of a
// row may overlap the one before.
template <int64_t kStep>
void copy_steps(const std::byte* x, int64_t stride, int64_t bytes, int64_t rows, std::byte* y) {
  for (int64_t row = 0; row < rows; ++row, x += stride, y += bytes) {
    for (int64_t at = 0; at + kStep <= bytes; at += kStep) std::memcpy(y + at, x + at, kStep);
    std::memcpy(y + bytes - kStep, x + bytes - kStep, kStep);
  }
}

void copy_short_rows(const std::byte* x, int64_t stride, int64_t bytes, int64_t rows,
                     std::byte* y) {
  const auto steps = bytes >= 64   ? copy_steps<64>
                     : bytes >= 16 ? copy_steps<16>
                     : bytes >= 8  ? copy_steps<8>
                     : bytes >= 4  ? copy_steps<4>
                     : bytes >= 2  ? copy_steps<2>
                                   : copy_steps<1>;
  steps(x, stride, bytes, rows, y);
}

void copy_rows(ThreadPool& pool, DType from, const std::byte* x, const Axes& axes, DType to,
               std::byte* y) {
  const int64_t n = axes.dims[axes.rank - 1], stride = axes.strides[axes.rank - 1];
  const bool one_row = axes.rank == 1;
  if (one_row) {  // split the row itself; pieces are whole blocks and whole cache lines
    pool.parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int) {
      const int64_t offset =
          is_quantized(from) ? row_bytes(from, begin) : begin * stride * info(from).block_bytes;
      copy_row(from, x + offset, stride, to, y + row_bytes(to, begin), end - begin);
    });
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / n);
  const int64_t size = info(from).block_bytes;
  const bool is_plain = from == to && !is_quantized(from), is_reverse = is_plain && stride == -1;
  const bool is_short = is_reverse || (is_plain && stride == 1 && n * size <= kShortRow);
  pool.parallel_for(axes.rows(), grain, [&](int64_t begin, int64_t end, int) {
    RowCursor cursor(axes, axes.rank - 1, begin);
    for (int64_t row = begin, count; is_short && row < end; row += count, cursor.next(count)) {
      count = std::min(cursor.left(), end - row);
      const int64_t apart = axes.strides[axes.rank - 2];
      if (is_reverse) {
        reverse_rows(static_cast<int>(size), x + (cursor.offset() - (n - 1)) * size, apart, count,
                     n, y + row * n * size);
      } else {
        copy_short_rows(x + cursor.offset() * size, apart * size, n * size, count,
                        y + row * n * size);
      }
    }
    if (is_short) return;
    for (int64_t row = begin; row < end; ++row, cursor.next()) {
      copy_row(from, x + row_bytes(from, cursor.offset()), stride, to, y + row_bytes(to, row * n),
               n);
    }
  });
}

// The innermost axis is strided and the next one is contiguous: tiles of the two, which are
// converted once they are turned.
void copy_transposed(ThreadPool& pool, DType from, const std::byte* x, const Axes& axes, DType to,
                     std::byte* y) {
  const int element_bytes = info(from).block_bytes;
  const int64_t columns = axes.dims[axes.rank - 1], rows = axes.dims[axes.rank - 2];
  const int64_t column_stride = axes.strides[axes.rank - 1];
  // One task is a band of rows of one matrix.
  constexpr int64_t kBand = 64;
  const int64_t bands = (rows + kBand - 1) / kBand;
  const int64_t matrices = axes.rows() / rows;
  const int64_t grain = std::max<int64_t>(1, kGrain / (std::min(rows, kBand) * columns));
  auto convert_turned = [&](const std::byte* band, int64_t count, std::byte* result) {
    constexpr int64_t kColumns = 64;
    alignas(64) std::byte turned[kBand * kColumns * 8];
    for (int64_t at = 0; at < columns; at += kColumns) {
      const int64_t width = std::min(kColumns, columns - at);
      transpose(element_bytes, band + at * column_stride * element_bytes, column_stride, count,
                width, width, turned);
      for (int64_t i = 0; i < count; ++i) {
        convert_row(from, turned + i * width * element_bytes, to,
                    result + row_bytes(to, i * columns + at), width);
      }
    }
  };
  pool.parallel_for(matrices * bands, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t matrix = task / bands, row = task % bands * kBand;
      const RowCursor cursor(axes, axes.rank - 2, matrix);
      const std::byte* const band = x + (cursor.offset() + row) * element_bytes;
      const int64_t count = std::min(kBand, rows - row);
      std::byte* const result = y + row_bytes(to, (matrix * rows + row) * columns);
      if (from == to) {
        transpose(element_bytes, band, column_stride, count, columns, columns, result);
      } else {
        convert_turned(band, count, result);
      }
    }
  });
}

// Each element of the lines of the last axis but one stands `times` after the other.
void copy_repeated(ThreadPool& pool, int element_bytes, const std::byte* x, const Axes& axes,
                   std::byte* y) {
  const int64_t times = axes.dims[axes.rank - 1], line = axes.dims[axes.rank - 2];
  const RepeatKernel kernel = repeat_kernel(element_bytes);
  const int64_t piece = std::min(line, std::max<int64_t>(1, kGrain / times));
  const int64_t pieces = divide_up(line, piece);
  const int64_t grain = std::max<int64_t>(1, kGrain / (piece * times));
  pool.parallel_for(axes.rows() / line * pieces, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / pieces, first = task % pieces * piece;
      const RowCursor cursor(axes, axes.rank - 2, row);
      kernel(x + (cursor.offset() + first) * element_bytes, std::min(piece, line - first), times,
             y + (row * line + first) * times * element_bytes);
    }
  });
}

}  // namespace

void copy_bytes(const std::byte* x, int64_t n, std::byte* y) {
  if (n > 0) copy_short_rows(x, 0, n, 1, y);
}

void copy(ThreadPool& pool, DType from, const std::byte* x, const Strides& strides,
          const Shape& shape, DType to, std::byte* y) {
  if (shape.elements() == 0) return;
  const Axes axes(shape, strides);
  if (is_quantized(from) || is_quantized(to)) {
    // Rows of y start at a block, so joined rows do too.
    LUMEN_CHECK(shape.rank() > 0 && shape[-1] % info(from).block_elements == 0 &&
                shape[-1] % info(to).block_elements == 0);
    LUMEN_CHECK(!is_quantized(from) || axes.strides[axes.rank - 1] == 1);
  }
  const bool lines_apart = axes.rank >= 2 && !is_quantized(from) && !is_quantized(to) &&
                           axes.strides[axes.rank - 2] == 1;
  if (lines_apart && axes.strides[axes.rank - 1] > 1) {
    copy_transposed(pool, from, x, axes, to, y);
  } else if (lines_apart && from == to && axes.strides[axes.rank - 1] == 0) {
    copy_repeated(pool, info(from).block_bytes, x, axes, y);
  } else {
    copy_rows(pool, from, x, axes, to, y);
  }
}

void gather_rows(ThreadPool& pool, DType dtype, const std::byte* table, int64_t dim,
                 const int32_t* ids, int64_t count, DType to, std::byte* y) {
  LUMEN_CHECK(to == DType::kF32 || to == dtype);
  const int64_t bytes = row_bytes(dtype, dim), y_bytes = row_bytes(to, dim);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, dim));
  pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const std::byte* const from = table + ids[i] * bytes;
      if (to == dtype) {
        std::copy_n(from, bytes, y + i * y_bytes);
      } else {
        to_float(dtype, from, reinterpret_cast<float*>(y + i * y_bytes), dim);
      }
    }
  });
}

namespace {

// y = 0, n floats, past the caches.
void stream_zeros(int64_t n, float* y) {
  static constexpr float kZeros[1024] = {};
  constexpr auto kPiece = static_cast<int64_t>(std::size(kZeros));
  for (int64_t i = 0; i < n; i += kPiece) stream(kZeros, std::min(kPiece, n - i), y + i);
  finish_streams();
}

}  // namespace

size_t scatter_rows_workspace_bytes(int64_t count, int64_t rows) {
  return static_cast<size_t>(count + rows);
}

void scatter_rows(ThreadPool& pool, DType dtype, const std::byte* dy, int64_t dim,
                  const int32_t* ids, int64_t count, int64_t rows, float* y,
                  const Epilogue* epilogue, std::byte* workspace) {
  LUMEN_CHECK(dtype == DType::kF32 || dtype == DType::kBF16);
  // Of each id whether it is the last of its row, and of each row whether it has one.
  auto* const is_last = reinterpret_cast<bool*>(workspace);
  bool* const has_any = epilogue ? is_last + count : nullptr;
  if (epilogue) {
    std::fill_n(has_any, rows, false);
    for (int64_t i = count; i-- > 0;) is_last[i] = !std::exchange(has_any[ids[i]], true);
  }
  const bool streamed = !epilogue && streams(rows * dim * int64_t{sizeof(float)});
  pool.parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, dim)),
                    [&](int64_t begin, int64_t end, int) {
                      if (streamed) return stream_zeros((end - begin) * dim, y + begin * dim);
                      for (int64_t row = begin; row < end; ++row) {
                        std::fill_n(y + row * dim, dim, 0.0f);
                        if (epilogue && !has_any[row]) (*epilogue)(row, 0, dim, y + row * dim);
                      }
                    });
  // A task owns a range of columns: the order of additions is always that of the ids, and how often
  // each of them occurs does not matter.
  constexpr int64_t kMinColumns = 16;
  const int64_t grain = std::max(kMinColumns, kGrain / std::max<int64_t>(1, count));
  pool.parallel_for(dim, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* const from = dy + row_bytes(dtype, i * dim + begin);
      float* const to = y + ids[i] * dim + begin;
      if (dtype == DType::kF32) {
        const auto* const x = reinterpret_cast<const float*>(from);
        for (int64_t j = 0; j < end - begin; ++j) to[j] += x[j];
      } else {
        const auto* const x = reinterpret_cast<const bf16*>(from);
        for (int64_t j = 0; j < end - begin; ++j) to[j] += to_float(x[j]);
      }
      if (epilogue && is_last[i]) (*epilogue)(ids[i], begin, end, to);
    }
  });
}

}  // namespace lumen::kernels
