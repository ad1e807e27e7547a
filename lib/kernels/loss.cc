#include "lib/kernels/loss.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/loss.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/elementwise-inl.h"
#include "lib/kernels/simd/math_f64-inl.h"
#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// ln(1 + x) for x ≥ −1: with u = 1 + x rounded, ln u · x / (u − 1) undoes the rounding (Kahan).
HWY_INLINE FloatVec log1p_by_log(FloatVec x) {
  const Float d;
  const auto one = hn::Set(d, 1.0f), u = hn::Add(one, x);
  const auto corrected = hn::Div(hn::Mul(log_vector(d, u), x), hn::Sub(u, one));
  return hn::IfThenElse(hn::Eq(u, one), x, corrected);
}

void log_sigmoid(const float* const* in, float* out, int64_t n, const float*) {
  const Float d;
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    const auto x = load(in[0]);
    const auto rest = log1p_by_log(exp_vector(d, hn::Neg(hn::Abs(x))));
    const auto low = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Zero(d), x);
    store(hn::Sub(low, rest), out);
  });
}

void binary_cross_entropy(const float* const* in, float* out, int64_t n, const float*) {
  const Float d;
  const auto least = hn::Set(d, -100.0f), one = hn::Set(d, 1.0f);
  const auto limited = [&](FloatVec v)
                           HWY_ATTR { return hn::IfThenElse(hn::Lt(v, least), least, v); };
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    const auto p = load(in[0]), t = load(in[1]);
    const auto yes = limited(log_vector(d, p)), no = limited(log1p_by_log(hn::Neg(p)));
    store(hn::Sub(hn::Mul(hn::Sub(t, one), no), hn::Mul(t, yes)), out);
  });
}

template <class D>
HWY_INLINE hn::Vec<D> huber_vector(D d, hn::Vec<D> x, hn::Vec<D> low, hn::Vec<D> high) {
  const auto near = hn::Min(hn::Max(x, low), high);
  return hn::Mul(near, hn::NegMulAdd(near, hn::Set(d, hn::TFromD<D>{1} / 2), x));
}

void huber(const float* const* in, float* out, int64_t n, const float*) {
  map<3>(Float(), in, out, n, [](auto d, auto x, auto low, auto high) HWY_ATTR {
    return huber_vector(d, x, low, high);
  });
}

// ---- In double.

using Double = hn::ScalableTag<double>;

void log_sigmoid_f64(const double* const* in, double* out, int64_t n) {
  map<1>(Double(), in, out, n, [](auto d, auto x) HWY_ATTR {
    const auto rest = log1p_vector(d, exp_vector(d, hn::Neg(hn::Abs(x))));
    return hn::Sub(hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Zero(d), x), rest);
  });
}

void binary_cross_entropy_f64(const double* const* in, double* out, int64_t n) {
  map<2>(Double(), in, out, n, [](auto d, auto p, auto t) HWY_ATTR {
    const auto least = hn::Set(d, -100.0), one = hn::Set(d, 1.0);
    const auto log = log_vector(d, p), other_log = log1p_vector(d, hn::Neg(p));
    const auto yes = hn::IfThenElse(hn::Lt(log, least), least, log);
    const auto no = hn::IfThenElse(hn::Lt(other_log, least), least, other_log);
    return hn::Sub(hn::Mul(hn::Sub(t, one), no), hn::Mul(t, yes));
  });
}

void huber_f64(const double* const* in, double* out, int64_t n) {
  map<3>(Double(), in, out, n, [](auto d, auto x, auto low, auto high) HWY_ATTR {
    return huber_vector(d, x, low, high);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(log_sigmoid);
HWY_EXPORT(binary_cross_entropy);
HWY_EXPORT(huber);
HWY_EXPORT(log_sigmoid_f64);
HWY_EXPORT(binary_cross_entropy_f64);
HWY_EXPORT(huber_f64);

void block::log_sigmoid(const float* const* in, float* out, int64_t n, const float* params) {
  HWY_DYNAMIC_DISPATCH(log_sigmoid)(in, out, n, params);
}

void block::binary_cross_entropy(const float* const* in, float* out, int64_t n,
                                 const float* params) {
  HWY_DYNAMIC_DISPATCH(binary_cross_entropy)(in, out, n, params);
}

void block::huber(const float* const* in, float* out, int64_t n, const float* params) {
  HWY_DYNAMIC_DISPATCH(huber)(in, out, n, params);
}

void block_f64::log_sigmoid(const double* const* in, double* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(log_sigmoid_f64)(in, out, n);
}
void block_f64::binary_cross_entropy(const double* const* in, double* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(binary_cross_entropy_f64)(in, out, n);
}
void block_f64::huber(const double* const* in, double* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(huber_f64)(in, out, n);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
