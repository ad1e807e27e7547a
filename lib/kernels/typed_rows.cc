#include "lib/kernels/typed_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lib/base/check.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/typed_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/elementwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// --- Conversions ---------------------------------------------------------------------------------

// A bool is a byte: other values than 0 and 1 are true.
struct Truth {};
template <typename T>
struct StoredAs {
  using type = T;
};
template <>
struct StoredAs<Truth> {
  using type = uint8_t;
};
template <typename T>
using Stored = typename StoredAs<T>::type;

// Element i of memory that may not be aligned.
template <typename T>
HWY_INLINE T element_at(const std::byte* x, int64_t i) {
  T value;
  std::memcpy(&value, x + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// A float cut to an integer, saturated, of NaN 0: without branches, so that loops become vectors.
template <typename To>
HWY_INLINE To to_integer(double x) {
  constexpr auto kLow = static_cast<double>(std::numeric_limits<To>::min());
  // The largest double that is in range.
  constexpr double kHigh =
      sizeof(To) <= 4 ? static_cast<double>(std::numeric_limits<To>::max()) : 0x1.fffffffffffffp62;
  const double number = x == x ? x : 0;
  const double above = number < kLow ? kLow : number, within = above > kHigh ? kHigh : above;
  if constexpr (sizeof(To) <= 4) return static_cast<To>(static_cast<int32_t>(within));
  const auto whole = static_cast<To>(within);
  return number > kHigh ? std::numeric_limits<To>::max() : whole;
}

// The same of a float for integers of at most 4 bytes.
template <typename To>
HWY_INLINE To to_integer(float x) {
  constexpr auto kLow = static_cast<float>(std::numeric_limits<To>::min());
  constexpr auto kMost = static_cast<float>(std::numeric_limits<To>::max());  // of int32 2³¹
  const float number = x == x ? x : 0;
  const float above = number < kLow ? kLow : number;
  if constexpr (sizeof(To) < 4) {
    return static_cast<To>(static_cast<int32_t>(above > kMost ? kMost : above));
  } else {
    const auto whole = static_cast<To>(above >= kMost ? 0.0f : above);
    return above >= kMost ? std::numeric_limits<To>::max() : whole;
  }
}

template <typename To, typename From>
HWY_INLINE Stored<To> convert(Stored<From> x) {
  if constexpr (std::is_same_v<From, Truth>) {
    return static_cast<Stored<To>>(x != 0);
  } else if constexpr (std::is_same_v<To, Truth>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return to_integer<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// Whether doubles below 2⁵¹ become int64 by what stands in their mantissa once 1.5 · 2⁵² is added,
// for want of an instruction.
constexpr bool kCutsByMantissa = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4;

// y[0 … lanes) = v, which holds no NaN, cut, or false.
template <typename To, class D>
HWY_INLINE bool cut_vector(D d, hn::Vec<D> v, To* y) {
  const hn::Rebind<int32_t, D> whole;
  const hn::Rebind<To, D> narrow;
  if constexpr (sizeof(To) == 8) {
    const hn::RebindToSigned<D> wide;
    const auto magic = hn::Set(d, 0x1.8p52);
    if (!hn::AllTrue(d, hn::Lt(hn::Abs(v), hn::Set(d, 0x1p51)))) return false;
    const auto bits = hn::BitCast(wide, hn::Add(hn::Trunc(v), magic));
    hn::StoreU(hn::Sub(bits, hn::BitCast(wide, magic)), wide, y);
  } else if constexpr (sizeof(hn::TFromD<D>) == 8) {  // both steps saturate
    const auto cut = hn::DemoteTo(whole, v);
    if constexpr (sizeof(To) == 4) {
      hn::StoreU(cut, whole, y);
    } else {
      hn::StoreU(hn::DemoteTo(narrow, cut), narrow, y);
    }
  } else {
    const auto cut = hn::ConvertTo(whole, v);
    if constexpr (sizeof(To) == 4) {
      hn::StoreU(cut, whole, y);
    } else {
      hn::StoreU(hn::DemoteTo(narrow, cut), narrow, y);
    }
  }
  return true;
}

// Floats to integers. The number of elements that are done: up to one that does not go into an
// int64 so.
template <typename To, typename From>
int64_t cut_floats(const std::byte* from, std::byte* to, int64_t n) {
  constexpr bool kIsWide = sizeof(From) == 8 || sizeof(To) == 8;
  const hn::ScalableTag<std::conditional_t<kIsWide, double, float>> d;
  const hn::Rebind<From, decltype(d)> loaded;
  const auto* const x = reinterpret_cast<const From*>(from);
  auto* const y = reinterpret_cast<To*>(to);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto given = hn::LoadU(loaded, x + i);
    const auto number = hn::IfThenElseZero(hn::Eq(given, given), given);
    if constexpr (kIsWide && sizeof(From) == 4) {
      if (!cut_vector<To>(d, hn::PromoteTo(d, number), y + i)) break;
    } else {
      if (!cut_vector<To>(d, number, y + i)) break;
    }
  }
  return i;
}

// Bytes to truths, 0 or 1.
int64_t judge_bytes(const std::byte* from, std::byte* to, int64_t n) {
  const hn::ScalableTag<uint8_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, uint8_t{1});
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Min(hn::LoadU(d, reinterpret_cast<const uint8_t*>(from) + i), one), d,
               reinterpret_cast<uint8_t*>(to) + i);
  }
  return i;
}

