// What element-wise block functions of float and double share, included by kernel files once per
// Highway target.
#if defined(LUMEN_KERNELS_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_ELEMENTWISE_INL_H_
#undef LUMEN_KERNELS_ELEMENTWISE_INL_H_
#else
#define LUMEN_KERNELS_ELEMENTWISE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "lib/kernels/simd/first_lanes-inl.h"
#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/piece-inl.h"
#include "lib/kernels/typed.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// f(numbers…): where pieces are functions, one for all that call it.
template <class F, class... Numbers>
LUMEN_PIECE auto run_piece(const F& f, Numbers... numbers) {
  return f(numbers...);
}

// out[i] = f(in[0][i], …, in[kInputs − 1][i]) by whole vectors of D, then a partial one.
template <size_t kInputs, class D, class F>
HWY_INLINE void map(D d, const hn::TFromD<D>* const* in, hn::TFromD<D>* out, int64_t n,
                    const F& f) {
  using T = hn::TFromD<D>;
  const size_t lanes = hn::Lanes(d);
  const auto count = static_cast<size_t>(n);
  size_t i = 0;
  const auto apply = [&](const auto& load) HWY_ATTR {
    if constexpr (kInputs == 1) return run_piece(f, d, load(in[0]));
    if constexpr (kInputs == 2) return run_piece(f, d, load(in[0]), load(in[1]));
    if constexpr (kInputs == 3) return run_piece(f, d, load(in[0]), load(in[1]), load(in[2]));
  };
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(apply([&](const T* x) HWY_ATTR { return hn::LoadU(d, x + i); }), d, out + i);
  }
  if (i == count) return;
  const auto rest = static_cast<int64_t>(count - i);
  store_first(apply([&](const T* x) HWY_ATTR { return load_first(d, x + i, rest); }), d, out + i,
              rest);
}

// Replaces the lanes of y where `good` is false by scalar(a[lane], b[lane]).
template <class D, class F>
HWY_INLINE hn::Vec<D> repair(D d, hn::Mask<D> good, hn::Vec<D> y, hn::Vec<D> a, hn::Vec<D> b,
                             const F& scalar) {
  if (HWY_LIKELY(hn::AllTrue(d, good))) return y;
  using T = hn::TFromD<D>;
  HWY_ALIGN T ys[hn::MaxLanes(D())], as[hn::MaxLanes(D())], bs[hn::MaxLanes(D())];
  HWY_ALIGN T ok[hn::MaxLanes(D())];
  hn::Store(y, d, ys);
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(hn::IfThenElseZero(good, hn::Set(d, T{1})), d, ok);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (ok[i] == 0) ys[i] = scalar(as[i], bs[i]);
  }
  return hn::Load(d, ys);
}

// Where rounding down is not cutting off: there is a rest, and not of y's sign.
template <class D>
HWY_INLINE hn::Mask<D> rounds_away(D d, hn::Vec<D> rest, hn::Vec<D> y) {
  const auto zero = hn::Zero(d);
  return hn::And(hn::Ne(rest, zero), hn::Xor(hn::Lt(rest, zero), hn::Lt(y, zero)));
}

// Python's % and // from quotient = trunc(x / y) and rest = x − quotient · y of x's sign.
template <class D>
HWY_INLINE hn::Vec<D> floor_rest(D d, hn::Vec<D> y, hn::Vec<D> rest) {
  return hn::IfThenElse(rounds_away(d, rest, y), hn::Add(rest, y), rest);
}
template <class D>
HWY_INLINE hn::Vec<D> floor_whole(D d, hn::Vec<D> x, hn::Vec<D> y, hn::Vec<D> quotient,
                                  hn::Vec<D> rest) {
  const auto one = hn::Set(d, hn::TFromD<D>{1}), zero = hn::Zero(d);
  const auto whole = hn::Sub(quotient, hn::IfThenElseZero(rounds_away(d, rest, y), one));
  return hn::IfThenElse(hn::Eq(whole, zero), hn::CopySign(zero, hn::Xor(x, y)), whole);
}

// Whether extremes are x86's instructions, which give the second operand where one is NaN.
inline constexpr bool kExtremesGiveSecond =
    HWY_ARCH_X86 != 0 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

// y, an extreme of a and b, but NaN where one of them is.
template <class V>
HWY_INLINE V keep_nan(V y, V a, V b) {
  if constexpr (kExtremesGiveSecond) return hn::IfThenElse(hn::IsNaN(a), a, y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), y);
}

