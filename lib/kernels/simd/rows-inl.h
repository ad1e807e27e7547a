// Loops over rows of floats, float16 or bfloat16 (float16-inl.h), included by kernel files once per
// Highway target: whole vectors and a partial one, with the same arithmetic for both.
#if defined(LUMEN_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_ROWS_INL_H_
#undef LUMEN_KERNELS_ROWS_INL_H_
#else
#define LUMEN_KERNELS_ROWS_INL_H_
#endif

#include "lib/base/prefetch.h"
#include "lib/kernels/numbers.h"
#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Float = hn::ScalableTag<float>;
using FloatVec = hn::Vec<Float>;

// body(T(), D()) for numbers that are read as T and their gradients, read as D.
template <class Body>
HWY_INLINE void with_gradient_types(GradientTypes types, const Body& body) {
  with_number_type(types.x, [&](auto number) HWY_ATTR {
    if (types.dy == DType::kF32) return body(number, float());
    body(number, number);
  });
}

// f(load, store) for every whole vector of [begin, end) and a partial one; load(p) and store(v, p)
// stand for the same elements of any of the arrays. Elements beyond the end are loaded as 0.
template <class F>
HWY_INLINE void for_each_vector(int64_t begin, int64_t end, const F& f) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    f([&](const auto* p) HWY_ATTR { return load_numbers(d, p + i); },
      [&](FloatVec v, auto* p) HWY_ATTR { store_numbers(d, v, p + i); });
  }
  if (i >= end) return;
  const int64_t rest = end - i;
  f([&](const auto* p) HWY_ATTR { return load_first(d, p + i, rest); },
    [&](FloatVec v, auto* p) HWY_ATTR { store_first(v, d, p + i, rest); });
}

// Asks for a vector of each of the next rows, `dim` elements behind those at p[at …]. Where a row
// is read more than once only the first time waits for memory: what follows it comes meanwhile.
template <class... T>
HWY_INLINE void fetch_next_rows([[maybe_unused]] int64_t dim, [[maybe_unused]] int64_t at,
                                const T*... p) {
  [[maybe_unused]] const auto lanes = static_cast<int64_t>(hn::Lanes(Float()));
  (prefetch(p + dim + at, lanes * static_cast<int64_t>(sizeof(T))), ...);
}

// for_each_vector of a row of `dim` elements which fetches the rows behind those at p.
template <class F, class... T>
HWY_INLINE void for_each_vector_then(int64_t dim, const F& f, const T*... p) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Float()));
  const int64_t whole = dim / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes) {
    fetch_next_rows(dim, i, p...);
    for_each_vector(i, i + lanes, f);
  }
  for_each_vector(whole, dim, f);
}

// kSums sums over a row of `dim` elements: f(load, keep, sums) adds to each vector of partial sums,
// of which there are kWays; keep(v) is v with zeros beyond the end of the row.
template <int kWays = 2, int kSums, class F>
HWY_INLINE void fold_row(size_t dim, float (&totals)[kSums], const F& f) {
  static_assert(kWays == 2 || kWays == 4);
  const Float d;
  const size_t lanes = hn::Lanes(d);
  FloatVec parts[kWays][kSums];
  for (auto& sums : parts) {
    for (FloatVec& sum : sums) sum = hn::Zero(d);
  }
  const auto all = [](FloatVec v) HWY_ATTR { return v; };
  size_t i = 0;
  for (; i + kWays * lanes <= dim; i += kWays * lanes) {
    HWY_UNROLL(4)
    for (int way = 0; way < kWays; ++way) {
      f([&](const auto* p) HWY_ATTR { return load_numbers(d, p + i + way * lanes); }, all,
        parts[way]);
    }
  }
  for (; i + lanes <= dim; i += lanes) {
    f([&](const auto* p) HWY_ATTR { return load_numbers(d, p + i); }, all, parts[0]);
  }
  if (i < dim) {
    const size_t rest = dim - i;
    f([&](const auto* p) HWY_ATTR { return load_first(d, p + i, rest); },
      [&](FloatVec v) HWY_ATTR { return hn::IfThenElseZero(hn::FirstN(d, rest), v); }, parts[1]);
  }
  for (int s = 0; s < kSums; ++s) {
    auto sum = hn::Add(parts[0][s], parts[1][s]);
    if constexpr (kWays == 4) sum = hn::Add(sum, hn::Add(parts[2][s], parts[3][s]));
    totals[s] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// Folds x[0 … dim) with sum = f(x, sum) into four vectors of partial sums and adds those up; with
// kFetches the next row is fetched.
template <bool kFetches = false, class T, class F>
HWY_INLINE float sum_of(const T* x, size_t dim, const F& f) {
  const Float d;
  const size_t lanes = hn::Lanes(d);
  FloatVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  size_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    for (size_t at = i; kFetches && at < i + 4 * lanes; at += lanes) {
      fetch_next_rows(static_cast<int64_t>(dim), static_cast<int64_t>(at), x);
    }
    sum0 = f(load_numbers(d, x + i), sum0);
    sum1 = f(load_numbers(d, x + i + lanes), sum1);
    sum2 = f(load_numbers(d, x + i + 2 * lanes), sum2);
    sum3 = f(load_numbers(d, x + i + 3 * lanes), sum3);
  }
  for (; i + lanes <= dim; i += lanes) sum0 = f(load_numbers(d, x + i), sum0);
  if (i < dim) {
    const auto last = f(load_first(d, x + i, dim - i), hn::Zero(d));
    sum1 = hn::Add(sum1, hn::IfThenElseZero(hn::FirstN(d, dim - i), last));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// The maximum of the row, −inf for none. With NaNs: some element or NaN.
template <class T>
HWY_INLINE float row_maximum(const T* x, size_t dim) {
  const Float d;
  const size_t lanes = hn::Lanes(d);
  FloatVec max0 = hn::Set(d, -kInf), max1 = max0, max2 = max0, max3 = max0;
  size_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    max0 = hn::Max(load_numbers(d, x + i), max0);
    max1 = hn::Max(load_numbers(d, x + i + lanes), max1);
    max2 = hn::Max(load_numbers(d, x + i + 2 * lanes), max2);
    max3 = hn::Max(load_numbers(d, x + i + 3 * lanes), max3);
  }
  const auto both = hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
  float maximum = hn::GetLane(hn::MaxOfLanes(d, both));
  for (; i < dim; ++i) maximum = HWY_MAX(maximum, number(x[i]));
  return maximum;
}

// Σ exp(x − maximum), where maximum is that of the row.
template <class T>
HWY_INLINE float sum_of_exp(const T* x, size_t dim, float maximum) {
  const Float d;
  const auto top = hn::Set(d, maximum);
  return sum_of<true>(x, dim, [&](auto v, auto sum) HWY_ATTR {
    return hn::Add(sum, exp_nonpositive(d, hn::Sub(v, top)));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
