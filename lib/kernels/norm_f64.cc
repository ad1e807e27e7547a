#include "lib/kernels/norm_f64.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/row_blocks.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/norm_f64.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/first_lanes-inl.h"
#include "lib/kernels/simd/math_f64-inl.h"

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

void rms_norm_row(const double* x, const double* w, int64_t dim, double eps, double* y) {
  const Double d;
  const double squares =
      fold_row(dim, [&](auto load, auto, auto) HWY_ATTR { return hn::Mul(load(x), load(x)); });
  const auto scale = hn::Set(d, 1 / std::sqrt(squares / static_cast<double>(dim) + eps));
  map_row(dim, [&](auto load, auto store)
                   HWY_ATTR { store(hn::Mul(hn::Mul(load(x), scale), load(w)), y); });
}

// The mean of a row and 1 / √(var + eps).
HWY_INLINE void row_statistics(const double* x, int64_t dim, double eps, DoubleVec& mean,
                               DoubleVec& scale) {
  const Double d;
  const auto count = static_cast<double>(dim);
  mean = hn::Set(d, fold_row(dim, [&](auto load, auto, auto) HWY_ATTR { return load(x); }) / count);
  const double squares = fold_row(dim, [&](auto load, auto, auto keep) HWY_ATTR {
    const auto deviation = keep(hn::Sub(load(x), mean));
    return hn::Mul(deviation, deviation);
  });
  scale = hn::Set(d, 1 / std::sqrt(squares / count + eps));
}

void layer_norm_row(const double* x, const double* w, const double* b, int64_t dim, double eps,
                    double* y) {
  DoubleVec mean, scale;
  row_statistics(x, dim, eps, mean, scale);
  map_row(dim, [&](auto load, auto store) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(load(x), mean), scale);
    store(hn::MulAdd(normal, load(w), load(b)), y);
  });
}

// With r = 1 / √(mean(x²) + eps) and g = dy w: dx = r g − x r³ mean(g x), dw += dy x r.
void rms_norm_backward_row(const double* x, const double* w, const double* dy, int64_t dim,
                           double eps, double* dx, double* dw, double*) {
  const Double d;
  const auto count = static_cast<double>(dim);
  const double squares =
      fold_row(dim, [&](auto load, auto, auto) HWY_ATTR { return hn::Mul(load(x), load(x)); });
  const double product = fold_row(dim, [&](auto load, auto, auto) HWY_ATTR {
    return hn::Mul(hn::Mul(load(dy), load(w)), load(x));
  });
  const double r = 1 / std::sqrt(squares / count + eps);
  const auto scale = hn::Set(d, r), pull = hn::Set(d, r * r * r * (product / count));
  map_row(dim, [&](auto load, auto store) HWY_ATTR {
    const auto number = load(x), gradient = load(dy);
    store(hn::MulAdd(gradient, hn::Mul(number, scale), load(dw)), dw);
    const auto g = hn::Mul(gradient, load(w));
    store(hn::NegMulAdd(number, pull, hn::Mul(scale, g)), dx);
  });
}

// With n = (x − mean) r, r = 1 / √(var + eps) and g = dy w: dx = r (g − mean(g) − n mean(g n)), dw
// += dy n, db += dy.
void layer_norm_backward_row(const double* x, const double* w, const double* dy, int64_t dim,
                             double eps, double* dx, double* dw, double* db) {
  const Double d;
  const auto count = static_cast<double>(dim);
  DoubleVec mean, scale;
  row_statistics(x, dim, eps, mean, scale);
  const double sum =
      fold_row(dim, [&](auto load, auto, auto) HWY_ATTR { return hn::Mul(load(dy), load(w)); });
  const double product = fold_row(dim, [&](auto load, auto, auto) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(load(x), mean), scale);
    return hn::Mul(hn::Mul(load(dy), load(w)), normal);
  });
  const auto mean_g = hn::Set(d, sum / count), pull = hn::Set(d, product / count);
  map_row(dim, [&](auto load, auto store) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(load(x), mean), scale), gradient = load(dy);
    store(hn::MulAdd(gradient, normal, load(dw)), dw);
    store(hn::Add(gradient, load(db)), db);
    const auto g = hn::Sub(hn::Mul(gradient, load(w)), mean_g);
    store(hn::Mul(scale, hn::NegMulAdd(normal, pull, g)), dx);
  });
}

