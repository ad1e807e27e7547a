#include "lib/kernels/typed.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lib/base/round_up.h"
#include "lib/kernels/typed_rows.h"

namespace lumen::kernels {
namespace {

// each(T{}) with a type as large as elements of `size` bytes.
template <class F>
void with_size(int64_t size, F each) {
  size == 1   ? each(uint8_t{})
  : size == 2 ? each(uint16_t{})
  : size == 4 ? each(uint32_t{})
              : each(uint64_t{});
}

// y[i] = x[i · stride] for elements of `size` bytes.
void gather(const std::byte* x, int64_t stride, int64_t n, int64_t size, std::byte* y) {
  with_size(size, [&](auto element) {
    constexpr auto kSize = static_cast<int64_t>(sizeof element);
    for (int64_t i = 0; i < n; ++i) std::memcpy(y + i * kSize, x + i * stride * kSize, kSize);
  });
}

// y[i] = x[0].
void repeat(const std::byte* x, int64_t n, int64_t size, std::byte* y) {
  with_size(size, [&](auto element) {
    constexpr auto kSize = static_cast<int64_t>(sizeof element);
    std::memcpy(&element, x, kSize);
    for (int64_t i = 0; i < n; ++i) std::memcpy(y + i * kSize, &element, kSize);
  });
}

// y[i] = x[i · stride], converted.
void load(DType from, const std::byte* x, int64_t stride, int64_t n, DType to, std::byte* y) {
  if (stride == 1 || n <= 1) return cast(from, x, to, y, n);
  const int64_t size = info(from).block_bytes, to_size = info(to).block_bytes;
  alignas(8) std::byte gathered[kTypedStep * 8];
  if (stride == 0) {
    cast(from, x, to, gathered, 1);
    return repeat(gathered, n, to_size, y);
  }
  for (int64_t at = 0; at < n; at += kTypedStep) {
    const int64_t count = std::min(kTypedStep, n - at);
    gather(x + at * stride * size, stride, count, size, gathered);
    cast(from, gathered, to, y + at * to_size, count);
  }
}

void store(DType from, const std::byte* x, int64_t n, DType to, std::byte* y, int64_t stride) {
  if (stride == 1) return cast(from, x, to, y, n);
  const int64_t size = info(to).block_bytes;
  for (int64_t i = 0; i < n; ++i) {
    cast(from, x + i * info(from).block_bytes, to, y + i * stride * size, 1);
  }
}

// An element-wise function over a shape whose axes that all operands walk as one are joined.
class Map {
 public:
  Map(const TypedFunction& f, std::span<const TypedOperand> in, const Shape& shape, DType to,
      std::byte* y)
      : f_(f), count_(in.size()), to_(to), y_(y) {
    std::copy(in.begin(), in.end(), in_);
    join_axes(shape);
    const auto values = in.subspan(f.op == TypedOp::kWhere ? 1 : 0);
    const DType own = values[0].dtype;
    const bool alike = std::all_of(values.begin(), values.end(),
                                   [&](const TypedOperand& x) { return x.dtype == own; });
    const bool is_real =
        std::any_of(in.begin(), in.end(), [](const TypedOperand& x) { return is_float(x.dtype); });
    const bool in_own = f.op != TypedOp::kNone && alike && (is_comparison() || to == own) &&
                        (!is_float(own) || own == DType::kF64);
    type_ = in_own ? own : is_real ? DType::kF64 : DType::kI64;
    in_block_ = type_ == DType::kF64 && f.block != nullptr;
    const auto last = static_cast<size_t>(shape_.rank() - 1);
    in_place_ =
        in_block_ && to == type_ && std::all_of(in_, in_ + count_, [&](const TypedOperand& x) {
          return x.dtype == type_ && x.strides[last] == 1;
        });
  }

  void run(ThreadPool& pool) const {
    constexpr int64_t kPiece = 4 * kTypedGrain;
    const int64_t columns = shape_[-1], per_row = divide_up(columns, kPiece);
    const int64_t grain = std::max<int64_t>(1, kTypedGrain / std::min(columns, kPiece));
    pool.parallel_for(shape_.elements() / columns * per_row, grain,
                      [&](int64_t begin, int64_t end, int) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t first = i % per_row * kPiece;
                          run_piece(i / per_row, first, std::min(columns, first + kPiece));
                        }
                      });
  }

 private:
  bool is_comparison() const { return f_.op == TypedOp::kLess || f_.op == TypedOp::kEqual; }

