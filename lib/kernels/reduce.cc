#include "lib/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "lib/base/check.h"
#include "lib/base/prefetch.h"
#include "lib/base/round_up.h"
#include "lib/kernels/fold_rows.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Float = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Float>;

// How a reduction starts, what it takes of an element and how it joins two partial results.
// join_numbers is join where neither is NaN.
struct Sum {
  static HWY_INLINE FloatVec take(FloatVec v) { return v; }
  static constexpr float kStart = 0.0f;
  static constexpr bool kMindsNan = false;
  static HWY_INLINE FloatVec join(FloatVec a, FloatVec b) { return hn::Add(a, b); }
  static HWY_INLINE FloatVec join_numbers(FloatVec a, FloatVec b) { return hn::Add(a, b); }
  static HWY_INLINE float join_scalar(float a, float b) { return a + b; }
  template <class D>  // join_scalar of each lane
  static HWY_INLINE hn::Vec<D> join_each(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
};
struct SquareSum : Sum {
  static HWY_INLINE FloatVec take(FloatVec v) { return hn::Mul(v, v); }
};
template <bool kLeast>
struct Extreme {
  static HWY_INLINE FloatVec take(FloatVec v) { return v; }
  static constexpr float kStart = kLeast ? kInf : -kInf;
  static constexpr bool kMindsNan = true;
  static HWY_INLINE FloatVec join_numbers(FloatVec a, FloatVec b) {
    return kLeast ? hn::Min(a, b) : hn::Max(a, b);
  }
  static HWY_INLINE FloatVec join(FloatVec a, FloatVec b) {
    // x86 returns its second operand if either is NaN; a NaN in `a` is put back.
    const auto further = join_numbers(a, b);
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, further));
  }
  static HWY_INLINE float join_scalar(float a, float b) {
    return a != a || (kLeast ? a <= b : a >= b) ? a : b;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> join_each(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), kLeast ? hn::Le(a, b) : hn::Ge(a, b)), a, b);
  }
};
using Maximum = Extreme<false>;
using Minimum = Extreme<true>;

// Spans of this many elements (or rows) are reduced straight, longer ones by halves: pairwise.
inline constexpr int64_t kSpan = 1024;
inline constexpr int64_t kRowSpan = 64;

// Columns reduced together: several vectors of every target, 1 KiB of each row.
inline constexpr int64_t kStrip = 256;

// One vector's part in telling whether there was a NaN: the largest magnitude as an integer.
using Bits = hn::RebindToUnsigned<Float>;
HWY_INLINE hn::Vec<Bits> larger_bits(hn::Vec<Bits> most, FloatVec v) {
  return hn::Max(most, hn::BitCast(Bits(), hn::Abs(v)));
}
HWY_INLINE bool any_nan_in(hn::Vec<Bits> most) {
  return !hn::AllFalse(Bits(), hn::Gt(most, hn::Set(Bits(), 0x7f800000)));
}

// Halves of the vector are joined until one lane is left.
template <class Op, class D>
HWY_INLINE float join_lanes(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return join_lanes<Op>(half,
                          Op::join_each(half, hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    HWY_ALIGN float lanes[4];
    hn::Store(v, d, lanes);
    return Op::join_scalar(Op::join_scalar(lanes[0], lanes[2]),
                           Op::join_scalar(lanes[1], lanes[3]));
  }
}

// The reduction of n ≤ kSpan contiguous numbers. Without kMayBeNan it means nothing if no_nan
// becomes false: of the whole vectors' numbers one is NaN.
template <class Op, class T, bool kMayBeNan>
float reduce_short_span(const T* x, int64_t n, bool& no_nan) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto join = [](FloatVec a, FloatVec b)
                        HWY_ATTR { return kMayBeNan ? Op::join(a, b) : Op::join_numbers(a, b); };
  FloatVec part0 = hn::Set(d, Op::kStart), part1 = part0, part2 = part0, part3 = part0;
  auto most0 = hn::Zero(Bits()), most1 = most0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto v0 = Op::take(load_numbers(Float(), x + i));
    const auto v1 = Op::take(load_numbers(Float(), x + i + lanes));
    const auto v2 = Op::take(load_numbers(Float(), x + i + 2 * lanes));
    const auto v3 = Op::take(load_numbers(Float(), x + i + 3 * lanes));
    if constexpr (!kMayBeNan) {
      most0 = larger_bits(larger_bits(most0, v0), v2);
      most1 = larger_bits(larger_bits(most1, v1), v3);
    }
    part0 = join(part0, v0);
    part1 = join(part1, v1);
    part2 = join(part2, v2);
    part3 = join(part3, v3);
  }
  if constexpr (!kMayBeNan) {
    no_nan = !any_nan_in(hn::Max(most0, most1));
    if (!no_nan) return 0;
  }
  for (; i + lanes <= n; i += lanes) {
    part0 = Op::join(part0, Op::take(load_numbers(Float(), x + i)));
  }
  if (i < n) {
    const auto is_there = hn::FirstN(d, static_cast<size_t>(n - i));
    part1 = Op::join(part1, hn::IfThenElse(is_there, Op::take(load_first(Float(), x + i, n - i)),
                                           hn::Set(d, Op::kStart)));
  }
  return join_lanes<Op>(d, Op::join(Op::join(part0, part1), Op::join(part2, part3)));
}

