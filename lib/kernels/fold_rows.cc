#include "lib/kernels/fold_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lib/base/check.h"
#include "lib/kernels/scan_rows.h"
// Loops that the compiler makes vectors of, for SSE2 as for SSE4.
#define LUMEN_FURTHER_DISABLED_TARGETS HWY_SSE4
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/fold_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Types whose elements are not numbers as they stand: bytes that are true where they are not 0, and
// floats of 16 bits. Their elements are compared as int8 or int16.
struct Truth {
  using Bits = uint8_t;
  static HWY_INLINE uint8_t key(uint8_t bits) { return bits != 0; }
};
// In the order of the floats: both zeros are 0, every NaN is above all, or below with kNanLow.
template <int kInfinity, bool kNanLow>
struct Half {
  using Bits = int16_t;
  static HWY_INLINE int16_t key(int16_t bits) {
    const auto magnitude = static_cast<int16_t>(bits & 0x7fff);
    const auto number = static_cast<int16_t>(bits < 0 ? -magnitude : magnitude);
    return magnitude > kInfinity ? static_cast<int16_t>(kNanLow ? -0x7fff : 0x7fff) : number;
  }
};
template <bool kNanLow>
using Float16 = Half<0x7c00, kNanLow>;
template <bool kNanLow>
using Bfloat16 = Half<0x7f80, kNanLow>;

template <typename T>
struct StoredIn {
  using type = T;
};
template <typename T>
requires requires {
  typename T::Bits;
}
struct StoredIn<T> {
  using type = typename T::Bits;
};
template <typename T>
using Bits = typename StoredIn<T>::type;

// Element i of memory that may not be aligned, as it is compared.
template <typename T>
HWY_INLINE Bits<T> at(const std::byte* x, int64_t i) {
  Bits<T> value;
  std::memcpy(&value, x + i * static_cast<int64_t>(sizeof value), sizeof value);
  if constexpr (!std::is_same_v<T, Bits<T>>) return T::key(value);
  return value;
}
template <typename T>
HWY_INLINE void put(std::byte* y, int64_t i, T value) {
  std::memcpy(y + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

// --- Folds ---------------------------------------------------------------------------------------

template <Fold kFold, typename T>
using Carried =
    std::conditional_t<kFold == Fold::kMaximum || kFold == Fold::kMinimum, Bits<T>,
                       std::conditional_t<std::is_floating_point_v<Bits<T>>, double, int64_t>>;

template <Fold kFold, typename S>
HWY_INLINE S joined(S a, S b) {
  if constexpr (kFold == Fold::kMaximum) return a != a || b <= a ? a : b;
  if constexpr (kFold == Fold::kMinimum) return a != a || a <= b ? a : b;
  if constexpr (std::is_floating_point_v<S>) return kFold == Fold::kProduct ? a * b + 0 : a + b;
  return kFold == Fold::kSum ? wrap_add(a, b) : wrap_mul(a, b);
}

// What a fold takes of element i.
template <Fold kFold, typename T>
HWY_INLINE Carried<kFold, T> taken(const std::byte* x, int64_t i) {
  const auto value = static_cast<Carried<kFold, T>>(at<T>(x, i));
  return kFold == Fold::kSquareSum ? value * value : value;
}

template <Fold kFold, typename T>
void fold_rows_as(const std::byte* __restrict x, int64_t stride, int64_t rows, int64_t count,
                  std::byte* __restrict totals) {
  using S = Carried<kFold, T>;
  const auto take = [=](int64_t r, int64_t i)
                        HWY_ATTR { return taken<kFold, T>(x, r * stride + i); };
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    for (int64_t i = 0; i < count; ++i) {
      S total = joined<kFold>(at<S>(totals, i), take(r, i));
      total = joined<kFold>(total, take(r + 1, i));
      total = joined<kFold>(total, take(r + 2, i));
      put(totals, i, joined<kFold>(total, take(r + 3, i)));
    }
  }
  for (; r < rows; ++r) {
    for (int64_t i = 0; i < count; ++i) {
      put(totals, i, joined<kFold>(at<S>(totals, i), take(r, i)));
    }
  }
}

template <Fold kFold, typename T>
Carried<kFold, T> fold_line_of(const std::byte* x, int64_t n) {
  using S = Carried<kFold, T>;
  constexpr auto kSize = static_cast<int64_t>(sizeof(Bits<T>));
  S parts[kFoldParts];
  auto* const bytes = reinterpret_cast<std::byte*>(parts);
  const int64_t width = std::min(kFoldParts, n), rows = n / width;
  for (int64_t i = 0; i < width; ++i) {
    const auto value = taken<kFold, T>(x, i);
    parts[i] = kFold == Fold::kSum ? joined<kFold>(S{0}, value) : value;  // + 0 also of −0
  }
  fold_rows_as<kFold, T>(x + width * kSize, width, rows - 1, width, bytes);
  fold_rows_as<kFold, T>(x + rows * width * kSize, 0, 1, n - rows * width, bytes);
  if (width == kFoldParts) {
    HWY_UNROLL(8)
    for (int64_t half = kFoldParts / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) parts[i] = joined<kFold>(parts[i], parts[i + half]);
    }
    return parts[0];
  }
  for (int64_t left = width; left > 1;) {
    const int64_t half = (left + 1) / 2;
    for (int64_t i = half; i < left; ++i) {
      parts[i - half] = joined<kFold>(parts[i - half], parts[i]);
    }
    left = half;
  }
  return parts[0];
}

