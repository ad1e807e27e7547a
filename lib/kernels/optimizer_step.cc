#include "lib/kernels/optimizer_step.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/optimizer_step.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE FloatVec set(double value) {
  return hn::Set(Float(), static_cast<float>(value));
}

// from + weight · (to − from), computed from the nearer end as by torch's lerp: after a large
// `from`, a small `to` would else be lost in its rounding even where weight is 1.
HWY_INLINE FloatVec lerp(FloatVec from, FloatVec to, double weight) {
  const auto way = hn::Sub(to, from);
  return weight < 0.5 ? hn::MulAdd(set(weight), way, from)
                      : hn::NegMulAdd(set(1 - weight), way, to);
}

void sgd_range(int64_t begin, int64_t end, const SgdStep& step, float* p, const float* g,
               float* buffer) {
  const auto scale = set(step.gradient_scale), decay = set(step.weight_decay);
  const auto minus_lr = set(-step.lr), momentum = set(step.momentum);
  const auto fresh = set(1 - step.dampening);
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    const auto w = load(p);
    auto gradient = hn::MulAdd(decay, w, hn::Mul(scale, load(g)));
    if (buffer) {
      auto b = gradient;
      if (!step.first) b = hn::MulAdd(momentum, load(buffer), hn::Mul(fresh, gradient));
      store(b, buffer);
      gradient = step.nesterov ? hn::MulAdd(momentum, b, gradient) : b;
    }
    store(hn::MulAdd(minus_lr, gradient, w), p);
  });
}

void adam_range(int64_t begin, int64_t end, const AdamStep& step, float* p, const float* g,
                float* m, float* v, float* v_max) {
  const auto scale = set(step.gradient_scale);
  const auto decay = set(step.decoupled ? 0 : step.weight_decay);
  const auto shrink = set(step.decoupled ? 1 - step.lr * step.weight_decay : 1);
  const double fresh1 = 1 - step.beta1;
  const auto beta2 = set(step.beta2), fresh2 = set(1 - step.beta2);
  const auto size = set(-step.lr / step.bias_correction1);
  const auto correction = set(1 / std::sqrt(step.bias_correction2)), eps = set(step.eps);
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    auto w = load(p);
    const auto gradient = hn::MulAdd(decay, w, hn::Mul(scale, load(g)));
    w = hn::Mul(w, shrink);
    const auto mean = lerp(load(m), gradient, fresh1);
    const auto square = hn::Mul(hn::Mul(fresh2, gradient), gradient);
    auto variance = hn::MulAdd(beta2, load(v), square);
    store(mean, m);
    store(variance, v);
    if (v_max) {
      const auto before = load(v_max);
      variance = hn::IfThenElse(hn::Lt(variance, before), before, variance);
      store(variance, v_max);
    }
    const auto root = hn::MulAdd(hn::Sqrt(variance), correction, eps);
    store(hn::MulAdd(size, hn::Div(mean, root), w), p);
  });
}

void rmsprop_range(int64_t begin, int64_t end, const RmspropStep& step, float* p, const float* g,
                   float* square, float* average, float* buffer) {
  const auto scale = set(step.gradient_scale), decay = set(step.weight_decay);
  const double weight = 1 - step.alpha;
  const auto alpha = set(step.alpha), fresh = set(weight), eps = set(step.eps);
  const auto minus_lr = set(-step.lr), momentum = set(step.momentum);
  const auto zero = hn::Zero(Float());
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    const auto w = load(p);
    const auto gradient = hn::MulAdd(decay, w, hn::Mul(scale, load(g)));
    const auto s = hn::MulAdd(alpha, load(square), hn::Mul(hn::Mul(fresh, gradient), gradient));
    store(s, square);
    auto variance = s;
    if (average) {
      const auto mean = lerp(load(average), gradient, weight);
      store(mean, average);
      variance = hn::NegMulAdd(mean, mean, s);
      variance = hn::IfThenElse(hn::Lt(variance, zero), zero, variance);  // NaN stays
    }
    auto update = hn::Div(gradient, hn::Add(hn::Sqrt(variance), eps));
    if (buffer) {
      update = hn::MulAdd(momentum, load(buffer), update);
      store(update, buffer);
    }
    store(hn::MulAdd(minus_lr, update, w), p);
  });
}

void adagrad_range(int64_t begin, int64_t end, const AdagradStep& step, float* p, const float* g,
                   float* sum) {
  const auto scale = set(step.gradient_scale), decay = set(step.weight_decay);
  const auto minus_lr = set(-step.lr), eps = set(step.eps);
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    const auto w = load(p);
    const auto gradient = hn::MulAdd(decay, w, hn::Mul(scale, load(g)));
    const auto s = hn::MulAdd(gradient, gradient, load(sum));
    store(s, sum);
    store(hn::MulAdd(minus_lr, hn::Div(gradient, hn::Add(hn::Sqrt(s), eps)), w), p);
  });
}