  void join_axes(const Shape& shape) {
    Strides strides[kMaxArguments] = {};
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape[axis] == 1) continue;
      const auto from = static_cast<size_t>(axis);
      const auto last = static_cast<size_t>(std::max(shape_.rank() - 1, 0));
      bool joins = shape_.rank() > 0;
      for (size_t i = 0; i < count_; ++i) {
        joins &= strides[i][last] == in_[i].strides[from] * shape[axis];
      }
      if (joins) {
        shape_[-1] *= shape[axis];
      } else {
        shape_.push_back(shape[axis]);
      }
      for (size_t i = 0; i < count_; ++i) {
        strides[i][static_cast<size_t>(shape_.rank() - 1)] = in_[i].strides[from];
      }
    }
    if (shape_.rank() == 0) shape_.push_back(1);
    for (size_t i = 0; i < count_; ++i) in_[i].strides = strides[i];
  }

  void run_piece(int64_t row, int64_t begin, int64_t end) const {
    alignas(64) std::byte loaded[kMaxArguments][kTypedChunkBytes], result[kTypedChunkBytes];
    const int last = shape_.rank() - 1;
    const int64_t size = info(type_).block_bytes;
    const int64_t most = in_place_ ? end - begin : kTypedChunkBytes / size;
    for (int64_t at = begin; at < end; at += most) {
      const int64_t n = std::min(most, end - at);
      const std::byte* operands[kMaxArguments] = {};
      for (size_t i = 0; i < count_; ++i) {
        const TypedOperand& x = in_[i];
        const int64_t stride = x.strides[static_cast<size_t>(last)];
        const std::byte* const from =
            x.data +
            (offset_of(shape_, x.strides, last, row) + at * stride) * info(x.dtype).block_bytes;
        const bool is_flag = f_.op == TypedOp::kWhere && i == 0;
        const DType wanted = is_flag ? DType::kBool : type_;
        const bool in_place = x.dtype == wanted && stride == 1;
        // A single value stays from the first chunk on, which is the longest.
        const bool is_there = stride == 0 && at > begin;
        if (!in_place && !is_there) load(x.dtype, from, stride, n, wanted, loaded[i]);
        operands[i] = in_place ? from : loaded[i];
      }
      compute(operands, n, result, y_ + (row * shape_[-1] + at) * info(to_).block_bytes);
    }
  }

  void compute(const std::byte* const* operands, int64_t n, std::byte* result, std::byte* y) const {
    const bool is_truth = !in_block_ && is_comparison();
    const DType given = is_truth ? DType::kBool : type_;
    const bool in_vectors = in_block_ || f_.op != TypedOp::kNone;
    std::byte* const target = in_vectors && given == to_ ? y : result;
    if (in_block_) {
      const double* arguments[kMaxArguments];
      for (size_t i = 0; i < count_; ++i) {
        arguments[i] = reinterpret_cast<const double*>(operands[i]);
      }
      f_.block(arguments, reinterpret_cast<double*>(target), n);
    } else if (f_.op != TypedOp::kNone) {
      compute_typed(f_.op, type_, operands, n, target);
    } else if (type_ == DType::kF64) {
      call(f_.real, operands, n, target);
    } else {
      call(f_.integer, operands, n, target);
    }
    if (target == result) cast(given, result, to_, y, n);
  }

  template <typename T>
  void call(T (*f)(const T*), const std::byte* const* operands, int64_t n,
            std::byte* result) const {
    for (int64_t i = 0; i < n; ++i) {
      T arguments[kMaxArguments];
      for (size_t a = 0; a < count_; ++a) {
        std::memcpy(&arguments[a], operands[a] + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
      }
      const T value = f(arguments);
      std::memcpy(result + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
  }

  const TypedFunction& f_;
  TypedOperand in_[kMaxArguments] = {};
  size_t count_;
  Shape shape_;
  DType to_, type_ = DType::kI64;  // type_: what it is computed in
  bool in_block_, in_place_;       // by f_.block; at once, operands and result as they lie
  std::byte* y_;
};

template <typename T>
T joined(Fold fold, T a, T b) {
  if (fold != Fold::kSum) return a != a || (fold == Fold::kMaximum ? b <= a : a <= b) ? a : b;
  if constexpr (std::is_same_v<T, int64_t>) return wrap_add(a, b);
  return a + b;
}

// Of x [n]: few numbers in order, else partial results, joined by halves.
template <typename T>
T fold_all(Fold fold, DType from, const std::byte* x, int64_t n, T start) {
  T parts[kFoldParts];
  if (n < kFoldParts) {
    load_typed(from, x, 1, n, parts);
    T all = start;
    for (int64_t i = 0; i < n; ++i) all = joined(fold, all, parts[i]);
    return all;
  }
  std::fill_n(parts, kFoldParts, start);
  fold_line(fold, from, x, n, parts);
  for (int64_t width = kFoldParts / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) parts[i] = joined(fold, parts[i], parts[i + width]);
  }
  return parts[0];
}

constexpr DType widest(double) {
  return DType::kF64;
}
constexpr DType widest(int64_t) {
  return DType::kI64;
}

template <typename T>
void store_one(T value, DType to, std::byte* y) {
  store_typed(to, &value, 1, y);
}

// A long line is cut into pieces whose length does not depend on the number of threads.
template <typename T>
void reduce_long_line(ThreadPool& pool, Fold fold, DType from, const std::byte* x, int64_t n,
                      T start, DType to, std::byte* y) {
  constexpr int64_t kMostPieces = 64;
  const int64_t piece = std::max(4 * kTypedGrain, round_up(divide_up(n, kMostPieces), kFoldParts));
  const int64_t pieces = divide_up(n, piece);
  T partial[kMostPieces];
  pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      partial[i] = fold_all(fold, from, x + i * piece * info(from).block_bytes,
                            std::min(piece, n - i * piece), start);
    }
  });
  store_one(
      fold_all(fold, widest(start), reinterpret_cast<const std::byte*>(partial), pieces, start), to,
      y);
}

