#include "lib/kernels/typed.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lib/base/check.h"
#include "lib/base/round_up.h"

namespace lumen::kernels {
namespace {

constexpr int64_t kChunk = 256;

// A task of fewer elements is not worth a second thread.
constexpr int64_t kGrain = 4096;

// Calls f with a null pointer to the C++ type of a plain type.
template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kF64:
      return f(static_cast<double*>(nullptr));
    case DType::kF16:
      return f(static_cast<f16*>(nullptr));
    case DType::kBF16:
      return f(static_cast<bf16*>(nullptr));
    case DType::kI8:
      return f(static_cast<int8_t*>(nullptr));
    case DType::kU8:
      return f(static_cast<uint8_t*>(nullptr));
    case DType::kI32:
      return f(static_cast<int32_t*>(nullptr));
    case DType::kI64:
      return f(static_cast<int64_t*>(nullptr));
    case DType::kBool:
      return f(static_cast<bool*>(nullptr));
    default:
      LUMEN_CHECK(!"a plain type");
  }
}

// Integers from double: truncated and saturated. Without branches where a double holds the limits,
// so that loops become vectors.
template <typename To>
To to_integer(double x) {
  constexpr auto kLow = static_cast<double>(std::numeric_limits<To>::min());
  if constexpr (sizeof(To) <= 4) {
    constexpr auto kHigh = static_cast<double>(std::numeric_limits<To>::max());
    const double number = x == x ? x : 0;
    const double above = number < kLow ? kLow : number, within = above > kHigh ? kHigh : above;
    return static_cast<To>(static_cast<int32_t>(within));
  }
  if (std::isnan(x)) return 0;
  if (x < kLow) return std::numeric_limits<To>::min();
  if (x >= 0x1p63) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

template <typename To, typename From>
To convert(From x) {
  if constexpr (std::is_same_v<From, f16> || std::is_same_v<From, bf16>) {
    return convert<To>(to_float(x));
  } else if constexpr (std::is_same_v<To, f16>) {
    return to_f16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bf16>) {
    return to_bf16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return to_integer<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// A bool is read as a byte: other values than 0 and 1 are true.
template <typename T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <typename T, typename To>
void load_as(const std::byte* x, int64_t stride, int64_t n, To* y) {
  auto at = [&](int64_t i) {
    Stored<T> value;
    std::memcpy(&value, x + i * static_cast<int64_t>(sizeof value), sizeof value);
    return std::is_same_v<T, bool> ? static_cast<To>(convert<bool>(value)) : convert<To>(value);
  };
  if (stride == 1) {  // in vectors
    for (int64_t i = 0; i < n; ++i) y[i] = at(i);
  } else if (stride == 0) {
    std::fill_n(y, n, n > 0 ? at(0) : To{});
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = at(i * stride);
  }
}

template <typename T, typename From>
void store_as(const From* x, int64_t n, std::byte* y, int64_t stride) {
  auto set = [&](int64_t at, From from) {
    const T value = convert<T>(from);
    std::memcpy(y + at * static_cast<int64_t>(sizeof value), &value, sizeof value);
  };
  if (stride == 1) {  // in vectors
    for (int64_t i = 0; i < n; ++i) set(i, x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) set(i * stride, x[i]);
  }
}

// Element offset of row `row` (all axes but `skipped`, counted row-major).
int64_t offset_of(const Shape& shape, const Strides& strides, int skipped, int64_t row) {
  int64_t offset = 0;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (axis == skipped) continue;
    offset += row % shape[axis] * strides[static_cast<size_t>(axis)];
    row /= shape[axis];
  }
  return offset;
}

int64_t stride_of(const Shape& shape, const Strides& strides, int axis) {
  return shape.rank() > 0 ? strides[static_cast<size_t>(axis)] : 0;
}

template <typename T, typename Fn>
void map_row(Fn fn, std::span<const TypedOperand> in, const Shape& shape, int64_t row, DType to,
             std::byte* y) {
  const int last = std::max(shape.rank() - 1, 0);
  const int64_t n = shape.rank() > 0 ? shape[last] : 1;
  T values[kMaxArguments][kChunk], result[kChunk];
  for (int64_t at = 0; at < n; at += kChunk) {
    const int64_t count = std::min(kChunk, n - at);
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t stride = stride_of(shape, in[i].strides, last);
      const int64_t offset = offset_of(shape, in[i].strides, last, row) + at * stride;
      load_typed(in[i].dtype, in[i].data + offset * info(in[i].dtype).block_bytes, stride, count,
                 values[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      T arguments[kMaxArguments];
      for (size_t a = 0; a < in.size(); ++a) arguments[a] = values[a][i];
      result[i] = fn(arguments);
    }
    store_typed(to, result, count, y + (row * n + at) * info(to).block_bytes);
  }
}

// Reduces columns [begin, end), at most kChunk, of x [axis, inner], in the order of the axis.
template <typename T, typename Join>
void reduce_columns(DType from, const std::byte* x, int64_t axis, int64_t inner, int64_t begin,
                    int64_t end, T start, Join join, DType to, std::byte* y) {
  T sum[kChunk], values[kChunk];
  std::fill_n(sum, end - begin, start);
  for (int64_t k = 0; k < axis; ++k) {
    load_typed(from, x + (k * inner + begin) * info(from).block_bytes, 1, end - begin, values);
    for (int64_t i = 0; i < end - begin; ++i) sum[i] = join(sum[i], values[i]);
  }
  store_typed(to, sum, end - begin, y + begin * info(to).block_bytes);
}

// The same of x [axis]: eight partial results of every eighth number, joined in order.
template <typename T, typename Join>
void reduce_line(DType from, const std::byte* x, int64_t axis, T start, Join join, DType to,
                 std::byte* y) {
  constexpr int64_t kParts = 8;
  T parts[kParts], values[kChunk];
  std::fill_n(parts, kParts, start);
  for (int64_t at = 0; at < axis; at += kChunk) {
    const int64_t count = std::min(kChunk, axis - at), whole = count / kParts * kParts;
    load_typed(from, x + at * info(from).block_bytes, 1, count, values);
    for (int64_t i = 0; i < whole; i += kParts) {
      for (int64_t p = 0; p < kParts; ++p) parts[p] = join(parts[p], values[i + p]);
    }
    for (int64_t i = whole; i < count; ++i) parts[i - whole] = join(parts[i - whole], values[i]);
  }
  T all = start;
  for (const T& part : parts) all = join(all, part);
  store_typed(to, &all, 1, y);
}

template <typename T, typename Join>
void reduce(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
            int64_t inner, T start, Join join, DType to, std::byte* y) {
  const int64_t pieces = divide_up(inner, kChunk);
  const int64_t grain =
      std::max<int64_t>(1, kGrain / std::max<int64_t>(1, axis * std::min(inner, kChunk)));
  pool.parallel_for(outer * pieces, grain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t o = i / pieces, begin = i % pieces * kChunk;
      const std::byte* const slice = x + o * axis * inner * info(from).block_bytes;
      std::byte* const result = y + o * inner * info(to).block_bytes;
      if (inner == 1) {
        reduce_line(from, slice, axis, start, join, to, result);
      } else {
        reduce_columns(from, slice, axis, inner, begin, std::min(inner, begin + kChunk), start,
                       join, to, result);
      }
    }
  });
}

template <typename T>
T multiply_add(T a, T x, T b) {
  if constexpr (std::is_same_v<T, int64_t>) return wrap_add(wrap_mul(a, x), b);
  return a * x + b;
}

template <typename T>
void matmul_as(ThreadPool& pool, const TypedOperand& a, const TypedOperand& b, int64_t m, int64_t n,
               int64_t k, DType to, std::byte* c) {
  auto at = [](const TypedOperand& x, int64_t row, int64_t column) {
    return x.data + (row * x.strides[0] + column * x.strides[1]) * info(x.dtype).block_bytes;
  };
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n * k));
  pool.parallel_for(m, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t column = 0; column < n; column += kChunk) {
        const int64_t count = std::min(kChunk, n - column);
        T sum[kChunk] = {}, row[kChunk], factor;
        for (int64_t l = 0; l < k; ++l) {
          load_typed(a.dtype, at(a, i, l), 1, 1, &factor);
          load_typed(b.dtype, at(b, l, column), b.strides[1], count, row);
          for (int64_t j = 0; j < count; ++j) sum[j] = multiply_add(factor, row[j], sum[j]);
        }
        store_typed(to, sum, count, c + (i * n + column) * info(to).block_bytes);
      }
    }
  });
}