// f(T{}) with the C++ type of a type that is folded.
template <class F>
HWY_INLINE auto with_folded_type(DType dtype, const F& f) {
  switch (dtype) {
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

// f(T{}, fold as a constant).
template <class F>
HWY_INLINE void with_fold(Fold fold, DType dtype, const F& f) {
  with_folded_type(dtype, [&](auto type) HWY_ATTR {
    switch (fold) {
      case Fold::kSum:
        return f(type, std::integral_constant<Fold, Fold::kSum>());
      case Fold::kSquareSum:
        if constexpr (std::is_same_v<decltype(type), double>) {
          f(type, std::integral_constant<Fold, Fold::kSquareSum>());
        }
        return;
      case Fold::kProduct:
        return f(type, std::integral_constant<Fold, Fold::kProduct>());
      case Fold::kMaximum:
        return f(type, std::integral_constant<Fold, Fold::kMaximum>());
      case Fold::kMinimum:
        return f(type, std::integral_constant<Fold, Fold::kMinimum>());
    }
  });
}

void fold_rows_kernel(Fold fold, DType dtype, const std::byte* x, int64_t stride, int64_t rows,
                      int64_t count, std::byte* totals) {
  with_fold(fold, dtype, [=](auto type, auto which) HWY_ATTR {
    fold_rows_as<which(), decltype(type)>(x, stride, rows, count, totals);
  });
}

void fold_line_kernel(Fold fold, DType dtype, const std::byte* x, int64_t n, std::byte* total) {
  with_fold(fold, dtype, [=](auto type, auto which) HWY_ATTR {
    put(total, 0, fold_line_of<which(), decltype(type)>(x, n));
  });
}

// --- Where the largest is ------------------------------------------------------------------------

// Whether b comes before a.
template <bool kLeast, typename T>
HWY_INLINE bool is_better(T a, T b) {
  const bool beyond = kLeast ? b < a : a < b;
  if constexpr (std::is_floating_point_v<T>) return beyond | ((b != b) & (a == a));
  return beyond;
}

// Rows are numbered in a type as wide as the elements, as many at a time as it can.
template <typename T>
using Place = std::conditional_t<
    sizeof(Bits<T>) == 1, uint8_t,
    std::conditional_t<sizeof(Bits<T>) == 2, uint16_t,
                       std::conditional_t<sizeof(Bits<T>) == 4, uint32_t, uint64_t>>>;

template <bool kLeast, typename T>
void argmax_rows_as(const std::byte* x, int64_t stride, int64_t first, int64_t rows, int64_t count,
                    std::byte* best, int64_t* at_row) {
  using V = Bits<T>;
  constexpr Place<T> kNone = std::numeric_limits<Place<T>>::max();
  constexpr int64_t kStep = 256;
  constexpr auto kRows = static_cast<int64_t>(std::min<uint64_t>(kNone, uint64_t{1} << 62));
  for (int64_t c = 0; c < count; c += kStep) {
    const int64_t width = std::min(kStep, count - c);
    V values[kStep];
    Place<T> places[kStep];
    for (int64_t i = 0; i < width; ++i) values[i] = at<T>(best, c + i);
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      const int64_t taken = std::min(kRows, rows - begin);
      std::fill_n(places, width, kNone);
      for (int64_t r = 0; r < taken; ++r) {
        const std::byte* const row =
            x + ((begin + r) * stride + c) * static_cast<int64_t>(sizeof(V));
        const auto place = static_cast<Place<T>>(r);
        for (int64_t i = 0; i < width; ++i) {
          const V value = at<T>(row, i);
          const bool better = is_better<kLeast>(values[i], value);
          values[i] = better ? value : values[i];
          places[i] = better ? place : places[i];
        }
      }
      for (int64_t i = 0; i < width; ++i) {
        if (places[i] == kNone) continue;
        const int64_t row = begin + static_cast<int64_t>(places[i]);
        at_row[c + i] = first + row;
        std::memcpy(best + (c + i) * static_cast<int64_t>(sizeof(V)),
                    x + (row * stride + c + i) * static_cast<int64_t>(sizeof(V)), sizeof(V));
      }
    }
  }
}

template <bool kLeast, typename T>
void argmax_join_as(const std::byte* others, const int64_t* others_at, int64_t count,
                    std::byte* best, int64_t* at_row) {
  for (int64_t i = 0; i < count; ++i) {
    const auto a = at<T>(best, i), b = at<T>(others, i);
    const bool is_first = !is_better<kLeast>(b, a) && others_at[i] < at_row[i];
    if (!is_better<kLeast>(a, b) && !is_first) continue;
    std::memcpy(best + i * static_cast<int64_t>(sizeof a),
                others + i * static_cast<int64_t>(sizeof a), sizeof a);
    at_row[i] = others_at[i];
  }
}

// Index of the first of n elements that is `value`, or NaN if that is; there is one.
template <typename T>
int64_t find_element(const std::byte* x, int64_t n, Bits<T> value) {
  constexpr int64_t kStep = 64;
  const bool is_nan = value != value;
  const auto is_it = [=](int64_t i) HWY_ATTR {
    const auto v = at<T>(x, i);
    return (v == value) | (is_nan & (v != v));
  };
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    Place<T> hits = 0;
    for (int64_t l = 0; l < kStep; ++l) hits |= is_it(i + l) ? Place<T>{1} : Place<T>{0};
    if (hits != 0) break;
  }
  while (!is_it(i)) ++i;
  return i;
}

