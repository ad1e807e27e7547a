#include "lib/kernels/chain.h"

#include <algorithm>
#include <type_traits>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/chain.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/elementwise-inl.h"
#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

template <class T>
using VecOf = hn::Vec<hn::ScalableTag<T>>;
template <class T>
constexpr auto kLanesOf = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));

// Where a step of a chain reads an argument: in memory, in what the step before left, or, one
// number for all lanes, at the place of the first.
enum class From { kMemory, kLast, kSingle };

// A step of a chain for kVectors vectors.
template <TypedOp kOp, From kA, From kB, From kC, int kVectors, class T, class Load>
LUMEN_PIECE void run_step(const T* a, const T* b, const T* c, const Load& load,
                          VecOf<T> (&last)[kVectors]) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = kLanesOf<T>;
  VecOf<T> single_a, single_b, single_c;
  if constexpr (kA == From::kSingle) single_a = hn::Set(d, *a);
  if constexpr (kB == From::kSingle) single_b = hn::Set(d, *b);
  if constexpr (kC == From::kSingle) single_c = hn::Set(d, *c);
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    VecOf<T> x = last[v], y = last[v], z = last[v];
    if constexpr (kA == From::kMemory) x = load(a + v * kLanes);
    if constexpr (kA == From::kSingle) x = single_a;
    if constexpr (kB == From::kMemory) y = load(b + v * kLanes);
    if constexpr (kB == From::kSingle) y = single_b;
    if constexpr (kC == From::kMemory) z = load(c + v * kLanes);
    if constexpr (kC == From::kSingle) z = single_c;
    last[v] = apply<kOp>(x, y, z);
  }
}

// An argument of a step: kLast has no pointer.
template <class T>
struct Source {
  const T* at;
  From from;
};

// The step for arguments wherever they are, but for two that are both single numbers.
template <TypedOp kOp, int kVectors, class T, class Load>
HWY_INLINE void run_binary(Source<T> a, Source<T> b, const Load& load, VecOf<T> (&last)[kVectors]) {
#define LUMEN_RUN(first, second) \
  run_step<kOp, From::first, From::second, From::kLast>(a.at, b.at, a.at, load, last)
  if (a.from == From::kLast) {
    if (b.from == From::kLast) return LUMEN_RUN(kLast, kLast);
    if (kVectors > 1 && b.from == From::kSingle) return LUMEN_RUN(kLast, kSingle);
    return LUMEN_RUN(kLast, kMemory);
  }
  if (kVectors > 1 && a.from == From::kSingle) {
    if (b.from == From::kLast) return LUMEN_RUN(kSingle, kLast);
    return LUMEN_RUN(kSingle, kMemory);
  }
  if (b.from == From::kLast) return LUMEN_RUN(kMemory, kLast);
  if (kVectors > 1 && b.from == From::kSingle) return LUMEN_RUN(kMemory, kSingle);
  return LUMEN_RUN(kMemory, kMemory);
#undef LUMEN_RUN
}

// The same where only the first may be what the step before left, and is no single number.
template <TypedOp kOp, From kA, int kVectors, class T, class Load>
HWY_INLINE void run_ternary(Source<T> a, Source<T> b, Source<T> c, const Load& load,
                            VecOf<T> (&last)[kVectors]) {
#define LUMEN_RUN(second, third) \
  run_step<kOp, kA, From::second, From::third>(a.at, b.at, c.at, load, last)
  if (kVectors > 1 && b.from == From::kSingle) {
    if (c.from == From::kSingle) return LUMEN_RUN(kSingle, kSingle);
    return LUMEN_RUN(kSingle, kMemory);
  }
  if (kVectors > 1 && c.from == From::kSingle) return LUMEN_RUN(kMemory, kSingle);
  return LUMEN_RUN(kMemory, kMemory);
#undef LUMEN_RUN
}