template <class Op, class T>
float reduce_span(const T* x, int64_t n) {
  if (n > kSpan) {
    const int64_t half = (n / 2 + kSpan - 1) / kSpan * kSpan;
    return Op::join_scalar(reduce_span<Op, T>(x, half), reduce_span<Op, T>(x + half, n - half));
  }
  bool no_nan = true;
  if constexpr (Op::kMindsNan) {
    const float extreme = reduce_short_span<Op, T, false>(x, n, no_nan);
    if (HWY_LIKELY(no_nan)) return extreme;
  }
  return reduce_short_span<Op, T, true>(x, n, no_nan);
}

// Where rows are divided: reductions of both parts are joined.
constexpr int64_t first_half(int64_t rows) {
  return (rows / 2 + kRowSpan - 1) / kRowSpan * kRowSpan;
}

// The partial results of a span of rows: row r is joined to that of r % kRowParts.
inline constexpr int64_t kRowParts = 8;

// y[i] of what load(part, i, count) gives from column i on, `count` columns of it, joined by
// halves.
template <class Op, class Load>
HWY_INLINE void join_parts(int64_t columns, float* y, const Load& load) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < columns; i += lanes) {
    const int64_t count = std::min(lanes, columns - i);
    FloatVec v[kRowParts];
    for (int64_t part = 0; part < kRowParts; ++part) v[part] = load(part, i, count);
    for (int width = kRowParts / 2; width > 0; width /= 2) {
      for (int part = 0; part < width; ++part) v[part] = Op::join(v[part], v[part + width]);
    }
    store_first(v[0], d, y + i, count);
  }
}

// The reduction of up to kRowParts rows, as below.
template <class Op, class T>
void reduce_few_rows(const T* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  const auto start = hn::Set(Float(), Op::kStart);
  join_parts<Op>(columns, y, [&](int64_t part, int64_t i, int64_t count) HWY_ATTR {
    if (part >= rows) return start;
    return Op::join(start, Op::take(load_first(Float(), x + part * stride + i, count)));
  });
}

// y[i] = reduction over rows r < rows of x[r · stride + i] for i in [0, columns),
// columns ≤ kStrip. A part is made of pieces of some rows at once, each of which is read from its
// beginning to its end; what stands below them is fetched, as it comes next. Without kMayBeNan
// false, and y means nothing, if there is a NaN.
template <class Op, bool kMayBeNan, class T>
bool reduce_rows(const T* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto start = hn::Set(d, Op::kStart);
  HWY_ALIGN float parts[kRowParts][kStrip];
  auto most = hn::Zero(Bits());
  for (int64_t part = 0; part < kRowParts; ++part) {
    const auto join_rows = [&](int64_t i, const auto& load) HWY_ATTR {
      auto joined = start;
      for (int64_t row = part; row < rows; row += kRowParts) {
        const T* const from = x + row * stride + i;
        prefetch(from + stride, lanes * static_cast<int64_t>(sizeof(T)));
        const auto v = Op::take(load(from));
        joined = kMayBeNan ? Op::join(joined, v) : Op::join_numbers(joined, v);
        if constexpr (!kMayBeNan) most = larger_bits(most, v);
      }
      hn::Store(joined, d, parts[part] + i);
    };
    int64_t i = 0;
    for (; i + lanes <= columns; i += lanes) {
      join_rows(i, [](const T* p) HWY_ATTR { return load_numbers(Float(), p); });
    }
    const int64_t rest = columns - i;
    if (rest == 0) continue;
    join_rows(i, [rest](const T* p) HWY_ATTR { return load_first(Float(), p, rest); });
  }
  if (!kMayBeNan && any_nan_in(most)) return false;
  join_parts<Op>(columns, y, [&](int64_t part, int64_t i, int64_t) HWY_ATTR {
    return hn::Load(d, parts[part] + i);
  });
  return true;
}