// One step of `count` recurrences side by side: carry = factor · carry + term, or the term alone.
template <typename T>
void scan_step(bool first, const T* factors, T* terms, int64_t count, T* carry) {
  for (int64_t i = 0; i < count; ++i) {
    carry[i] = first ? terms[i] : multiply_add(factors[i], carry[i], terms[i]);
  }
}

// A scan along `axis`, whose lines are numbered row-major over the other axes. Lines advance side
// by side, as each is a chain of dependent additions.
template <typename T>
class Scan {
 public:
  Scan(const TypedOperand& a, const TypedOperand& b, const Shape& shape, int axis, DType to,
       std::byte* y)
      : a_(a), b_(b), y_{y, to, contiguous_strides(shape)}, shape_(shape), axis_(axis) {}

  void run(ThreadPool& pool) {
    const int64_t n = shape_[axis_], lines = n > 0 ? shape_.elements() / n : 0;
    if (lines == 0) return;
    const int last = shape_.rank() - 1;
    const bool across = axis_ < last;  // neighbouring lines lie beside each other
    const int64_t row = across ? shape_[last] : lines, share = divide_up(lines, pool.threads());
    const int64_t width = across ? kChunk : std::min<int64_t>(share, kBeside);
    is_sum_ = is_one(a_, shape_);
    const int64_t per_row = divide_up(row, width);
    const int64_t grain = std::max<int64_t>(1, kGrain / (n * std::min(row, width)));
    pool.parallel_for(lines / row * per_row, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % per_row * width, count = std::min(width, row - first);
        if (across) {
          scan_across(i / per_row * row + first, count);
        } else {
          scan_along(first, count);
        }
      }
    });
  }

 private:
  static constexpr int64_t kBeside = 8, kPart = 64;

  int64_t offset(const TypedOperand& x, int64_t line, int64_t i) const {
    return (offset_of(shape_, x.strides, axis_, line) + i * stride_of(shape_, x.strides, axis_)) *
           info(x.dtype).block_bytes;
  }

  // `count` ≤ kChunk neighbours along the last axis, one element of each after the other.
  void scan_across(int64_t line, int64_t count) {
    T factors[kChunk], terms[kChunk], carry[kChunk];
    const int last = shape_.rank() - 1;
    for (int64_t i = 0; i < shape_[axis_]; ++i) {
      if (i == 0 || !is_sum_) {
        load_typed(a_.dtype, a_.data + offset(a_, line, i), stride_of(shape_, a_.strides, last),
                   count, factors);
      }
      load_typed(b_.dtype, b_.data + offset(b_, line, i), stride_of(shape_, b_.strides, last),
                 count, terms);
      scan_step(i == 0, factors, terms, count, carry);
      store_typed(y_.dtype, carry, count, const_cast<std::byte*>(y_.data) + offset(y_, line, i));
    }
  }

  // `count` ≤ kBeside lines along the last axis, a part of each after the other.
  void scan_along(int64_t line, int64_t count) {
    T factors[kBeside][kPart] = {}, terms[kBeside][kPart] = {}, carry[kBeside] = {};
    for (int64_t at = 0; at < shape_[axis_]; at += kPart) {
      const int64_t length = std::min(kPart, shape_[axis_] - at);
      auto load = [&](const TypedOperand& x, int64_t l, T* to) {
        load_typed(x.dtype, x.data + offset(x, line + l, at), stride_of(shape_, x.strides, axis_),
                   length, to);
      };
      for (int64_t l = 0; l < count; ++l) {
        if (!is_sum_) load(a_, l, factors[l]);
        load(b_, l, terms[l]);
        if (at == 0) carry[l] = terms[l][0];
      }
      const auto part = count == 1
                            ? (is_sum_ ? scan_part<1, true> : scan_part<1, false>)
                            : (is_sum_ ? scan_part<kBeside, true> : scan_part<kBeside, false>);
      part(factors, at == 0 ? 1 : 0, length, carry, terms);
      for (int64_t l = 0; l < count; ++l) {
        store_typed(y_.dtype, terms[l], length,
                    const_cast<std::byte*>(y_.data) + offset(y_, line + l, at));
      }
    }
  }

  template <int kLines, bool kIsSum>
  static void scan_part(const T (&factors)[kBeside][kPart], int64_t begin, int64_t end,
                        T (&carry)[kBeside], T (&terms)[kBeside][kPart]) {
    T last[kLines];
    std::copy_n(carry, kLines, last);
    for (int64_t i = begin; i < end; ++i) {
      for (int l = 0; l < kLines; ++l) {
        last[l] = multiply_add(kIsSum ? T{1} : factors[l][i], last[l], terms[l][i]);
        terms[l][i] = last[l];
      }
    }
    std::copy_n(last, kLines, carry);
  }

  // Whether all factors are 1.
  static bool is_one(const TypedOperand& a, const Shape& shape) {
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] > 1 && a.strides[static_cast<size_t>(i)] != 0) return false;
    }
    T factor;
    load_typed(a.dtype, a.data, 1, 1, &factor);
    return factor == 1;
  }

  const TypedOperand &a_, &b_, y_;
  const Shape& shape_;
  int axis_;
  bool is_sum_ = false;
};

}  // namespace