// The steps of a chain for kVectors vectors from element `at` on, all of whose results but those of
// `kept`, which stay in `last`, are stored.
template <int kVectors, class T, class Load, class Store>
LUMEN_PIECE void run_steps(std::span<const ChainStep> steps, const ChainStep* kept,
                           const T* const* registers, T* const* results, uint32_t singles,
                           int64_t at, const Load& load, const Store& store,
                           VecOf<T> (&last)[kVectors]) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = kLanesOf<T>;
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) last[v] = hn::Zero(d);
  // Arguments that are put into memory because there is no code for where they are.
  T put[kMaxArguments][kVectors * kLanes];
  for (const ChainStep& step : steps) {
    const auto source = [&](int argument) HWY_ATTR {
      const int8_t from = step.arguments[argument];
      if (from == ChainStep::kBefore) return Source<T>{nullptr, From::kLast};
      if ((singles >> from & 1) != 0) return Source<T>{registers[from], From::kSingle};
      return Source<T>{registers[from] + at, From::kMemory};
    };
    const auto in_memory = [&](Source<T> x, int argument) HWY_ATTR {
      if (x.from == From::kMemory) return x;
      T* const to = put[argument];
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(x.from == From::kLast ? last[v] : hn::Set(d, *x.at), d, to + v * kLanes);
      }
      return Source<T>{to, From::kMemory};
    };
    Source<T> a = source(0), b = source(1);
    // For one vector there is no code for single numbers.
    const bool is_pair = a.from == From::kSingle && b.from == From::kSingle;
    if (a.from == From::kSingle && kVectors == 1) a = in_memory(a, 0);
    if (b.from == From::kSingle && (kVectors == 1 || is_pair)) b = in_memory(b, 1);
    switch (step.op) {
#define LUMEN_UNARY(op)                                                                     \
  case TypedOp::op:                                                                         \
    if (a.from == From::kSingle) a = in_memory(a, 0);                                       \
    a.from == From::kLast ? run_step<TypedOp::op, From::kLast, From::kLast, From::kLast>(   \
                                a.at, a.at, a.at, load, last)                               \
                          : run_step<TypedOp::op, From::kMemory, From::kLast, From::kLast>( \
                                a.at, a.at, a.at, load, last);                              \
    break;
#define LUMEN_BINARY(op)                       \
  case TypedOp::op:                            \
    run_binary<TypedOp::op>(a, b, load, last); \
    break;
#define LUMEN_TERNARY(op)                                                                 \
  case TypedOp::op: {                                                                     \
    Source<T> c = source(2);                                                              \
    if (a.from == From::kSingle) a = in_memory(a, 0);                                     \
    if (b.from == From::kLast) b = in_memory(b, 1);                                       \
    if (c.from == From::kLast || kVectors == 1) c = in_memory(c, 2);                      \
    a.from == From::kLast ? run_ternary<TypedOp::op, From::kLast>(a, b, c, load, last)    \
                          : run_ternary<TypedOp::op, From::kMemory>(a, b, c, load, last); \
    break;                                                                                \
  }
      LUMEN_BINARY(kAdd)
      LUMEN_BINARY(kSubtract)
      LUMEN_BINARY(kMultiply)
      LUMEN_BINARY(kDivide)
      LUMEN_UNARY(kNegate)
      LUMEN_UNARY(kMagnitude)
      LUMEN_UNARY(kSign)
      LUMEN_BINARY(kMaximum)
      LUMEN_BINARY(kMinimum)
      LUMEN_BINARY(kLess)
      LUMEN_BINARY(kEqual)
      LUMEN_UNARY(kRelu)
      LUMEN_UNARY(kFloor)
      LUMEN_UNARY(kCeil)
      LUMEN_UNARY(kRound)
      LUMEN_UNARY(kTrunc)
      LUMEN_UNARY(kSquareRoot)
      LUMEN_UNARY(kReciprocal)
      LUMEN_TERNARY(kWhere)
      LUMEN_TERNARY(kClamp)
      LUMEN_TERNARY(kLeaky)
      case TypedOp::kToBf16:
        if (a.from == From::kSingle) a = in_memory(a, 0);
        if constexpr (sizeof(T) == sizeof(float)) {
          using enum From;
          a.from == kLast
              ? run_step<TypedOp::kToBf16, kLast, kLast, kLast>(a.at, a.at, a.at, load, last)
              : run_step<TypedOp::kToBf16, kMemory, kLast, kLast>(a.at, a.at, a.at, load, last);
        }
        break;
      default:
        break;
    }
