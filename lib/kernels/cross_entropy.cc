#include "lib/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/soft_cap.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/cross_entropy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

template <class T>
void softmax_statistics_of(const T* x, int64_t classes, float* maximum, float* sum) {
  *maximum = row_maximum(x, static_cast<size_t>(classes));
  *sum = sum_of_exp(x, static_cast<size_t>(classes), *maximum);
}

template <class T>
float weighted_distance_of(const T* x, const float* w, int64_t classes, float maximum) {
  const auto top = hn::Set(Float(), maximum);
  float total[1];
  fold_row(static_cast<size_t>(classes), total, [&](auto load, auto keep, auto& sums) HWY_ATTR {
    const auto distance = keep(hn::Sub(top, load(x)));
    sums[0] = w ? hn::MulAdd(load(w), distance, sums[0]) : hn::Add(distance, sums[0]);
  });
  return total[0];
}

template <class T>
void cross_entropy_backward_numbers(const T* x, const float* w, int64_t classes, float maximum,
                                    float factor, float spread, float* dx) {
  const Float d;
  const auto top = hn::Set(d, maximum), scale = hn::Set(d, factor), even = hn::Set(d, spread);
  if (spread == 0) {
    for_each_vector(0, classes, [&](auto load, auto store) HWY_ATTR {
      store(hn::Mul(exp_nonpositive(d, hn::Sub(load(x), top)), scale), dx);
    });
    return;
  }
  for_each_vector(0, classes, [&](auto load, auto store) HWY_ATTR {
    const auto e = exp_nonpositive(d, hn::Sub(load(x), top));
    const auto smooth = w ? hn::Mul(even, load(w)) : even;
    store(hn::Sub(hn::Mul(e, scale), smooth), dx);
  });
}

// ---- The same of logits of any type.

// max x and Σ exp(x − max).
void softmax_statistics(DType dtype, const void* x, int64_t classes, float* maximum, float* sum) {
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    softmax_statistics_of(static_cast<const decltype(number)*>(x), classes, maximum, sum);
  });
}

// Σ_c w_c (maximum − x_c): all terms have one sign, so nothing cancels.
float weighted_distance(DType dtype, const void* x, const float* w, int64_t classes,
                        float maximum) {
  float sum = 0;
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    sum = weighted_distance_of(static_cast<const decltype(number)*>(x), w, classes, maximum);
  });
  return sum;
}

// dx = exp(x − maximum) · factor − spread · w (w null: ones).
void cross_entropy_backward_row(DType dtype, const void* x, const float* w, int64_t classes,
                                float maximum, float factor, float spread, float* dx) {
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    cross_entropy_backward_numbers(static_cast<const decltype(number)*>(x), w, classes, maximum,
                                   factor, spread, dx);
  });
}