// The same of any number of rows: span by span, so that the pages and cache lines of a span serve
// all columns.
template <class Op, class T>
void reduce_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  if (rows == 0) {  // x may be null
    std::fill_n(y, columns, Op::kStart);
    return;
  }
  if (rows <= kRowParts) return reduce_few_rows<Op>(x, rows, stride, columns, y);
  if (rows <= kRowSpan) {
    if (Op::kMindsNan && reduce_rows<Op, false>(x, rows, stride, columns, y)) return;
    reduce_rows<Op, true>(x, rows, stride, columns, y);
    return;
  }
  const int64_t half = first_half(rows);
  HWY_ALIGN float rest[kStrip];
  reduce_columns<Op>(x, half, stride, columns, y);
  reduce_columns<Op>(x + half * stride, rows - half, stride, columns, rest);
  for (int64_t i = 0; i < columns; ++i) y[i] = Op::join_scalar(y[i], rest[i]);
}

float sum_span(const float* x, int64_t n) {
  return reduce_span<Sum, float>(x, n);
}
float sum_bf16_span(const uint16_t* x, int64_t n) {
  return reduce_span<Sum, uint16_t>(x, n);
}
float sum_f16_span(const uint16_t* x, int64_t n) {
  return reduce_span<Sum, HalfBits>(reinterpret_cast<const HalfBits*>(x), n);
}
float square_span(const float* x, int64_t n) {
  return reduce_span<SquareSum, float>(x, n);
}
float square_bf16_span(const uint16_t* x, int64_t n) {
  return reduce_span<SquareSum, uint16_t>(x, n);
}
float square_f16_span(const uint16_t* x, int64_t n) {
  return reduce_span<SquareSum, HalfBits>(reinterpret_cast<const HalfBits*>(x), n);
}
float max_span(const float* x, int64_t n) {
  return reduce_span<Maximum, float>(x, n);
}
float max_bf16_span(const uint16_t* x, int64_t n) {
  return reduce_span<Maximum, uint16_t>(x, n);
}
float max_f16_span(const uint16_t* x, int64_t n) {
  return reduce_span<Maximum, HalfBits>(reinterpret_cast<const HalfBits*>(x), n);
}
float min_span(const float* x, int64_t n) {
  return reduce_span<Minimum, float>(x, n);
}
float min_bf16_span(const uint16_t* x, int64_t n) {
  return reduce_span<Minimum, uint16_t>(x, n);
}
float min_f16_span(const uint16_t* x, int64_t n) {
  return reduce_span<Minimum, HalfBits>(reinterpret_cast<const HalfBits*>(x), n);
}
void sum_columns(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Sum>(x, rows, stride, columns, y);
}
void sum_bf16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Sum>(x, rows, stride, columns, y);
}
void sum_f16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Sum>(reinterpret_cast<const HalfBits*>(x), rows, stride, columns, y);
}
void square_columns(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<SquareSum>(x, rows, stride, columns, y);
}
void square_bf16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns,
                         float* y) {
  reduce_columns<SquareSum>(x, rows, stride, columns, y);
}
void square_f16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns,
                        float* y) {
  reduce_columns<SquareSum>(reinterpret_cast<const HalfBits*>(x), rows, stride, columns, y);
}
void min_columns(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Minimum>(x, rows, stride, columns, y);
}
void min_bf16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Minimum>(x, rows, stride, columns, y);
}
void min_f16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Minimum>(reinterpret_cast<const HalfBits*>(x), rows, stride, columns, y);
}
void max_columns(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Maximum>(x, rows, stride, columns, y);
}
void max_bf16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Maximum>(x, rows, stride, columns, y);
}
void max_f16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Maximum>(reinterpret_cast<const HalfBits*>(x), rows, stride, columns, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(sum_span);
HWY_EXPORT(sum_bf16_span);
HWY_EXPORT(sum_f16_span);
HWY_EXPORT(square_span);
HWY_EXPORT(square_bf16_span);
HWY_EXPORT(square_f16_span);
HWY_EXPORT(square_columns);
HWY_EXPORT(square_bf16_columns);
HWY_EXPORT(square_f16_columns);
HWY_EXPORT(max_span);
HWY_EXPORT(max_bf16_span);
HWY_EXPORT(max_f16_span);
HWY_EXPORT(min_span);
HWY_EXPORT(min_bf16_span);
HWY_EXPORT(min_f16_span);
HWY_EXPORT(sum_columns);
HWY_EXPORT(sum_bf16_columns);
HWY_EXPORT(sum_f16_columns);
HWY_EXPORT(max_columns);
HWY_EXPORT(max_bf16_columns);
HWY_EXPORT(max_f16_columns);
HWY_EXPORT(min_columns);
HWY_EXPORT(min_bf16_columns);
HWY_EXPORT(min_f16_columns);

namespace {

template <class T>
using SpanKernel = float (*)(const T*, int64_t);
template <class T>
using ColumnsKernel = void (*)(const T*, int64_t, int64_t, int64_t, float*);

// How numbers are reduced.
template <class T>
struct Kernels {
  SpanKernel<T> span;
  ColumnsKernel<T> columns;
};

// Work below this many elements is not worth a second thread.
constexpr int64_t kGrain = 8192;

// A long row is cut into pieces of equal length whatever the number of threads; those of some rows
// are shared out together.
constexpr int64_t kMaxPieces = 64, kPiecesTogether = 1024;

template <class T>
void reduce_long_rows(ThreadPool& pool, const T* x, int64_t rows, int64_t n, SpanKernel<T> span,
                      SpanKernel<float> join, float* y) {
  const int64_t piece = std::max(kGrain, divide_up(n, kMaxPieces)), pieces = divide_up(n, piece);
  float partial[kPiecesTogether];
  for (int64_t first = 0, count; first < rows; first += count) {
    count = std::min(kPiecesTogether / pieces, rows - first);
    pool.parallel_for(count * pieces, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i % pieces * piece;
        partial[i] = span(x + (first + i / pieces) * n + at, std::min(piece, n - at));
      }
    });
    for (int64_t i = 0; i < count; ++i) y[first + i] = join(partial + i * pieces, pieces);
  }
}