#undef LUMEN_TERNARY
#undef LUMEN_BINARY
#undef LUMEN_UNARY
    if (step.result == ChainStep::kBefore || &step == kept) continue;
    T* const target = results[step.result] + at;
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) store(last[v], target + v * kLanes);
  }
}

// A chain of one step for n numbers, whole vectors; kLast stands for an argument that it has not.
template <TypedOp kOp, From kA, From kB, From kC, class T>
HWY_INLINE void run_alone(const T* a, const T* b, const T* c, T* to, int64_t n) {
  const hn::ScalableTag<T> d;
  VecOf<T> x = hn::Set(d, *a), y = hn::Set(d, *b), z = hn::Set(d, *c);
  HWY_UNROLL(4)
  for (int64_t i = 0; i < n; i += kLanesOf<T>) {
    if constexpr (kA == From::kMemory) x = hn::LoadU(d, a + i);
    if constexpr (kB == From::kMemory) y = hn::LoadU(d, b + i);
    if constexpr (kC == From::kMemory) z = hn::LoadU(d, c + i);
    hn::StoreU(apply<kOp>(x, y, z), d, to + i);
  }
}

// The same for arguments in memory or, from the second on or the first of two, single numbers, and
// for the whole vectors of any n. Returns for how many numbers, 0 for what is no such step.
template <class T>
int64_t run_alone(const ChainStep& step, const T* const* registers, T* to, uint32_t singles,
                  int64_t n) {
  n = n / kLanesOf<T> * kLanesOf<T>;
  if (n == 0) return 0;
  const auto is_single = [&](int i) { return (singles >> step.arguments[i] & 1) != 0; };
  const T *const a = registers[step.arguments[0]], *const b = registers[step.arguments[1]];
  const T* const c = registers[step.arguments[2]];
  const bool one_a = is_single(0), one_b = is_single(1), one_c = is_single(2);
#define LUMEN_ALONE(of_a, of_b, of_c) \
  run_alone<kOp, From::of_a, From::of_b, From::of_c>(a, b, c, to, n)
  const auto unary = [&](auto op) HWY_ATTR {
    constexpr TypedOp kOp = decltype(op)::value;
    if (one_a) return int64_t{0};
    LUMEN_ALONE(kMemory, kLast, kLast);
    return n;
  };
  const auto binary = [&](auto op) HWY_ATTR {
    constexpr TypedOp kOp = decltype(op)::value;
    if (one_a && one_b) return int64_t{0};
    one_a   ? LUMEN_ALONE(kSingle, kMemory, kLast)
    : one_b ? LUMEN_ALONE(kMemory, kSingle, kLast)
            : LUMEN_ALONE(kMemory, kMemory, kLast);
    return n;
  };
  const auto ternary = [&](auto op) HWY_ATTR {
    constexpr TypedOp kOp = decltype(op)::value;
    if (one_a) return int64_t{0};
    one_b&& one_c ? LUMEN_ALONE(kMemory, kSingle, kSingle)
    : one_b       ? LUMEN_ALONE(kMemory, kSingle, kMemory)
    : one_c       ? LUMEN_ALONE(kMemory, kMemory, kSingle)
                  : LUMEN_ALONE(kMemory, kMemory, kMemory);
    return n;
  };
#undef LUMEN_ALONE
#define LUMEN_CASE(arity, op) \
  case TypedOp::op:           \
    return arity(std::integral_constant<TypedOp, TypedOp::op>())
  switch (step.op) {
    LUMEN_CASE(binary, kAdd);
    LUMEN_CASE(binary, kSubtract);
    LUMEN_CASE(binary, kMultiply);
    LUMEN_CASE(binary, kDivide);
    LUMEN_CASE(unary, kNegate);
    LUMEN_CASE(unary, kMagnitude);
    LUMEN_CASE(unary, kSign);
    LUMEN_CASE(binary, kMaximum);
    LUMEN_CASE(binary, kMinimum);
    LUMEN_CASE(binary, kLess);
    LUMEN_CASE(binary, kEqual);
    LUMEN_CASE(unary, kRelu);
    LUMEN_CASE(ternary, kWhere);
    LUMEN_CASE(ternary, kClamp);
    LUMEN_CASE(ternary, kLeaky);
    default:
      return 0;
  }
#undef LUMEN_CASE
}