// The first elements, as many as are done in vectors by hand.
template <typename To, typename From>
HWY_INLINE int64_t cast_vectors(const std::byte* x, std::byte* y, int64_t n) {
  constexpr bool kFromByte = sizeof(Stored<From>) == 1, kToByte = sizeof(Stored<To>) == 1;
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> &&
                (sizeof(To) <= 4 || kCutsByMantissa)) {
    return cut_floats<To, From>(x, y, n);
  } else if constexpr (kFromByte && kToByte &&
                       (std::is_same_v<From, Truth> || std::is_same_v<To, Truth>)) {
    return judge_bytes(x, y, n);
  }
  return 0;
}

// Nothing overlaps, which a compiler cannot know of bytes.
template <typename To, typename From>
void cast_rest(const std::byte* __restrict x, std::byte* __restrict y, int64_t n) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Stored<To>));
  for (int64_t i = 0; i < n; ++i) {
    const auto value = convert<To, From>(element_at<Stored<From>>(x, i));
    std::memcpy(y + i * kSize, &value, sizeof value);
  }
}

template <typename To, typename From>
void cast_as(const std::byte* x, std::byte* y, int64_t n) {
  constexpr auto kFrom = static_cast<int64_t>(sizeof(Stored<From>));
  constexpr auto kTo = static_cast<int64_t>(sizeof(Stored<To>));
  for (int64_t at = 0; at < n;) {  // what does not go in vectors by hand, and what is behind it
    at += cast_vectors<To, From>(x + at * kFrom, y + at * kTo, n - at);
    const int64_t count = std::min(kTypedStep, n - at);
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, int64_t>) {
      // What is cut to an int64 is widened first: both at once do not become vectors.
      alignas(8) std::byte widened[kTypedStep * 8];
      cast_rest<double, float>(x + at * kFrom, widened, count);
      cast_rest<To, double>(widened, y + at * kTo, count);
    } else {
      cast_rest<To, From>(x + at * kFrom, y + at * kTo, count);
    }
    at += count;
  }
}

// f(T{}) with the C++ type of a plain type wider than two bytes of float.
template <class F>
HWY_INLINE void with_wide_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI64:
      return f(int64_t{});
    default:
      LUMEN_CHECK(dtype == DType::kBool);
      return f(Truth{});
  }
}

void cast_wide(DType from, const std::byte* x, DType to, std::byte* y, int64_t n) {
  with_wide_type(from, [&](auto source) {
    with_wide_type(to, [&](auto target) { cast_as<decltype(target), decltype(source)>(x, y, n); });
  });
}

// --- Arithmetic ----------------------------------------------------------------------------------

// Integers wrap, which only unsigned ones do by themselves.
template <typename T, bool = std::is_integral_v<T>>
struct Wrapping {
  using type = std::make_unsigned_t<T>;
};
template <typename T>
struct Wrapping<T, false> {
  using type = T;
};
template <typename T>
HWY_INLINE auto wrapping(T x) {
  return static_cast<typename Wrapping<T>::type>(x);
}

template <typename T>
HWY_INLINE T negated(T x) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(0 - wrapping(x));
  return -x;
}
template <typename T>
HWY_INLINE T magnitude(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(x);
  return x < 0 ? negated(x) : x;
}
// NaN if either is.
template <typename T>
HWY_INLINE T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return ((a != a) | (b != b)) ? a + b : a < b ? b : a;
  return a < b ? b : a;
}
template <typename T>
HWY_INLINE T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return ((a != a) | (b != b)) ? a + b : b < a ? b : a;
  return b < a ? b : a;
}