// Splitting between columns does not change any column's order of additions. Strips are even, so
// that threads are, and the same on every target.
template <class T>
void reduce_strips(ThreadPool& pool, const T* x, int64_t outer, int64_t axis, int64_t inner,
                   ColumnsKernel<T> columns, float* y) {
  constexpr int64_t kStrip = HWY_STATIC_DISPATCH(kStrip);
  const int64_t strips = divide_up(inner, kStrip);
  const int64_t width = round_up(divide_up(inner, std::max<int64_t>(1, strips)), 32);
  const int64_t strip_work = std::max<int64_t>(1, axis * width);
  const int64_t grain = std::max<int64_t>(1, kGrain / strip_work);
  pool.parallel_for(outer * strips, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i / strips, column = i % strips * width;
      columns(x + o * axis * inner + column, axis, inner, std::min(width, inner - column),
              y + o * inner + column);
    }
  });
}

// The sums of up to so many columns fit on the stack.
constexpr int64_t kHalvedColumns = 2048;

// Sums of columns as reduce_columns adds them, but for one half of the rows on either of two
// threads: each reads those that it has just computed, in its own cache. False: it is not worth it.
template <class T>
bool sum_halves(ThreadPool& pool, const T* x, int64_t rows, int64_t inner, ColumnsKernel<T> columns,
                float* y) {
  constexpr int64_t kStrip = HWY_STATIC_DISPATCH(kStrip);
  if (pool.threads() != 2 || inner > kHalvedColumns || rows <= HWY_STATIC_DISPATCH(kRowSpan) ||
      rows * inner < 2 * kGrain) {
    return false;
  }
  const int64_t middle = HWY_STATIC_DISPATCH(first_half)(rows);
  alignas(64) float second[kHalvedColumns];
  pool.run([&](int thread, int) {
    const int64_t begin = thread == 0 ? 0 : middle, end = thread == 0 ? middle : rows;
    float* const sums = thread == 0 ? y : second;
    for (int64_t i = 0; i < inner; i += kStrip) {
      columns(x + begin * inner + i, end - begin, inner, std::min(kStrip, inner - i), sums + i);
    }
  });
  for (int64_t i = 0; i < inner; ++i) y[i] += second[i];
  return true;
}

