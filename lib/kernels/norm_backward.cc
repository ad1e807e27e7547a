#include "lib/kernels/norm_backward.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/row_blocks.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/norm_backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

template <class T, class D>
void softmax_backward_numbers(const T* y, const D* dy, int64_t dim, float* dx) {
  float dot[1];
  fold_row(static_cast<size_t>(dim), dot, [&](auto load, auto, auto& sums) HWY_ATTR {
    sums[0] = hn::MulAdd(load(y), load(dy), sums[0]);
  });
  const auto shift = hn::Set(Float(), dot[0]);
  const auto result = [&](auto load, auto store)
                          HWY_ATTR { store(hn::Mul(load(y), hn::Sub(load(dy), shift)), dx); };
  for_each_vector_then(dim, result, y, dy);
}

template <class T, class D>
void log_softmax_backward_numbers(const T* y, const D* dy, int64_t dim, float* dx) {
  const Float d;
  float total[1];
  fold_row(static_cast<size_t>(dim), total,
           [&](auto load, auto, auto& sums) HWY_ATTR { sums[0] = hn::Add(load(dy), sums[0]); });
  const auto sum = hn::Set(d, total[0]);
  const auto result = [&](auto load, auto store) HWY_ATTR {
    store(hn::NegMulAdd(exp_nonpositive(d, load(y)), sum, load(dy)), dx);
  };
  for_each_vector_then(dim, result, y, dy);
}

// One row; adds its part to dw.
template <class T, class D>
void rms_norm_backward_numbers(const T* x, const T* w, const D* dy, int64_t dim, float eps,
                               float* dx, float* dw, float*) {
  const Float d;
  float sums[2];  // Σ x², Σ g x
  fold_row(static_cast<size_t>(dim), sums, [&](auto load, auto, auto& sum) HWY_ATTR {
    const auto v = load(x);
    sum[0] = hn::MulAdd(v, v, sum[0]);
    sum[1] = hn::MulAdd(hn::Mul(load(dy), load(w)), v, sum[1]);
  });
  const auto count = static_cast<float>(dim);
  const float scale = 1.0f / std::sqrt(sums[0] / count + eps);
  const auto r = hn::Set(d, scale);
  const auto pull = hn::Set(d, scale * scale * scale * (sums[1] / count));
  const auto result = [&](auto load, auto store) HWY_ATTR {
    const auto v = load(x), gradient = hn::Mul(load(dy), r);
    store(hn::MulAdd(gradient, v, load(dw)), dw);
    store(hn::NegMulAdd(v, pull, hn::Mul(gradient, load(w))), dx);
  };
  for_each_vector_then(dim, result, x, dy);
}

// One row; adds its part to dw and db.
template <class T, class D>
void layer_norm_backward_numbers(const T* x, const T* w, const D* dy, int64_t dim, float eps,
                                 float* dx, float* dw, float* db) {
  const Float d;
  const auto count = static_cast<float>(dim);
  const float total = sum_of(x, static_cast<size_t>(dim),
                             [](auto v, auto sum) HWY_ATTR { return hn::Add(sum, v); });
  const auto mean = hn::Set(d, total / count);
  float sums[3];  // Σ (x − mean)², Σ g, Σ g (x − mean)
  fold_row(static_cast<size_t>(dim), sums, [&](auto load, auto keep, auto& sum) HWY_ATTR {
    const auto centered = keep(hn::Sub(load(x), mean)), g = hn::Mul(load(dy), load(w));
    sum[0] = hn::MulAdd(centered, centered, sum[0]);
    sum[1] = hn::Add(g, sum[1]);
    sum[2] = hn::MulAdd(g, centered, sum[2]);
  });
  const float scale = 1.0f / std::sqrt(sums[0] / count + eps);
  const auto r = hn::Set(d, scale);
  const auto mean_g = hn::Set(d, sums[1] / count), mean_gx = hn::Set(d, scale * sums[2] / count);
  const auto result = [&](auto load, auto store) HWY_ATTR {
    const auto gradient = load(dy), normal = hn::Mul(hn::Sub(load(x), mean), r);
    store(hn::MulAdd(gradient, normal, load(dw)), dw);
    store(hn::Add(gradient, load(db)), db);
    const auto g = hn::Sub(hn::Mul(gradient, load(w)), mean_g);
    store(hn::Mul(r, hn::NegMulAdd(normal, mean_gx, g)), dx);
  };
  for_each_vector_then(dim, result, x, dy);
}

// sum[i] = Σ_b parts[b · stride + i] for i in [begin, end), in order.
void add_parts(const float* parts, int64_t count, int64_t stride, int64_t begin, int64_t end,
               float* sum) {
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    auto total = hn::Zero(Float());
    for (int64_t b = 0; b < count; ++b) total = hn::Add(total, load(parts + b * stride));
    store(total, sum);
  });
}

// ---- The same of numbers of any type.

void softmax_backward_row(GradientTypes types, const void* y, const void* dy, int64_t dim,
                          float* dx) {
  with_gradient_types(types, [&](auto of_x, auto of_dy) HWY_ATTR {
    softmax_backward_numbers(static_cast<const decltype(of_x)*>(y),
                             static_cast<const decltype(of_dy)*>(dy), dim, dx);
  });
}