// y[i] = f(i) through a buffer that nothing else can overlap.
template <typename R, class F>
HWY_INLINE void write_each(int64_t n, std::byte* y, const F& f) {
  R result[kTypedChunkBytes / sizeof(R)];
  for (int64_t i = 0; i < n; ++i) result[i] = f(i);
  std::memcpy(y, result, static_cast<size_t>(n) * sizeof(R));
}

// By double, which holds both and their rest: the quotient of |x| < 2^52 is cut to what it is, as
// it lies 1 / |y| or more below the next whole number. The lowest int32 by −1 wraps.
template <TypedOp kOp, typename T>
HWY_INLINE T divide_in_double(T x, T y) {
  const auto a = static_cast<double>(x), given = static_cast<double>(y);
  const double b = given == 0 ? 1 : given, cut = std::trunc(a / b), rest = a - cut * b;
  const double down = kOp != TypedOp::kRest && rest * b < 0 ? 1 : 0;
  double result = kOp == TypedOp::kFloorQuotient ? cut - down : rest + down * b;
  result = given == 0 ? 0 : result;
  if constexpr (sizeof(T) == 8) return static_cast<T>(result);
  result = result > 0x1.fffffffcp30 ? -0x1p31 : result;
  return static_cast<T>(static_cast<int32_t>(result));
}

template <TypedOp kOp, typename T>
void divide(const std::byte* a, const std::byte* b, int64_t n, std::byte* y) {
  const auto at = [](const std::byte* x, int64_t i) HWY_ATTR { return element_at<T>(x, i); };
  if constexpr (sizeof(T) == 8) {
    T bits = 0;
    for (int64_t i = 0; i < n; ++i)
      bits |= (at(a, i) ^ at(a, i) >> 63) | (at(b, i) ^ at(b, i) >> 63);
    if (bits >> 52 != 0) {
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR {
        const T x = at(a, i), by = at(b, i);
        return kOp == TypedOp::kRest        ? integer_remainder(x, by)
               : kOp == TypedOp::kFloorRest ? floor_modulo(x, by)
                                            : floor_quotient(x, by);
      });
    }
  }
  write_each<T>(n, y,
                [=](int64_t i) HWY_ATTR { return divide_in_double<kOp>(at(a, i), at(b, i)); });
}

template <typename T>
void compute_as(TypedOp op, const std::byte* const* in, int64_t n, std::byte* y) {
  const std::byte *const a = in[0], *const b = in[1], *const c = in[2];
  const auto at = [](const std::byte* x, int64_t i) HWY_ATTR { return element_at<T>(x, i); };
  switch (op) {
    case TypedOp::kAdd:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR {
        return static_cast<T>(wrapping(at(a, i)) + wrapping(at(b, i)));
      });
    case TypedOp::kSubtract:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR {
        return static_cast<T>(wrapping(at(a, i)) - wrapping(at(b, i)));
      });
    case TypedOp::kMultiply:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR {
        return static_cast<T>(wrapping(at(a, i)) * wrapping(at(b, i)));
      });
    case TypedOp::kDivide:
      if constexpr (std::is_floating_point_v<T>) {
        write_each<T>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i) / at(b, i); });
      }
      return;
    case TypedOp::kRest:
      if constexpr (std::is_integral_v<T>) divide<TypedOp::kRest, T>(a, b, n, y);
      return;
    case TypedOp::kFloorRest:
      if constexpr (std::is_integral_v<T>) divide<TypedOp::kFloorRest, T>(a, b, n, y);
      return;
    case TypedOp::kFloorQuotient:
      if constexpr (std::is_integral_v<T>) divide<TypedOp::kFloorQuotient, T>(a, b, n, y);
      return;
    case TypedOp::kNegate:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR { return negated(at(a, i)); });
    case TypedOp::kMagnitude:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR { return magnitude(at(a, i)); });
    case TypedOp::kSign:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR {
        return static_cast<T>((0 < at(a, i)) - (at(a, i) < 0));
      });
    case TypedOp::kMaximum:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR { return larger(at(a, i), at(b, i)); });
    case TypedOp::kMinimum:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR { return smaller(at(a, i), at(b, i)); });
    case TypedOp::kClamp:
      return write_each<T>(
          n, y, [=](int64_t i) HWY_ATTR { return smaller(larger(at(a, i), at(b, i)), at(c, i)); });
    case TypedOp::kLess:
      return write_each<uint8_t>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i) < at(b, i); });
    case TypedOp::kEqual:
      return write_each<uint8_t>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i) == at(b, i); });
    case TypedOp::kWhere:
      return write_each<T>(n, y, [=](int64_t i) HWY_ATTR {
        return element_at<uint8_t>(a, i) != 0 ? at(b, i) : at(c, i);
      });
    case TypedOp::kRelu:
      return write_each<T>(n, y,
                           [=](int64_t i) HWY_ATTR { return at(a, i) < 0 ? T{0} : at(a, i); });
    default:
      break;
  }
  LUMEN_CHECK(!"an operation");
}