// `join` reduces what long rows' pieces are reduced to.
template <class T>
void reduce(ThreadPool& pool, const T* x, int64_t outer, int64_t axis, int64_t inner,
            const Kernels<T>& kernels, SpanKernel<float> join, float* y) {
  if (axis == 1) {  // lines of one number are one row of columns
    return reduce_strips(pool, x, 1, 1, outer * inner, kernels.columns, y);
  }
  if (inner == 1 && axis >= 2 * kGrain) {
    return reduce_long_rows(pool, x, outer, axis, kernels.span, join, y);
  }
  if (inner == 1) {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, axis));
    pool.parallel_for(outer, grain, [&](int64_t begin, int64_t end, int) {
      if (axis > 0 && axis <= kShortLine) {
        return over_turned_lines(reinterpret_cast<const std::byte*>(x), sizeof(T), axis, begin, end,
                                 [&](const std::byte* turned, int64_t lines, int64_t first) {
                                   kernels.columns(reinterpret_cast<const T*>(turned), axis, lines,
                                                   lines, y + first);
                                 });
      }
      for (int64_t i = begin; i < end; ++i) y[i] = kernels.span(x + i * axis, axis);
    });
    return;
  }
  reduce_strips(pool, x, outer, axis, inner, kernels.columns, y);
}

template <class T>
void sum(ThreadPool& pool, const T* x, int64_t outer, int64_t axis, int64_t inner,
         const Kernels<T>& kernels, float* y) {
  if (outer == 1 && inner > 1 && sum_halves(pool, x, axis, inner, kernels.columns, y)) return;
  reduce(pool, x, outer, axis, inner, kernels, HWY_DYNAMIC_DISPATCH(sum_span), y);
}

// The kernels of the type.
Kernels<uint16_t> of_halves(DType dtype, const Kernels<uint16_t>& f16,
                            const Kernels<uint16_t>& bf16) {
  LUMEN_CHECK(dtype == DType::kF16 || dtype == DType::kBF16);
  return dtype == DType::kF16 ? f16 : bf16;
}

}  // namespace

void sum_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y) {
  sum<float>(pool, x, outer, axis, inner,
             {HWY_DYNAMIC_DISPATCH(sum_span), HWY_DYNAMIC_DISPATCH(sum_columns)}, y);
}

void sum_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y) {
  sum(pool, x, outer, axis, inner,
      of_halves(dtype, {HWY_DYNAMIC_DISPATCH(sum_f16_span), HWY_DYNAMIC_DISPATCH(sum_f16_columns)},
                {HWY_DYNAMIC_DISPATCH(sum_bf16_span), HWY_DYNAMIC_DISPATCH(sum_bf16_columns)}),
      y);
}

void square_sum_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                       float* y) {
  sum<float>(pool, x, outer, axis, inner,
             {HWY_DYNAMIC_DISPATCH(square_span), HWY_DYNAMIC_DISPATCH(square_columns)}, y);
}

void square_sum_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer,
                            int64_t axis, int64_t inner, float* y) {
  sum(pool, x, outer, axis, inner,
      of_halves(
          dtype, {HWY_DYNAMIC_DISPATCH(square_f16_span), HWY_DYNAMIC_DISPATCH(square_f16_columns)},
          {HWY_DYNAMIC_DISPATCH(square_bf16_span), HWY_DYNAMIC_DISPATCH(square_bf16_columns)}),
      y);
}

void max_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y) {
  const auto span = HWY_DYNAMIC_DISPATCH(max_span);
  reduce<float>(pool, x, outer, axis, inner, {span, HWY_DYNAMIC_DISPATCH(max_columns)}, span, y);
}
void min_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y) {
  const auto span = HWY_DYNAMIC_DISPATCH(min_span);
  reduce<float>(pool, x, outer, axis, inner, {span, HWY_DYNAMIC_DISPATCH(min_columns)}, span, y);
}

void max_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y) {
  reduce(
      pool, x, outer, axis, inner,
      of_halves(dtype, {HWY_DYNAMIC_DISPATCH(max_f16_span), HWY_DYNAMIC_DISPATCH(max_f16_columns)},
                {HWY_DYNAMIC_DISPATCH(max_bf16_span), HWY_DYNAMIC_DISPATCH(max_bf16_columns)}),
      HWY_DYNAMIC_DISPATCH(max_span), y);
}
void min_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y) {
  reduce(
      pool, x, outer, axis, inner,
      of_halves(dtype, {HWY_DYNAMIC_DISPATCH(min_f16_span), HWY_DYNAMIC_DISPATCH(min_f16_columns)},
                {HWY_DYNAMIC_DISPATCH(min_bf16_span), HWY_DYNAMIC_DISPATCH(min_bf16_columns)}),
      HWY_DYNAMIC_DISPATCH(min_span), y);
}

int64_t argmax(const float* x, int64_t n) {
  return argmax_line(DType::kF32, false, reinterpret_cast<const std::byte*>(x), n);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