void lion_range(int64_t begin, int64_t end, const LionStep& step, float* p, const float* g,
                float* m) {
  const Float d;
  const auto scale = set(step.gradient_scale), shrink = set(1 - step.lr * step.weight_decay);
  const auto beta1 = set(step.beta1), fresh1 = set(1 - step.beta1);
  const auto beta2 = set(step.beta2), fresh2 = set(1 - step.beta2);
  const auto lr = set(step.lr), zero = hn::Zero(d);
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    const auto gradient = hn::Mul(scale, load(g)), old = load(m);
    const auto direction = hn::MulAdd(beta1, old, hn::Mul(fresh1, gradient));
    // NaN compares unequal to 0 and so reaches the parameter with any sign; keep it a NaN.
    const auto signed_lr = hn::CopySign(lr, direction);
    auto update = hn::IfThenZeroElse(hn::Eq(direction, zero), signed_lr);
    update = hn::IfThenElse(hn::IsNaN(direction), direction, update);
    store(hn::Sub(hn::Mul(load(p), shrink), update), p);
    store(hn::MulAdd(beta2, old, hn::Mul(fresh2, gradient)), m);
  });
}

void scale_range(int64_t begin, int64_t end, float a, float* x) {
  const auto factor = hn::Set(Float(), a);
  for_each_vector(begin, end,
                  [&](auto load, auto store) HWY_ATTR { store(hn::Mul(factor, load(x)), x); });
}

void axpy_range(int64_t begin, int64_t end, float a, const float* x, float* y) {
  const auto factor = hn::Set(Float(), a);
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    store(hn::MulAdd(factor, load(x), load(y)), y);
  });
}

void clip_range(int64_t begin, int64_t end, float low, float high, float* x) {
  const Float d;
  const auto lower = hn::Set(d, low), upper = hn::Set(d, high);
  for_each_vector(begin, end, [&](auto load, auto store) HWY_ATTR {
    auto v = load(x);
    v = hn::IfThenElse(hn::Lt(v, lower), lower, v);
    store(hn::IfThenElse(hn::Gt(v, upper), upper, v), x);
  });
}

// x − x is 0 for finite x, else NaN; NaN stays in the sum.
bool finite_range(const float* x, int64_t n) {
  const Float d;
  auto sum = hn::Zero(d);
  for_each_vector(0, n, [&](auto load, auto) HWY_ATTR {
    const auto v = load(x);
    sum = hn::Add(sum, hn::Sub(v, v));
  });
  return hn::AllTrue(d, hn::Eq(sum, hn::Zero(d)));
}