// What `narrow` asks for, from element `at` on.
template <int kVectors>
HWY_INLINE void store_narrow(const VecOf<float> (&v)[kVectors], const NarrowResult& narrow,
                             int64_t at) {
  const hn::ScalableTag<float> d;
  const hn::Repartition<uint16_t, decltype(d)> halves;
  constexpr int64_t kLanes = kLanesOf<float>;
  uint16_t* const to = narrow.to + at;
  if (narrow.is_half) {
    HWY_UNROLL(8)
    for (int i = 0; i < kVectors; ++i) store_half(d, v[i], to + i * kLanes);
    return;
  }
  HWY_UNROLL(4)
  for (int i = 0; i + 1 < kVectors; i += 2) {
    if (narrow.is_exact) {
      hn::StoreU(hn::ConcatOdd(halves, hn::BitCast(halves, v[i + 1]), hn::BitCast(halves, v[i])),
                 halves, to + i * kLanes);
    } else {
      store_bfloats(d, v[i], v[i + 1], to + i * kLanes);
    }
  }
  if constexpr (kVectors % 2 != 0) {
    store_bfloat(d, v[kVectors - 1], to + (kVectors - 1) * kLanes);
  }
}

template <class T>
HWY_INLINE void run(std::span<const ChainStep> steps, const T* const* registers, T* const* results,
                    int64_t n, const NarrowResult& narrow, uint32_t singles) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = kLanesOf<T>;
  const bool is_narrow = sizeof(T) == sizeof(float) && narrow.to != nullptr;
  const ChainStep* const kept = is_narrow ? &steps.back() : nullptr;
  int64_t at = 0;
  if constexpr (HWY_TARGET != HWY_EMU128) {  // which is slow to compile, and slow
    constexpr int kVectors = 8;
    const auto load = [](const T* p) HWY_ATTR { return hn::LoadU(hn::ScalableTag<T>(), p); };
    const auto store = [](VecOf<T> x, T* p) HWY_ATTR { hn::StoreU(x, hn::ScalableTag<T>(), p); };
    VecOf<T> last[kVectors];
    if (steps.size() == 1 && !is_narrow) {
      at = run_alone(steps[0], registers, results[steps[0].result], singles, n);
    }
    for (; at + kVectors * kLanes <= n; at += kVectors * kLanes) {
      run_steps(steps, kept, registers, results, singles, at, load, store, last);
      if constexpr (sizeof(T) == sizeof(float)) {
        if (is_narrow) store_narrow(last, narrow, at);
      }
    }
  }
  // Vectors that are left, whole or not.
  VecOf<T> last[1];
  for (; at < n; at += kLanes) {
    const int64_t count = std::min(kLanes, n - at);
    run_steps(
        steps, kept, registers, results, singles, at,
        [=](const T* p) HWY_ATTR { return load_first(d, p, count); },
        [=](VecOf<T> x, T* p) HWY_ATTR { store_first(x, d, p, count); }, last);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (!is_narrow) continue;
      if (count == kLanes) {
        store_narrow(last, narrow, at);
      } else if (narrow.is_half) {
        store_first(last[0], d, reinterpret_cast<HalfBits*>(narrow.to + at), count);
      } else {
        store_first(last[0], d, narrow.to + at, count);
      }
    }
  }
}

void chain_f32(std::span<const ChainStep> steps, const float* const* registers,
               float* const* results, int64_t n, const NarrowResult& narrow, uint32_t singles) {
  run(steps, registers, results, n, narrow, singles);
}
void chain_f64(std::span<const ChainStep> steps, const double* const* registers,
               double* const* results, int64_t n, uint32_t singles) {
  run(steps, registers, results, n, {}, singles);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(chain_f32);
HWY_EXPORT(chain_f64);

void run_chain(std::span<const ChainStep> steps, const float* const* registers,
               float* const* results, int64_t n, const NarrowResult& last, uint32_t singles) {
  HWY_DYNAMIC_DISPATCH(chain_f32)(steps, registers, results, n, last, singles);
}
void run_chain(std::span<const ChainStep> steps, const double* const* registers,
               double* const* results, int64_t n, uint32_t singles) {
  HWY_DYNAMIC_DISPATCH(chain_f64)(steps, registers, results, n, singles);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