void load_typed(DType dtype, const std::byte* x, int64_t stride, int64_t n, double* y) {
  with_type(dtype,
            [&](auto* type) { load_as<std::remove_pointer_t<decltype(type)>>(x, stride, n, y); });
}
void load_typed(DType dtype, const std::byte* x, int64_t stride, int64_t n, int64_t* y) {
  with_type(dtype,
            [&](auto* type) { load_as<std::remove_pointer_t<decltype(type)>>(x, stride, n, y); });
}
void store_typed(DType dtype, const double* x, int64_t n, std::byte* y, int64_t stride) {
  with_type(dtype,
            [&](auto* type) { store_as<std::remove_pointer_t<decltype(type)>>(x, n, y, stride); });
}
void store_typed(DType dtype, const int64_t* x, int64_t n, std::byte* y, int64_t stride) {
  with_type(dtype,
            [&](auto* type) { store_as<std::remove_pointer_t<decltype(type)>>(x, n, y, stride); });
}

void cast(DType from, const std::byte* x, DType to, std::byte* y, int64_t n) {
  auto through = [&](auto* buffer) {
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      load_typed(from, x + row_bytes(from, i), 1, count, buffer);
      store_typed(to, buffer, count, y + row_bytes(to, i));
    }
  };
  double reals[kChunk];
  int64_t integers[kChunk];
  if (is_float(from)) {
    through(reals);
  } else {
    through(integers);
  }
}

