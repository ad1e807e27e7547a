#include "lib/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/reduce.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/float16-inl.h"
#include "lib/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Float = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Float>;

// How a reduction starts, takes one more element and joins two partial results.
struct Sum {
  static constexpr float kStart = 0.0f;
  static HWY_INLINE FloatVec join(FloatVec a, FloatVec b) { return hn::Add(a, b); }
  static HWY_INLINE float join_scalar(float a, float b) { return a + b; }
};
struct Maximum {
  static constexpr float kStart = -kInf;
  static HWY_INLINE FloatVec join(FloatVec a, FloatVec b) {
    // x86's max returns its second operand if either is NaN; a NaN in `a` is put back.
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
  }
  static HWY_INLINE float join_scalar(float a, float b) { return a != a || a >= b ? a : b; }
};

// Spans of this many elements (or rows) are reduced straight, longer ones by halves: pairwise.
inline constexpr int64_t kSpan = 1024;
inline constexpr int64_t kRowSpan = 64;

// Columns reduced together: several vectors of every target, 1 KiB of each row.
inline constexpr int64_t kStrip = 256;

// The reduction of n contiguous floats.
template <class Op>
float reduce_span(const float* x, int64_t n) {
  if (n > kSpan) {
    const int64_t half = (n / 2 + kSpan - 1) / kSpan * kSpan;
    return Op::join_scalar(reduce_span<Op>(x, half), reduce_span<Op>(x + half, n - half));
  }
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec part0 = hn::Set(d, Op::kStart), part1 = part0, part2 = part0, part3 = part0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    part0 = Op::join(part0, hn::LoadU(d, x + i));
    part1 = Op::join(part1, hn::LoadU(d, x + i + lanes));
    part2 = Op::join(part2, hn::LoadU(d, x + i + 2 * lanes));
    part3 = Op::join(part3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) part0 = Op::join(part0, hn::LoadU(d, x + i));
  if (i < n) {
    const auto count = static_cast<size_t>(n - i);
    part1 = Op::join(part1, hn::IfThenElse(hn::FirstN(d, count), load_partial(d, x + i, count),
                                           hn::Set(d, Op::kStart)));
  }
  HWY_ALIGN float all[hn::MaxLanes(Float())];
  hn::Store(Op::join(Op::join(part0, part1), Op::join(part2, part3)), d, all);
  for (int64_t width = lanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) {
      all[lane] = Op::join_scalar(all[lane], all[lane + width]);
    }
  }
  return all[0];
}

// The first `count` lanes.
HWY_INLINE FloatVec load_first(const float* p, size_t count) {
  return load_partial(Float(), p, count);
}
HWY_INLINE FloatVec load_first(const uint16_t* p, size_t count) {
  uint16_t lanes[hn::MaxLanes(Float())] = {};
  std::copy_n(p, count, lanes);
  return load_bfloat(Float(), lanes);
}

// The reduction of up to kRowSpan vectors, `stride` numbers apart, each loaded by load(pointer).
template <class Op, class T, class Load>
HWY_INLINE FloatVec reduce_rows(const T* x, int64_t rows, int64_t stride, const Load& load) {
  FloatVec parts[8];
  for (auto& part : parts) part = hn::Set(Float(), Op::kStart);
  int64_t row = 0;
  for (; row + 8 <= rows; row += 8) {
    for (int64_t i = 0; i < 8; ++i) parts[i] = Op::join(parts[i], load(x + (row + i) * stride));
  }
  for (int64_t i = 0; row + i < rows; ++i) {
    parts[i] = Op::join(parts[i], load(x + (row + i) * stride));
  }
  for (int width = 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) parts[i] = Op::join(parts[i], parts[i + width]);
  }
  return parts[0];
}

// Where rows are divided: reductions of both parts are joined.
HWY_INLINE int64_t first_half(int64_t rows) {
  return (rows / 2 + kRowSpan - 1) / kRowSpan * kRowSpan;
}