// Of truth values: what the same operation of 0 and 1 gives is true where it is not 0.
void compute_truths(TypedOp op, const std::byte* const* in, int64_t n, std::byte* y) {
  using Byte = uint8_t;  // 0 or 1: vectors of bool are not made
  const std::byte *const a = in[0], *const b = in[1], *const c = in[2];
  const auto at = [](const std::byte* x, int64_t i)
                      HWY_ATTR { return static_cast<Byte>(element_at<Byte>(x, i) != 0); };
  const auto opposite = [=](const std::byte* x, int64_t i)
                            HWY_ATTR { return static_cast<Byte>(element_at<Byte>(x, i) == 0); };
  switch (op) {
    case TypedOp::kAdd:
    case TypedOp::kMaximum:
      return write_each<Byte>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i) | at(b, i); });
    case TypedOp::kMultiply:
    case TypedOp::kMinimum:
    case TypedOp::kFloorQuotient:
      return write_each<Byte>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i) & at(b, i); });
    case TypedOp::kRest:
    case TypedOp::kFloorRest:
      return write_each<Byte>(n, y, [](int64_t) HWY_ATTR { return Byte{0}; });
    case TypedOp::kSubtract:
      return write_each<Byte>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i) ^ at(b, i); });
    case TypedOp::kEqual:
      return write_each<Byte>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i) ^ opposite(b, i); });
    case TypedOp::kLess:
      return write_each<Byte>(n, y, [=](int64_t i) HWY_ATTR { return opposite(a, i) & at(b, i); });
    case TypedOp::kClamp:
      return write_each<Byte>(n, y,
                              [=](int64_t i) HWY_ATTR { return (at(a, i) | at(b, i)) & at(c, i); });
    case TypedOp::kNegate:
    case TypedOp::kMagnitude:
    case TypedOp::kSign:
    case TypedOp::kRelu:
      return write_each<Byte>(n, y, [=](int64_t i) HWY_ATTR { return at(a, i); });
    case TypedOp::kWhere:
      return write_each<Byte>(n, y, [=](int64_t i) HWY_ATTR {
        return (at(a, i) & at(b, i)) | (opposite(a, i) & at(c, i));
      });
    default:
      break;
  }
  LUMEN_CHECK(!"an operation");
}

void compute_any(TypedOp op, DType dtype, const std::byte* const* in, int64_t n, std::byte* y) {
  switch (dtype) {
    case DType::kI8:
      return compute_as<int8_t>(op, in, n, y);
    case DType::kU8:
      return compute_as<uint8_t>(op, in, n, y);
    case DType::kI32:
      return compute_as<int32_t>(op, in, n, y);
    case DType::kI64:
      return compute_as<int64_t>(op, in, n, y);
    case DType::kBool:
      return compute_truths(op, in, n, y);
    default:
      LUMEN_CHECK(dtype == DType::kF64);
      return compute_as<double>(op, in, n, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(cast_wide);
HWY_EXPORT(compute_any);

namespace {

bool is_half(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

void cast(DType from, const std::byte* x, DType to, std::byte* y, int64_t n) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(cast_wide);
  if (!is_half(from) && !is_half(to)) return kernel(from, x, to, y, n);
  constexpr int64_t kStep = 4 * kTypedStep;
  float values[kStep];
  auto* const bytes = reinterpret_cast<std::byte*>(values);
  for (int64_t at = 0; at < n; at += kStep) {
    const int64_t count = std::min(kStep, n - at);
    const std::byte* const source = x + at * info(from).block_bytes;
    std::byte* const target = y + at * info(to).block_bytes;
    if (is_half(from)) {
      to_float(from, source, values, count);
    } else {
      kernel(from, source, DType::kF32, bytes, count);
    }
    if (is_half(to)) {
      from_float(to, values, target, count);
    } else {
      kernel(DType::kF32, bytes, to, target, count);
    }
  }
}

void compute_typed(TypedOp op, DType dtype, const std::byte* const* in, int64_t n, std::byte* y) {
  HWY_DYNAMIC_DISPATCH(compute_any)(op, dtype, in, n, y);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