// sums[i] = Σ over parts of parts[part · stride + i], in order, for i in [begin, end).
void add_parts(const double* parts, int64_t count, int64_t stride, int64_t begin, int64_t end,
               double* sums) {
  map_row(end - begin, [&](auto load, auto store) HWY_ATTR {
    auto sum = load(parts + begin);
    for (int64_t part = 1; part < count; ++part) {
      sum = hn::Add(sum, load(parts + part * stride + begin));
    }
    store(sum, sums + begin);
  });
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
HWY_EXPORT(rms_norm_row);
HWY_EXPORT(layer_norm_row);
HWY_EXPORT(rms_norm_backward_row);
HWY_EXPORT(layer_norm_backward_row);
HWY_EXPORT(add_parts);

namespace {

// kernel(row) for every row, on several threads where that pays.
template <class Kernel>
void for_each_row(ThreadPool& pool, const RowsF64& x, const Kernel& kernel) {
  pool.parallel_for(x.rows, row_grain(x.dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) kernel(row);
  });
}

using BackwardRow = void (*)(const double* x, const double* w, const double* dy, int64_t dim,
                             double eps, double* dx, double* dw, double* db);

// The sums of block b lie at workspace[b][0 … 1][dim]: dw, then db (null if there is none).
void norm_backward(ThreadPool& pool, const RowsF64& x, const double* w, const RowsF64& dy,
                   double eps, BackwardRow kernel, double* dx, double* dw, double* db,
                   std::byte* workspace) {
  if (x.rows == 0) {
    std::fill_n(dw, x.dim, 0.0);
    if (db) std::fill_n(db, x.dim, 0.0);
    return;
  }
  auto* const parts = reinterpret_cast<double*>(workspace);
  const int64_t block = rows_per_block(x.rows), blocks = row_blocks(x.rows);
  const int64_t stride = 2 * x.dim;
  pool.parallel_for(blocks, row_grain(block * x.dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      double* const part = parts + b * stride;
      std::fill_n(part, stride, 0.0);
      for (int64_t row = b * block; row < std::min(x.rows, (b + 1) * block); ++row) {
        kernel(x.row(row), w, dy.row(row), x.dim, eps, dx + row * x.dim, part, part + x.dim);
      }
    }
  });
  const auto add = HWY_DYNAMIC_DISPATCH(add_parts);
  pool.parallel_for(x.dim, kRowGrain, [&](int64_t begin, int64_t end, int) {
    add(parts, blocks, stride, begin, end, dw);
    if (db) add(parts + x.dim, blocks, stride, begin, end, db);
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

void rms_norm(ThreadPool& pool, const RowsF64& x, const double* w, double eps, double* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(rms_norm_row);
  for_each_row(pool, x, [&](int64_t row) { kernel(x.row(row), w, x.dim, eps, y + row * x.dim); });
}

void layer_norm(ThreadPool& pool, const RowsF64& x, const double* w, const double* b, double eps,
                double* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(layer_norm_row);
  for_each_row(pool, x,
               [&](int64_t row) { kernel(x.row(row), w, b, x.dim, eps, y + row * x.dim); });
}

size_t norm_backward_f64_workspace_bytes(int64_t rows, int64_t dim) {
  return static_cast<size_t>(row_blocks(rows) * 2 * dim) * sizeof(double);
}

void rms_norm_backward(ThreadPool& pool, const RowsF64& x, const double* w, const RowsF64& dy,
                       double eps, double* dx, double* dw, std::byte* workspace) {
  norm_backward(pool, x, w, dy, eps, HWY_DYNAMIC_DISPATCH(rms_norm_backward_row), dx, dw, nullptr,
                workspace);
}

void layer_norm_backward(ThreadPool& pool, const RowsF64& x, const double* w, const RowsF64& dy,
                         double eps, double* dx, double* dw, double* db, std::byte* workspace) {
  norm_backward(pool, x, w, dy, eps, HWY_DYNAMIC_DISPATCH(layer_norm_backward_row), dx, dw, db,
                workspace);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