// y[i] = reduction over rows r of x[r · stride + i] for i in [0, columns), columns ≤ kStrip. Row
// span by row span, so that the pages and cache lines of a span serve all columns.
template <class Op, class T>
void reduce_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  if (rows == 0) {  // x may be null
    std::fill_n(y, columns, Op::kStart);
    return;
  }
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (rows > kRowSpan) {
    const int64_t half = first_half(rows);
    HWY_ALIGN float rest[kStrip];
    reduce_columns<Op>(x, half, stride, columns, y);
    reduce_columns<Op>(x + half * stride, rows - half, stride, columns, rest);
    for (int64_t i = 0; i < columns; ++i) y[i] = Op::join_scalar(y[i], rest[i]);
    return;
  }
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) {
    const auto load = [](const T* p) HWY_ATTR { return load_numbers(Float(), p); };
    hn::StoreU(reduce_rows<Op>(x + i, rows, stride, load), d, y + i);
  }
  if (i == columns) return;
  const auto count = static_cast<size_t>(columns - i);
  const auto load = [count](const T* p) HWY_ATTR { return load_first(p, count); };
  store_partial(reduce_rows<Op>(x + i, rows, stride, load), d, y + i, count);
}

float sum_span(const float* x, int64_t n) {
  return reduce_span<Sum>(x, n);
}
float max_span(const float* x, int64_t n) {
  return reduce_span<Maximum>(x, n);
}
void sum_columns(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Sum>(x, rows, stride, columns, y);
}
void sum_bf16_columns(const uint16_t* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Sum>(x, rows, stride, columns, y);
}
void max_columns(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y) {
  reduce_columns<Maximum>(x, rows, stride, columns, y);
}

// The first i with x[i] equal to `value` (or NaN if `value` is); it exists.
int64_t find_value(const float* x, int64_t n, float value) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool nan = value != value;
  const auto wanted = hn::Set(d, value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    if (!hn::AllFalse(d, nan ? hn::IsNaN(v) : hn::Eq(v, wanted))) break;
  }
  while (nan ? x[i] == x[i] : x[i] != value) ++i;
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(sum_span);
HWY_EXPORT(max_span);
HWY_EXPORT(sum_columns);
HWY_EXPORT(sum_bf16_columns);
HWY_EXPORT(max_columns);
HWY_EXPORT(find_value);

namespace {

using SpanKernel = float (*)(const float*, int64_t);

// Work below this many elements is not worth a second thread.
constexpr int64_t kGrain = 8192;

// A long row is cut into pieces of equal length whatever the number of threads.
constexpr int64_t kMaxPieces = 64;

void reduce_long_row(ThreadPool& pool, const float* x, int64_t n, SpanKernel span, float* y) {
  const int64_t piece = std::max(kGrain, (n + kMaxPieces - 1) / kMaxPieces);
  const int64_t pieces = (n + piece - 1) / piece;
  float partial[kMaxPieces];
  pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      partial[i] = span(x + i * piece, std::min(piece, n - i * piece));
    }
  });
  *y = span(partial, pieces);
}

// Splitting between columns does not change any column's order of additions. Strips are even, so
// that threads are, and the same on every target.
template <class T>
using ColumnsKernel = void (*)(const T*, int64_t, int64_t, int64_t, float*);
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

void reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
            SpanKernel span, ColumnsKernel<float> columns, float* y) {
  if (inner == 1 && axis >= 2 * kGrain) {
    for (int64_t i = 0; i < outer; ++i) reduce_long_row(pool, x + i * axis, axis, span, y + i);
    return;
  }
  if (inner == 1) {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, axis));
    pool.parallel_for(outer, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) y[i] = span(x + i * axis, axis);
    });
    return;
  }
  reduce_strips(pool, x, outer, axis, inner, columns, y);
}

}  // namespace

void sum_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y) {
  const auto columns = HWY_DYNAMIC_DISPATCH(sum_columns);
  if (outer == 1 && inner > 1 && sum_halves(pool, x, axis, inner, columns, y)) return;
  reduce(pool, x, outer, axis, inner, HWY_DYNAMIC_DISPATCH(sum_span), columns, y);
}

void sum_reduce_bf16(ThreadPool& pool, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y) {
  LUMEN_CHECK(inner > 1);
  const auto columns = HWY_DYNAMIC_DISPATCH(sum_bf16_columns);
  if (outer == 1 && sum_halves(pool, x, axis, inner, columns, y)) return;
  reduce_strips(pool, x, outer, axis, inner, columns, y);
}

void max_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y) {
  reduce(pool, x, outer, axis, inner, HWY_DYNAMIC_DISPATCH(max_span),
         HWY_DYNAMIC_DISPATCH(max_columns), y);
}

int64_t argmax(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(find_value)(x, n, HWY_DYNAMIC_DISPATCH(max_span)(x, n));
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