// x → exp(x − maximum) · factor · (1 − (x · inverse_cap)²).
void capped_backward_row(int64_t classes, float maximum, float factor, float inverse_cap,
                         float* x) {
  const Float d;
  const auto top = hn::Set(d, maximum), scale = hn::Set(d, factor), one = hn::Set(d, 1.0f);
  const auto inverse = hn::Set(d, inverse_cap);
  for_each_vector(0, classes, [&](auto load, auto store) HWY_ATTR {
    const auto logit = load(x), part = hn::Mul(logit, inverse);
    const auto slope = hn::Mul(hn::NegMulAdd(part, part, one), scale);
    store(hn::Mul(exp_nonpositive(d, hn::Sub(logit, top)), slope), x);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(softmax_statistics);
HWY_EXPORT(weighted_distance);
HWY_EXPORT(cross_entropy_backward_row);
HWY_EXPORT(capped_backward_row);

namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

template <class Body>
void for_each_row(ThreadPool& pool, int64_t rows, int64_t dim, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, dim));
  pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

// The arithmetic of single rows, with what does not depend on the row worked out before.
class RowKernel {
 public:
  explicit RowKernel(const CrossEntropy& args)
      : args_(args),
        statistics_(HWY_DYNAMIC_DISPATCH(softmax_statistics)),
        distance_(HWY_DYNAMIC_DISPATCH(weighted_distance)),
        backward_(HWY_DYNAMIC_DISPATCH(cross_entropy_backward_row)),
        spread_(args.smoothing / static_cast<float>(args.logits.dim)) {
    double total = static_cast<double>(args.logits.dim);
    if (args.class_weight && args.smoothing != 0) {
      total = 0;
      for (int64_t c = 0; c < args.logits.dim; ++c) total += args.class_weight[c];
    }
    total_weight_ = static_cast<float>(total);
  }

  bool ignored(int64_t row) const { return args_.targets[row] == args_.ignore_index; }
  bool valid(int64_t row) const {
    return args_.targets[row] >= 0 && args_.targets[row] < args_.logits.dim;
  }
  float target_logit(int64_t row) const {
    return number_at(args_.logits.dtype, args_.logits.row(row), args_.targets[row]);
  }
  // w_y: 0 if ignored, NaN if there is no such class.
  float weight(int64_t row) const {
    if (ignored(row)) return 0;
    if (!valid(row)) return kNotANumber;
    return args_.class_weight ? args_.class_weight[args_.targets[row]] : 1;
  }

  float loss(int64_t row, float* maximum, float* scale) const {
    *maximum = *scale = 0;
    if (ignored(row)) return 0;
    const void* const x = args_.logits.row(row);
    float sum;
    statistics_(args_.logits.dtype, x, args_.logits.dim, maximum, &sum);
    *scale = 1 / sum;
    if (!valid(row)) return kNotANumber;
    const float log_sum = std::log(sum);
    float loss = (1 - args_.smoothing) * weight(row) * (*maximum - target_logit(row) + log_sum);
    if (args_.smoothing != 0) {
      const float distance =
          distance_(args_.logits.dtype, x, args_.class_weight, args_.logits.dim, *maximum);
      loss += spread_ * (distance + total_weight_ * log_sum);
    }
    return loss;
  }

  void backward(int64_t row, float maximum, float scale, float drow, float* dx) const {
    if (ignored(row)) {
      std::fill_n(dx, args_.logits.dim, 0.0f);
      return;
    }
    const float hit = (1 - args_.smoothing) * weight(row);
    const float factor = drow * scale * (hit + spread_ * total_weight_);
    backward_(args_.logits.dtype, args_.logits.row(row), args_.class_weight, args_.logits.dim,
              maximum, factor, drow * spread_, dx);
    if (valid(row)) dx[args_.targets[row]] -= drow * hit;
  }

  // The same in place of x, a row of capped logits, for those before the cap; without smoothing.
  void backward_capped(int64_t row, float maximum, float scale, float drow, float cap,
                       float* x) const {
    if (ignored(row)) {
      std::fill_n(x, args_.logits.dim, 0.0f);
      return;
    }
    const float hit = drow * weight(row);
    const float part = valid(row) ? x[args_.targets[row]] / cap : 0;
    HWY_DYNAMIC_DISPATCH(capped_backward_row)(args_.logits.dim, maximum, hit * scale, 1 / cap, x);
    if (valid(row)) x[args_.targets[row]] -= hit * (1 - part * part);
  }

 private:
  const CrossEntropy& args_;
  decltype(&HWY_STATIC_DISPATCH(softmax_statistics)) statistics_;
  decltype(&HWY_STATIC_DISPATCH(weighted_distance)) distance_;
  decltype(&HWY_STATIC_DISPATCH(cross_entropy_backward_row)) backward_;
  float spread_, total_weight_;
};

}  // namespace

void cross_entropy(ThreadPool& pool, const CrossEntropy& args, const CrossEntropyRows& out) {
  const RowKernel kernel(args);
  for_each_row(pool, args.logits.rows, args.logits.dim, [&](int64_t row) {
    out.loss[row] = kernel.loss(row, &out.maximum[row], &out.scale[row]);
    out.weight[row] = kernel.weight(row);
  });
}

void cross_entropy_backward(ThreadPool& pool, const CrossEntropy& args, const float* maximum,
                            const float* scale, const float* drow, float* dx) {
  const RowKernel kernel(args);
  for_each_row(pool, args.logits.rows, args.logits.dim, [&](int64_t row) {
    kernel.backward(row, maximum[row], scale[row], drow[row], dx + row * args.logits.dim);
  });
}

void cross_entropy_in_place(ThreadPool& pool, const CrossEntropy& args, const float* drow,
                            float cap, float* loss, float* logits) {
  const RowKernel kernel(args);
  for_each_row(pool, args.logits.rows, args.logits.dim, [&](int64_t row) {
    float* x = logits + row * args.logits.dim;
    loss[row] = 0;
    if (drow[row] == 0) {
      std::fill_n(x, args.logits.dim, 0.0f);
      return;
    }
    if (cap != 0) soft_cap({1 / cap, cap}, false, args.logits.dim, x);
    float maximum, scale;
    loss[row] = kernel.loss(row, &maximum, &scale);
    if (cap != 0) {
      kernel.backward_capped(row, maximum, scale, drow[row], cap, x);
    } else {
      kernel.backward(row, maximum, scale, drow[row], x);
    }
  });
}

void nll(ThreadPool& pool, const CrossEntropy& args, float* loss, float* weight) {
  const RowKernel kernel(args);
  for_each_row(pool, args.logits.rows, 1, [&](int64_t row) {
    weight[row] = kernel.weight(row);
    loss[row] = kernel.ignored(row) ? 0
                : kernel.valid(row) ? -weight[row] * kernel.target_logit(row)
                                    : kNotANumber;
  });
}

void nll_backward(ThreadPool& pool, const CrossEntropy& args, const float* drow, float* dx) {
  const RowKernel kernel(args);
  for_each_row(pool, args.logits.rows, args.logits.dim, [&](int64_t row) {
    float* out = dx + row * args.logits.dim;
    std::fill_n(out, args.logits.dim, 0.0f);
    if (kernel.valid(row) && !kernel.ignored(row)) {
      out[args.targets[row]] = -drow[row] * kernel.weight(row);
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