// What `op` makes of vectors; those beyond its arguments mean nothing.
template <TypedOp kOp, class V>
HWY_INLINE V apply(V a, V b, V c) {
  const hn::DFromV<V> d;
  const auto one = hn::Set(d, 1.0f);
  if constexpr (kOp == TypedOp::kAdd) return hn::Add(a, b);
  if constexpr (kOp == TypedOp::kSubtract) return hn::Sub(a, b);
  if constexpr (kOp == TypedOp::kMultiply) return hn::Mul(a, b);
  if constexpr (kOp == TypedOp::kDivide) return hn::Div(a, b);
  if constexpr (kOp == TypedOp::kNegate) return hn::Neg(a);
  if constexpr (kOp == TypedOp::kMagnitude) return hn::Abs(a);
  if constexpr (kOp == TypedOp::kSign) {
    const auto zero = hn::Zero(d);
    return hn::Sub(hn::IfThenElseZero(hn::Lt(zero, a), one),
                   hn::IfThenElseZero(hn::Lt(a, zero), one));
  }
  if constexpr (kOp == TypedOp::kMaximum) return keep_nan(hn::Max(a, b), a, b);
  if constexpr (kOp == TypedOp::kMinimum) return keep_nan(hn::Min(a, b), a, b);
  if constexpr (kOp == TypedOp::kClamp) {
    if constexpr (kExtremesGiveSecond) return hn::Min(c, hn::Max(b, a));
    return hn::IfThenElse(hn::IsNaN(a), a, hn::Min(hn::Max(a, b), c));
  }
  if constexpr (kOp == TypedOp::kLess) return hn::IfThenElseZero(hn::Lt(a, b), one);
  if constexpr (kOp == TypedOp::kEqual) return hn::IfThenElseZero(hn::Eq(a, b), one);
  if constexpr (kOp == TypedOp::kRelu) return hn::IfThenZeroElse(hn::Lt(a, hn::Zero(d)), a);
  if constexpr (kOp == TypedOp::kToBf16) return rounded_to_bfloat(d, a);
  if constexpr (kOp == TypedOp::kLeaky) {
    return hn::IfThenElse(hn::Gt(a, hn::Zero(d)), b, hn::Mul(c, b));
  }
  // The emulation loses the sign of what becomes 0.
  const auto signed_as_a = [&](V whole) HWY_ATTR {
    return HWY_TARGET == HWY_EMU128 ? hn::CopySign(whole, a) : whole;
  };
  if constexpr (kOp == TypedOp::kFloor) return signed_as_a(hn::Floor(a));
  if constexpr (kOp == TypedOp::kCeil) return signed_as_a(hn::Ceil(a));
  if constexpr (kOp == TypedOp::kRound) return signed_as_a(hn::Round(a));
  if constexpr (kOp == TypedOp::kTrunc) return signed_as_a(hn::Trunc(a));
  if constexpr (kOp == TypedOp::kSquareRoot) return hn::Sqrt(a);
  if constexpr (kOp == TypedOp::kReciprocal) return hn::Div(one, a);
  if constexpr (kOp == TypedOp::kWhere) return hn::IfThenElse(hn::Eq(a, hn::Zero(d)), c, b);
}

// The block function of `op`.
template <TypedOp kOp, size_t kInputs, class D>
HWY_INLINE void map_op(D d, const hn::TFromD<D>* const* in, hn::TFromD<D>* out, int64_t n) {
  map<kInputs>(d, in, out, n, [](auto, auto a, auto... rest) HWY_ATTR {
    if constexpr (sizeof...(rest) == 0) return apply<kOp>(a, a, a);
    if constexpr (sizeof...(rest) == 1) return apply<kOp>(a, rest..., a);
    if constexpr (sizeof...(rest) == 2) return apply<kOp>(a, rest...);
  });
}

// (x + 3) / 6, at least 0 and at most 1. NaN stays.
template <class D>
HWY_INLINE hn::Vec<D> hard_sigmoid_vector(D d, hn::Vec<D> x) {
  const auto raised = hn::Add(x, hn::Set(d, 3.0f));
  return hn::Mul(apply<TypedOp::kClamp>(raised, hn::Zero(d), hn::Set(d, 6.0f)),
                 hn::Set(d, hn::TFromD<D>{1} / 6));
}

// Twice √(2/π).
constexpr double kTwiceRootTwoOverPi = 1.5957691216057308;
// Of 2u, u = √(2/π) (x + 0.044715 x³), what x and x³ are multiplied by.
template <class T>
constexpr T kGeluLinear = static_cast<T>(kTwiceRootTwoOverPi);
template <class T>
constexpr T kGeluCubic = static_cast<T>(0.044715) * kGeluLinear<T>;

// x · sigmoid(2u), equal to x/2 · (1 + tanh u) without the cancellation of 1 + tanh u for x < 0.
template <class D, class Sigmoid>
HWY_INLINE hn::Vec<D> gelu_tanh_vector(D d, hn::Vec<D> x, const Sigmoid& sigmoid) {
  using T = hn::TFromD<D>;
  const auto inner =
      hn::MulAdd(hn::Mul(x, x), hn::Set(d, kGeluCubic<T>), hn::Set(d, kGeluLinear<T>));
  return hn::Mul(x, sigmoid(d, hn::Mul(x, inner)));
}

// Its slope, with v = 2u: slope(v, x v') = s (1 + x v' (1 − s)), s = sigmoid v. It is 0 or 1 beyond
// |x| = 30.
template <class D, class Slope>
HWY_INLINE hn::Vec<D> gelu_tanh_slope_vector(D d, hn::Vec<D> x, const Slope& slope) {
  using T = hn::TFromD<D>;
  const auto flat = hn::Set(d, T{30}), linear = hn::Set(d, kGeluLinear<T>);
  const auto near = hn::Min(hn::Max(x, hn::Neg(flat)), flat);
  const auto cubic = hn::Mul(hn::Mul(near, near), hn::Set(d, kGeluCubic<T>));
  const auto rise = hn::MulAdd(cubic, hn::Set(d, T{3}), linear);
  const auto v = hn::Mul(near, hn::Add(cubic, linear));
  return hn::IfThenElse(hn::IsNaN(x), x, slope(d, v, hn::Mul(near, rise)));
}

// x/3 + ½ for |x| ≤ 3, else 0 or 1.
template <class D>
HWY_INLINE hn::Vec<D> hard_swish_slope_vector(D d, hn::Vec<D> x) {
  const auto three = hn::Set(d, 3.0f), one = hn::Set(d, 1.0f);
  const auto inside = hn::MulAdd(x, hn::Set(d, hn::TFromD<D>{1} / 3), hn::Set(d, 0.5f));
  const auto high = hn::IfThenElse(hn::Ge(x, three), one, inside);
  return hn::IfThenZeroElse(hn::Le(x, hn::Neg(three)), high);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