// A piece, which the caches hold, is searched if its best comes before what was found.
template <bool kLeast, typename T>
int64_t argmax_line_as(const std::byte* x, int64_t n) {
  constexpr int64_t kPiece = 4096;
  int64_t found = 0;
  Bits<T> best = {};
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const std::byte* const from = x + begin * static_cast<int64_t>(sizeof best);
    const int64_t length = std::min(kPiece, n - begin);
    const auto own = fold_line_of < kLeast ? Fold::kMinimum : Fold::kMaximum, T > (from, length);
    if (begin > 0 && !is_better<kLeast>(best, own)) continue;
    best = own;
    found = begin + find_element<T>(from, length, own);
  }
  return found;
}

// f(T{}, whether the least is looked for, as a constant).
template <class F>
HWY_INLINE auto with_compared_type(DType dtype, bool least, const F& f) {
  const auto with_order = [&](auto of_most, auto of_least) HWY_ATTR {
    return least ? f(of_least, std::true_type()) : f(of_most, std::false_type());
  };
  if (dtype == DType::kF32) return with_order(float{}, float{});
  if (dtype == DType::kF16) return with_order(Float16<false>{}, Float16<true>{});
  if (dtype == DType::kBF16) return with_order(Bfloat16<false>{}, Bfloat16<true>{});
  return with_folded_type(dtype, [&](auto type) HWY_ATTR { return with_order(type, type); });
}