// Σ f(|x|) over one block in double; f maps vectors of doubles.
template <class F>
HWY_INLINE double sum_in_double(const float* x, int64_t n, const F& f) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(dd), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  auto value = [&](int64_t i)
                   HWY_ATTR { return f(hn::PromoteTo(dd, hn::Abs(hn::LoadU(d, x + i)))); };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, value(i));
    sum1 = hn::Add(sum1, value(i + lanes));
    sum2 = hn::Add(sum2, value(i + 2 * lanes));
    sum3 = hn::Add(sum3, value(i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::Add(sum0, value(i));
  if (i < n) {
    const auto last = load_first(d, x + i, n - i);
    sum1 = hn::Add(sum1, f(hn::PromoteTo(dd, hn::Abs(last))));
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

double absolute_sum(const float* x, int64_t n) {
  return sum_in_double(x, n, [](auto v) HWY_ATTR { return v; });
}
double square_sum(const float* x, int64_t n) {
  return sum_in_double(x, n, [](auto v) HWY_ATTR { return hn::Mul(v, v); });
}
double nonzero_count(const float* x, int64_t n) {
  const hn::ScalableTag<double> dd;
  const double count = sum_in_double(x, n, [&](auto v) HWY_ATTR {
    const auto one = hn::IfThenZeroElse(hn::Eq(v, hn::Zero(dd)), hn::Set(dd, 1.0));
    return hn::IfThenElse(hn::IsNaN(v), v, one);
  });
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(sgd_range);
HWY_EXPORT(adam_range);
HWY_EXPORT(rmsprop_range);
HWY_EXPORT(adagrad_range);
HWY_EXPORT(lion_range);
HWY_EXPORT(scale_range);
HWY_EXPORT(axpy_range);
HWY_EXPORT(clip_range);
HWY_EXPORT(finite_range);
HWY_EXPORT(absolute_sum);
HWY_EXPORT(square_sum);
HWY_EXPORT(nonzero_count);

namespace {

// Elements a thread is given at least; a multiple of every vector.
constexpr int64_t kGrain = 16384;

// Sums run over blocks of equal length, whatever the number of threads.
constexpr int64_t kMaxBlocks = 256, kLeastBlock = 4096;

struct Blocks {
  explicit Blocks(size_t n)
      : length(std::max<size_t>(kLeastBlock, (n + kMaxBlocks - 1) / kMaxBlocks)),
        count(static_cast<int64_t>((n + length - 1) / length)) {}

  std::span<const float> block(std::span<const float> x, int64_t i) const {
    const size_t begin = static_cast<size_t>(i) * length;
    return x.subspan(begin, std::min(length, x.size() - begin));
  }

  size_t length;
  int64_t count;
};

template <class Body>
void for_each_range(ThreadPool& pool, int64_t n, const Body& body) {
  pool.parallel_for(n, kGrain, [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

double larger(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

}  // namespace

void sgd_step(ThreadPool& pool, int64_t n, const SgdStep& step, float* p, const float* g,
              float* buffer) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(sgd_range);
  for_each_range(pool, n,
                 [&](int64_t begin, int64_t end) { kernel(begin, end, step, p, g, buffer); });
}

void adam_step(ThreadPool& pool, int64_t n, const AdamStep& step, float* p, const float* g,
               float* m, float* v, float* v_max) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(adam_range);
  for_each_range(pool, n,
                 [&](int64_t begin, int64_t end) { kernel(begin, end, step, p, g, m, v, v_max); });
}

void rmsprop_step(ThreadPool& pool, int64_t n, const RmspropStep& step, float* p, const float* g,
                  float* square, float* average, float* buffer) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(rmsprop_range);
  for_each_range(pool, n, [&](int64_t begin, int64_t end) {
    kernel(begin, end, step, p, g, square, average, buffer);
  });
}

void adagrad_step(ThreadPool& pool, int64_t n, const AdagradStep& step, float* p, const float* g,
                  float* sum) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(adagrad_range);
  for_each_range(pool, n, [&](int64_t begin, int64_t end) { kernel(begin, end, step, p, g, sum); });
}

void lion_step(ThreadPool& pool, int64_t n, const LionStep& step, float* p, const float* g,
               float* m) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(lion_range);
  for_each_range(pool, n, [&](int64_t begin, int64_t end) { kernel(begin, end, step, p, g, m); });
}

double power_sum(ThreadPool& pool, size_t count, FunctionRef<std::span<const float>(size_t)> array,
                 double p) {
  const bool infinite = std::isinf(p);
  const auto kernel = p == 1   ? HWY_DYNAMIC_DISPATCH(absolute_sum)
                      : p == 2 ? HWY_DYNAMIC_DISPATCH(square_sum)
                      : p == 0 ? HWY_DYNAMIC_DISPATCH(nonzero_count)
                               : nullptr;
  const auto sum_of = [&](std::span<const float> block) {
    if (kernel) return kernel(block.data(), static_cast<int64_t>(block.size()));
    double result = 0;
    for (const float value : block) {
      const double magnitude = std::fabs(static_cast<double>(value));
      result = infinite ? larger(magnitude, result) : result + std::pow(magnitude, p);
    }
    return result;
  };
  // As many arrays at once as have room for their blocks: threads meet once for all of them.
  double partial[4 * kMaxBlocks], result = 0;
  for (size_t first = 0, last; first < count; first = last) {
    int64_t blocks = 0;
    for (last = first; last < count; ++last) {
      const int64_t more = Blocks(array(last).size()).count;
      if (blocks + more > int64_t{std::size(partial)}) break;
      blocks += more;
    }
    pool.run([&](int thread, int threads) {
      double* sums = partial;
      for (size_t i = first; i < last; ++i) {
        const std::span<const float> x = array(i);
        const Blocks own(x.size());
        for (int64_t j = own.count * thread / threads; j < own.count * (thread + 1) / threads;
             ++j) {
          sums[j] = sum_of(own.block(x, j));
        }
        sums += own.count;
      }
    });
    for (int64_t i = 0; i < blocks; ++i) {
      result = infinite ? larger(partial[i], result) : result + partial[i];
    }
  }
  return result;
}

double power_sum(ThreadPool& pool, const float* x, int64_t n, double p) {
  const auto only = [&](size_t) { return std::span(x, static_cast<size_t>(n)); };
  return power_sum(pool, 1, only, p);
}

void scale(ThreadPool& pool, int64_t n, float a, float* x) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale_range);
  for_each_range(pool, n, [&](int64_t begin, int64_t end) { kernel(begin, end, a, x); });
}

void axpy(ThreadPool& pool, int64_t n, float a, const float* x, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(axpy_range);
  for_each_range(pool, n, [&](int64_t begin, int64_t end) { kernel(begin, end, a, x, y); });
}

void clip_values(ThreadPool& pool, int64_t n, float low, float high, float* x) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(clip_range);
  for_each_range(pool, n, [&](int64_t begin, int64_t end) { kernel(begin, end, low, high, x); });
}

bool all_finite(ThreadPool& pool, const float* x, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(finite_range);
  std::atomic<bool> finite{true};
  for_each_range(pool, n, [&](int64_t begin, int64_t end) {
    if (!kernel(x + begin, end - begin)) finite.store(false, std::memory_order_relaxed);
  });
  return finite.load(std::memory_order_relaxed);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