void log_softmax_backward_row(GradientTypes types, const void* y, const void* dy, int64_t dim,
                              float* dx) {
  with_gradient_types(types, [&](auto of_x, auto of_dy) HWY_ATTR {
    log_softmax_backward_numbers(static_cast<const decltype(of_x)*>(y),
                                 static_cast<const decltype(of_dy)*>(dy), dim, dx);
  });
}

void rms_norm_backward_row(GradientTypes types, const void* x, const void* w, const void* dy,
                           int64_t dim, float eps, float* dx, float* dw, float* db) {
  with_gradient_types(types, [&](auto of_x, auto of_dy) HWY_ATTR {
    using T = decltype(of_x);
    rms_norm_backward_numbers(static_cast<const T*>(x), static_cast<const T*>(w),
                              static_cast<const decltype(of_dy)*>(dy), dim, eps, dx, dw, db);
  });
}

void layer_norm_backward_row(GradientTypes types, const void* x, const void* w, const void* dy,
                             int64_t dim, float eps, float* dx, float* dw, float* db) {
  with_gradient_types(types, [&](auto of_x, auto of_dy) HWY_ATTR {
    using T = decltype(of_x);
    layer_norm_backward_numbers(static_cast<const T*>(x), static_cast<const T*>(w),
                                static_cast<const decltype(of_dy)*>(dy), dim, eps, dx, dw, db);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(softmax_backward_row);
HWY_EXPORT(log_softmax_backward_row);
HWY_EXPORT(rms_norm_backward_row);
HWY_EXPORT(layer_norm_backward_row);
HWY_EXPORT(add_parts);

namespace {

using BackwardRow = void (*)(GradientTypes, const void*, const void*, const void*, int64_t, float,
                             float*, float*, float*);

// The sums of block b lie at workspace[b][0 … 1][dim]: dw, then db (null if there is none).
void norm_backward(ThreadPool& pool, const Rows& x, const void* w, const Rows& dy, float eps,
                   BackwardRow kernel, float* dx, float* dw, float* db, std::byte* workspace) {
  auto* parts = reinterpret_cast<float*>(workspace);
  const int64_t block = rows_per_block(x.rows), blocks = row_blocks(x.rows), stride = 2 * x.dim;
  pool.parallel_for(blocks, row_grain(block * x.dim), [&](int64_t begin, int64_t end, int) {
    RowWriter writer(x.rows, x.dim, DType::kF32, dx == x.data || dx == dy.data);
    for (int64_t b = begin; b < end; ++b) {
      float* part = parts + b * stride;
      std::fill_n(part, stride, 0.0f);
      for (int64_t row = b * block; row < std::min(x.rows, (b + 1) * block); ++row) {
        writer.write(dx + row * x.dim, [&](void* to) {
          kernel({x.dtype, dy.dtype}, x.row(row), w, dy.row(row), x.dim, eps,
                 static_cast<float*>(to), part, part + x.dim);
        });
      }
    }
  });
  const auto add = HWY_DYNAMIC_DISPATCH(add_parts);
  pool.parallel_for(x.dim, kRowGrain, [&](int64_t begin, int64_t end, int) {
    add(parts, blocks, stride, begin, end, dw);
    if (db) add(parts + x.dim, blocks, stride, begin, end, db);
  });
}

void for_each_row(ThreadPool& pool, const Rows& y, const Rows& dy, float* dx,
                  void (*kernel)(GradientTypes, const void* y, const void* dy, int64_t dim,
                                 float* dx)) {
  pool.parallel_for(y.rows, row_grain(y.dim), [&](int64_t begin, int64_t end, int) {
    RowWriter writer(y.rows, y.dim, DType::kF32, dx == y.data || dx == dy.data);
    for (int64_t row = begin; row < end; ++row) {
      writer.write(dx + row * y.dim, [&](void* to) {
        kernel({y.dtype, dy.dtype}, y.row(row), dy.row(row), y.dim, static_cast<float*>(to));
      });
    }
  });
}

}  // namespace

void softmax_backward(ThreadPool& pool, const Rows& y, const Rows& dy, float* dx) {
  for_each_row(pool, y, dy, dx, HWY_DYNAMIC_DISPATCH(softmax_backward_row));
}

void log_softmax_backward(ThreadPool& pool, const Rows& y, const Rows& dy, float* dx) {
  for_each_row(pool, y, dy, dx, HWY_DYNAMIC_DISPATCH(log_softmax_backward_row));
}

size_t norm_backward_workspace_bytes(int64_t rows, int64_t dim) {
  return static_cast<size_t>(row_blocks(rows) * 2 * dim) * sizeof(float);
}

void rms_norm_backward(ThreadPool& pool, const Rows& x, const void* w, const Rows& dy, float eps,
                       float* dx, float* dw, std::byte* workspace) {
  norm_backward(pool, x, w, dy, eps, HWY_DYNAMIC_DISPATCH(rms_norm_backward_row), dx, dw, nullptr,
                workspace);
}

void layer_norm_backward(ThreadPool& pool, const Rows& x, const void* w, const Rows& dy, float eps,
                         float* dx, float* dw, float* db, std::byte* workspace) {
  norm_backward(pool, x, w, dy, eps, HWY_DYNAMIC_DISPATCH(layer_norm_backward_row), dx, dw, db,
                workspace);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