void argmax_rows_kernel(DType dtype, bool least, const std::byte* x, int64_t stride, int64_t first,
                        int64_t rows, int64_t count, std::byte* best, int64_t* at_row) {
  with_compared_type(dtype, least, [=](auto type, auto is_least) HWY_ATTR {
    argmax_rows_as<is_least(), decltype(type)>(x, stride, first, rows, count, best, at_row);
  });
}
void argmax_join_kernel(DType dtype, bool least, const std::byte* others, const int64_t* others_at,
                        int64_t count, std::byte* best, int64_t* at_row) {
  with_compared_type(dtype, least, [=](auto type, auto is_least) HWY_ATTR {
    argmax_join_as<is_least(), decltype(type)>(others, others_at, count, best, at_row);
  });
}
int64_t argmax_line_kernel(DType dtype, bool least, const std::byte* x, int64_t n) {
  return with_compared_type(dtype, least, [=](auto type, auto is_least) HWY_ATTR {
    return argmax_line_as<is_least(), decltype(type)>(x, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(fold_rows_kernel);
HWY_EXPORT(fold_line_kernel);
HWY_EXPORT(argmax_rows_kernel);
HWY_EXPORT(argmax_join_kernel);
HWY_EXPORT(argmax_line_kernel);

DType carried_type(Fold fold, DType dtype) {
  if (fold == Fold::kMaximum || fold == Fold::kMinimum) return dtype;
  return is_float(dtype) ? DType::kF64 : DType::kI64;
}

namespace {

// Products of floats that float32 holds have kernels of their own.
bool is_short_product(Fold fold, DType dtype) {
  return fold == Fold::kProduct && is_float(dtype) && dtype != DType::kF64;
}

}  // namespace

void fold_rows(Fold fold, DType dtype, const std::byte* x, int64_t stride, int64_t rows,
               int64_t count, std::byte* totals) {
  if (is_short_product(fold, dtype)) {
    return multiply_rows(dtype, x, stride, rows, count, reinterpret_cast<double*>(totals));
  }
  HWY_DYNAMIC_DISPATCH(fold_rows_kernel)(fold, dtype, x, stride, rows, count, totals);
}

void fold_line(Fold fold, DType dtype, const std::byte* x, int64_t n, std::byte* total) {
  if (is_short_product(fold, dtype)) {
    const double product = multiply_line(dtype, x, n);
    std::memcpy(total, &product, sizeof product);
    return;
  }
  HWY_DYNAMIC_DISPATCH(fold_line_kernel)(fold, dtype, x, n, total);
}

void argmax_rows(DType dtype, bool least, const std::byte* x, int64_t stride, int64_t first,
                 int64_t rows, int64_t count, std::byte* best, int64_t* at) {
  HWY_DYNAMIC_DISPATCH(argmax_rows_kernel)(dtype, least, x, stride, first, rows, count, best, at);
}
void argmax_join(DType dtype, bool least, const std::byte* others, const int64_t* others_at,
                 int64_t count, std::byte* best, int64_t* at) {
  HWY_DYNAMIC_DISPATCH(argmax_join_kernel)(dtype, least, others, others_at, count, best, at);
}
int64_t argmax_line(DType dtype, bool least, const std::byte* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(argmax_line_kernel)(dtype, least, x, n);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
