#include "lib/kernels/typed.h"

#include <algorithm>
#include <cstring>

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