void map_typed(ThreadPool& pool, RealFn real, IntegerFn integer, std::span<const TypedOperand> in,
               const Shape& shape, DType to, std::byte* y) {
  if (shape.elements() == 0) return;
  const bool is_real =
      std::any_of(in.begin(), in.end(), [](const TypedOperand& x) { return is_float(x.dtype); });
  const int64_t columns = shape.rank() > 0 ? shape[-1] : 1;
  const int64_t grain = std::max<int64_t>(1, kGrain / columns);
  pool.parallel_for(shape.elements() / columns, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      if (is_real) {
        map_row<double>(real, in, shape, row, to, y);
      } else {
        map_row<int64_t>(integer, in, shape, row, to, y);
      }
    }
  });
}

void sum_typed(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, DType to, std::byte* y) {
  if (is_float(from)) {
    reduce(
        pool, from, x, outer, axis, inner, 0.0, [](double a, double b) { return a + b; }, to, y);
  } else {
    reduce(pool, from, x, outer, axis, inner, int64_t{0}, wrap_add, to, y);
  }
}

void max_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, std::byte* y) {
  if (is_float(dtype)) {
    auto larger = [](double a, double b) { return std::isnan(a) || b <= a ? a : b; };
    reduce(pool, dtype, x, outer, axis, inner, -std::numeric_limits<double>::infinity(), larger,
           dtype, y);
    return;
  }
  int64_t lowest = 0;
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_integral_v<T>) lowest = std::numeric_limits<T>::min();
  });
  reduce(
      pool, dtype, x, outer, axis, inner, lowest,
      [](int64_t a, int64_t b) { return std::max(a, b); }, dtype, y);
}

void matmul_typed(ThreadPool& pool, const TypedOperand& a, const TypedOperand& b, int64_t m,
                  int64_t n, int64_t k, DType to, std::byte* c) {
  if (is_float(a.dtype) || is_float(b.dtype)) {
    matmul_as<double>(pool, a, b, m, n, k, to, c);
  } else {
    matmul_as<int64_t>(pool, a, b, m, n, k, to, c);
  }
}

void linear_scan(ThreadPool& pool, const TypedOperand& a, const TypedOperand& b, const Shape& shape,
                 int axis, DType to, std::byte* y) {
  if (is_float(a.dtype) || is_float(b.dtype)) {
    Scan<double>(a, b, shape, axis, to, y).run(pool);
  } else {
    Scan<int64_t>(a, b, shape, axis, to, y).run(pool);
  }
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