template <typename T>
void reduce(ThreadPool& pool, Fold fold, DType from, const std::byte* x, int64_t outer,
            int64_t axis, int64_t inner, T start, DType to, std::byte* y) {
  const int64_t size = info(from).block_bytes, to_size = info(to).block_bytes;
  if (axis == 1) {  // lines of one number are one row of columns
    inner *= outer;
    outer = 1;
  }
  if (inner == 1 && axis > 8 * kTypedGrain) {
    for (int64_t i = 0; i < outer; ++i) {
      reduce_long_line(pool, fold, from, x + i * axis * size, axis, start, to, y + i * to_size);
    }
    return;
  }
  const int64_t pieces = divide_up(inner, kTypedStep);
  const int64_t grain =
      std::max<int64_t>(1, kTypedGrain / std::max<int64_t>(1, axis * std::min(inner, kTypedStep)));
  pool.parallel_for(outer * pieces, grain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t o = i / pieces, begin = i % pieces * kTypedStep;
      const int64_t count = std::min(kTypedStep, inner - begin);
      const std::byte* const slice = x + (o * axis * inner + begin) * size;
      std::byte* const target = y + (o * inner + begin) * to_size;
      if (inner == 1) {
        store_one(fold_all(fold, from, slice, axis, start), to, target);
        continue;
      }
      T totals[kTypedStep];
      std::fill_n(totals, count, start);
      for (int64_t k = 0; k < axis; ++k) {
        fold_columns(fold, from, slice + k * inner * size, count, totals);
      }
      store_typed(to, totals, count, target);
    }
  });
}

// What the type holds at most and at least.
int64_t largest_of(DType dtype) {
  return dtype == DType::kI8    ? std::numeric_limits<int8_t>::max()
         : dtype == DType::kU8  ? std::numeric_limits<uint8_t>::max()
         : dtype == DType::kI32 ? std::numeric_limits<int32_t>::max()
         : dtype == DType::kI64 ? std::numeric_limits<int64_t>::max()
                                : 1;
}
int64_t smallest_of(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kBool ? 0 : -largest_of(dtype) - 1;
}

}  // namespace

void load_typed(DType dtype, const std::byte* x, int64_t stride, int64_t n, double* y) {
  load(dtype, x, stride, n, DType::kF64, reinterpret_cast<std::byte*>(y));
}
void load_typed(DType dtype, const std::byte* x, int64_t stride, int64_t n, int64_t* y) {
  load(dtype, x, stride, n, DType::kI64, reinterpret_cast<std::byte*>(y));
}
void store_typed(DType dtype, const double* x, int64_t n, std::byte* y, int64_t stride) {
  store(DType::kF64, reinterpret_cast<const std::byte*>(x), n, dtype, y, stride);
}
void store_typed(DType dtype, const int64_t* x, int64_t n, std::byte* y, int64_t stride) {
  store(DType::kI64, reinterpret_cast<const std::byte*>(x), n, dtype, y, stride);
}

void map_typed(ThreadPool& pool, const TypedFunction& f, std::span<const TypedOperand> in,
               const Shape& shape, DType to, std::byte* y) {
  if (shape.elements() > 0) Map(f, in, shape, to, y).run(pool);
}

void sum_typed(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, DType to, std::byte* y) {
  if (is_float(from)) {
    reduce(pool, Fold::kSum, from, x, outer, axis, inner, 0.0, to, y);
  } else {
    reduce(pool, Fold::kSum, from, x, outer, axis, inner, int64_t{0}, to, y);
  }
}

void max_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, std::byte* y) {
  if (is_float(dtype)) {
    constexpr double kLeast = -std::numeric_limits<double>::infinity();
    return reduce(pool, Fold::kMaximum, dtype, x, outer, axis, inner, kLeast, dtype, y);
  }
  reduce(pool, Fold::kMaximum, dtype, x, outer, axis, inner, smallest_of(dtype), dtype, y);
}

void min_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, std::byte* y) {
  if (is_float(dtype)) {
    constexpr double kMost = std::numeric_limits<double>::infinity();
    return reduce(pool, Fold::kMinimum, dtype, x, outer, axis, inner, kMost, dtype, y);
  }
  reduce(pool, Fold::kMinimum, dtype, x, outer, axis, inner, largest_of(dtype), dtype, y);
}

int64_t integer_power(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; y > 0; y >>= 1) {
    if (y & 1) result = wrap_mul(result, x);
    x = wrap_mul(x, x);
  }
  return result;
}

}  // namespace lumen::kernels
