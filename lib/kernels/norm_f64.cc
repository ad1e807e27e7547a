#include "lib/kernels/norm_f64.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/norm_f64.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/first_lanes-inl.h"
#include "lib/kernels/math_f64-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Double = hn::ScalableTag<double>;
using DoubleVec = hn::Vec<Double>;

// Calls f(load, store, keep) for every whole vector of a row and a partial one, and adds up what it
// returns, in two chains. load(p) and store(v, p) stand for the same elements of any row; elements
// beyond the end are loaded as 0, and keep(v) is v with zeros there.
template <class F>
HWY_INLINE double fold_row(int64_t dim, const F& f) {
  const Double d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  DoubleVec even = hn::Zero(d), odd = even;
  const auto whole = [&](int64_t i) HWY_ATTR {
    return f([=](const double* p) HWY_ATTR { return hn::LoadU(d, p + i); },
             [=](DoubleVec v, double* p) HWY_ATTR { hn::StoreU(v, d, p + i); },
             [](DoubleVec v) HWY_ATTR { return v; });
  };
  int64_t i = 0;
  for (; i + 2 * lanes <= dim; i += 2 * lanes) {
    even = hn::Add(even, whole(i));
    odd = hn::Add(odd, whole(i + lanes));
  }
  if (i + lanes <= dim) {
    even = hn::Add(even, whole(i));
    i += lanes;
  }
  if (i < dim) {
    const int64_t rest = dim - i;
    const auto is_there = hn::FirstN(d, static_cast<size_t>(rest));
    odd = hn::Add(odd, f([=](const double* p) HWY_ATTR { return load_first(d, p + i, rest); },
                         [=](DoubleVec v, double* p) HWY_ATTR { store_first(v, d, p + i, rest); },
                         [=](DoubleVec v) HWY_ATTR { return hn::IfThenElseZero(is_there, v); }));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

// The same of an f that returns nothing.
template <class F>
HWY_INLINE void map_row(int64_t dim, const F& f) {
  fold_row(dim, [&](const auto& load, const auto& store, const auto&) HWY_ATTR {
    f(load, store);
    return hn::Zero(Double());
  });
}

// The largest of a row, of which NaN may be left out.
HWY_INLINE DoubleVec largest_of(const double* x, int64_t dim) {
  const Double d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  DoubleVec parts[4];
  HWY_UNROLL(4)
  for (auto& part : parts) part = hn::Set(d, -static_cast<double>(kInf));
  int64_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    HWY_UNROLL(4)
    for (int64_t k = 0; k < 4; ++k) {
      parts[k] = hn::Max(parts[k], hn::LoadU(d, x + i + k * lanes));
    }
  }
  for (; i < dim; i += lanes) {
    const int64_t count = std::min(lanes, dim - i);
    const auto v = load_first(d, x + i, count);
    const auto is_there = hn::FirstN(d, static_cast<size_t>(count));
    parts[0] = hn::Max(parts[0], hn::IfThenElse(is_there, v, parts[0]));
  }
  return hn::MaxOfLanes(d, hn::Max(hn::Max(parts[0], parts[1]), hn::Max(parts[2], parts[3])));
}

// As in float32 (norm.cc): NaN reaches the sum through exp.
void softmax_row(const double* x, int64_t dim, double* y) {
  const Double d;
  const auto maximum = largest_of(x, dim);
  const double total =
      fold_row(dim, [&](const auto& load, const auto& store, const auto& keep) HWY_ATTR {
        const auto power = exp_vector(d, hn::Sub(load(x), maximum));
        store(power, y);
        return keep(power);
      });
  const auto scale = hn::Set(d, 1 / total);
  map_row(dim,
          [&](const auto& load, const auto& store) HWY_ATTR { store(hn::Mul(load(y), scale), y); });
}

void log_softmax_row(const double* x, int64_t dim, double* y) {
  const Double d;
  const auto maximum = largest_of(x, dim);
  const double total = fold_row(dim, [&](const auto& load, const auto&, const auto& keep) HWY_ATTR {
    return keep(exp_vector(d, hn::Sub(load(x), maximum)));
  });
  const auto log_sum = hn::Set(d, std::log(total));
  map_row(dim, [&](const auto& load, const auto& store)
                   HWY_ATTR { store(hn::Sub(hn::Sub(load(x), maximum), log_sum), y); });
}

// dx = y (dy − Σ y dy).
void softmax_backward_row(const double* y, const double* dy, int64_t dim, double* dx) {
  const Double d;
  const double total = fold_row(dim, [&](const auto& load, const auto&, const auto&)
                                         HWY_ATTR { return hn::Mul(load(y), load(dy)); });
  const auto sum = hn::Set(d, total);
  map_row(dim, [&](const auto& load, const auto& store)
                   HWY_ATTR { store(hn::Mul(load(y), hn::Sub(load(dy), sum)), dx); });
}

// dx = dy − e^y Σ dy.
void log_softmax_backward_row(const double* y, const double* dy, int64_t dim, double* dx) {
  const Double d;
  const double total =
      fold_row(dim, [&](const auto& load, const auto&, const auto&) HWY_ATTR { return load(dy); });
  const auto sum = hn::Set(d, total);
  map_row(dim, [&](const auto& load, const auto& store)
                   HWY_ATTR { store(hn::NegMulAdd(exp_vector(d, load(y)), sum, load(dy)), dx); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(softmax_row);
HWY_EXPORT(log_softmax_row);
HWY_EXPORT(softmax_backward_row);
HWY_EXPORT(log_softmax_backward_row);

namespace {

// kernel(row) for every row, on several threads where that pays.
template <class Kernel>
void for_each_row(ThreadPool& pool, const RowsF64& x, const Kernel& kernel) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, x.dim));
  pool.parallel_for(x.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) kernel(row);
  });
}

}  // namespace

void softmax(ThreadPool& pool, const RowsF64& x, double* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(softmax_row);
  for_each_row(pool, x, [&](int64_t row) { kernel(x.row(row), x.dim, y + row * x.dim); });
}

void log_softmax(ThreadPool& pool, const RowsF64& x, double* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(log_softmax_row);
  for_each_row(pool, x, [&](int64_t row) { kernel(x.row(row), x.dim, y + row * x.dim); });
}

void softmax_backward(ThreadPool& pool, const RowsF64& y, const RowsF64& dy, double* dx) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(softmax_backward_row);
  for_each_row(pool, y,
               [&](int64_t row) { kernel(y.row(row), dy.row(row), y.dim, dx + row * y.dim); });
}

void log_softmax_backward(ThreadPool& pool, const RowsF64& y, const RowsF64& dy, double* dx) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(log_softmax_backward_row);
  for_each_row(pool, y,
               [&](int64_t row) { kernel(y.row(row), dy.row(row), y.dim, dx + row * y.dim); });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
