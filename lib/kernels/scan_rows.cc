#include "lib/kernels/scan_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lib/base/check.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/scan_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX2

constexpr bool kHasLines = true;

// A vector holds one number of each of kLanes lines.
constexpr int kLanes = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
constexpr int kGroups = kScanLines / kLanes;
using Floats = hn::FixedTag<float, kLanes>;
using Doubles = hn::FixedTag<double, kLanes>;
using Four = hn::FixedTag<float, 4>;
using FloatVec = hn::Vec<Floats>;
using DoubleVec = hn::Vec<Doubles>;

// Numbers of a line that are taken at once: a line of cache, as lines that are a power of two apart
// have few places there.
constexpr int kColumns = 16;

// Four rows of each 128 bits become four columns, and back.
HWY_INLINE void turn(FloatVec (&v)[4]) {
  const Floats d;
  const FloatVec even = hn::InterleaveLower(d, v[0], v[2]);
  const FloatVec odd = hn::InterleaveLower(d, v[1], v[3]);
  const FloatVec even2 = hn::InterleaveUpper(d, v[0], v[2]);
  const FloatVec odd2 = hn::InterleaveUpper(d, v[1], v[3]);
  v[0] = hn::InterleaveLower(d, even, odd);
  v[1] = hn::InterleaveUpper(d, even, odd);
  v[2] = hn::InterleaveLower(d, even2, odd2);
  v[3] = hn::InterleaveUpper(d, even2, odd2);
}

// columns[c] = number at + c of kLanes lines.
HWY_INLINE void load_columns(const float* const* lines, int64_t at, FloatVec (&columns)[kColumns]) {
  const Four four;
  HWY_UNROLL(4)
  for (int c = 0; c < kColumns; c += 4) {
    FloatVec rows[4];
    HWY_UNROLL(4)
    for (int l = 0; l < 4; ++l) {
#if HWY_TARGET <= HWY_AVX3
      rows[l] = hn::Combine(Floats(), hn::LoadU(four, lines[l + 4] + at + c),
                            hn::LoadU(four, lines[l] + at + c));
#else
      rows[l] = hn::LoadU(four, lines[l] + at + c);
#endif
    }
    turn(rows);
    HWY_UNROLL(4)
    for (int l = 0; l < 4; ++l) columns[c + l] = rows[l];
  }
}

HWY_INLINE void store_columns(const FloatVec (&columns)[kColumns], int64_t at,
                              float* const* lines) {
  const Four four;
  FloatVec rows[4][4];
  HWY_UNROLL(4)
  for (int c = 0; c < 4; ++c) {
    HWY_UNROLL(4)
    for (int l = 0; l < 4; ++l) rows[c][l] = columns[4 * c + l];
    turn(rows[c]);
  }
  HWY_UNROLL(4)
  for (int l = 0; l < 4; ++l) {
    HWY_UNROLL(4)
    for (int c = 0; c < 4; ++c) {
#if HWY_TARGET <= HWY_AVX3
      hn::StoreU(hn::LowerHalf(rows[c][l]), four, lines[l] + at + 4 * c);
      hn::StoreU(hn::UpperHalf(four, rows[c][l]), four, lines[l + 4] + at + 4 * c);
#else
      hn::StoreU(rows[c][l], four, lines[l] + at + 4 * c);
#endif
    }
  }
}

// The last n % kColumns numbers of lines, where whole columns can be loaded and stored.
struct Tail {
  float numbers[kLanes][kColumns] = {};
  float* lines[kLanes];

  Tail() {
    for (int l = 0; l < kLanes; ++l) lines[l] = numbers[l];
  }
  void read(const float* const* from, int64_t at, int64_t count) {
    for (int l = 0; l < kLanes; ++l) {
      std::memcpy(numbers[l], from[l] + at, static_cast<size_t>(count) * sizeof(float));
    }
  }
  void write(int64_t at, int64_t count, float* const* to) const {
    for (int l = 0; l < kLanes; ++l) {
      std::memcpy(to[l] + at, numbers[l], static_cast<size_t>(count) * sizeof(float));
    }
  }
};

// each(at, count) for pieces of kColumns numbers of n, from the end if kReverse.
template <bool kReverse, class F>
HWY_INLINE void over_columns(int64_t n, const F& each) {
  const int64_t whole = n / kColumns * kColumns;
  if (!kReverse) {
    for (int64_t at = 0; at < whole; at += kColumns) each(at, int64_t{kColumns});
  }
  if (whole < n) each(whole, n - whole);
  if (kReverse) {
    for (int64_t at = whole - kColumns; at >= 0; at -= kColumns) each(at, int64_t{kColumns});
  }
}

// What a recurrence carries of kLanes lines: the value before and, from the end, its factor.
struct Carried {
  DoubleVec value, factor;
};

// The results of a piece in place of b (kProduct: of a). count ≤ kColumns, kColumns if kWhole.
template <Recurrence kKind, bool kReverse, bool kWhole>
HWY_INLINE void scan_columns(const FloatVec (&a)[kColumns], FloatVec (&b)[kColumns], int count,
                             bool is_first, Carried& carried) {
  const Doubles wide;
  const Floats d;
  DoubleVec value = carried.value, factor = carried.factor;
  const int end = kWhole ? kColumns : count;
  HWY_UNROLL(16)
  for (int k = 0; k < end; ++k) {
    const int c = kReverse ? end - 1 - k : k;
    const DoubleVec own = hn::PromoteTo(wide, b[c]);
    const DoubleVec from_a = kKind == Recurrence::kLinear ? hn::PromoteTo(wide, a[c]) : own;
    if (k == 0 && is_first) {
      value = own;
    } else if constexpr (kKind == Recurrence::kSum) {
      value = hn::Add(value, own);
    } else {
      const DoubleVec product =
          hn::Mul(kReverse && kKind == Recurrence::kLinear ? factor : from_a, value);
      value = hn::Add(product, kKind == Recurrence::kLinear ? own : hn::Zero(wide));
    }
    factor = from_a;
    b[c] = hn::DemoteTo(d, value);
  }
  carried = {value, factor};
}

template <Recurrence kKind, bool kReverse>
void scan_lines_as(const float* const* a, const float* const* b, int64_t n, float* const* y) {
  const float* const* const own = kKind == Recurrence::kProduct ? a : b;
  for (int g = 0; g < kGroups; ++g) {
    const int l = g * kLanes;
    Carried carried = {hn::Zero(Doubles()), hn::Zero(Doubles())};
    bool is_first = true;
    over_columns<kReverse>(n, [&](int64_t at, int64_t count) HWY_ATTR {
      FloatVec factors[kColumns], terms[kColumns];
      if (count == kColumns) {
        load_columns(own + l, at, terms);
        if constexpr (kKind == Recurrence::kLinear) load_columns(a + l, at, factors);
        scan_columns<kKind, kReverse, true>(factors, terms, kColumns, is_first, carried);
        store_columns(terms, at, y + l);
      } else {
        Tail tail;
        if constexpr (kKind == Recurrence::kLinear) {
          tail.read(a + l, at, count);
          load_columns(tail.lines, 0, factors);
        }
        tail.read(own + l, at, count);
        load_columns(tail.lines, 0, terms);
        scan_columns<kKind, kReverse, false>(factors, terms, static_cast<int>(count), is_first,
                                             carried);
        store_columns(terms, 0, tail.lines);
        tail.write(at, count, y + l);
      }
      is_first = false;
    });
  }
}

void scan_lines_kernel(Recurrence kind, bool reverse, const float* const* a, const float* const* b,
                       int64_t n, float* const* y) {
  const auto scan = kind == Recurrence::kSum ? (reverse ? scan_lines_as<Recurrence::kSum, true>
                                                        : scan_lines_as<Recurrence::kSum, false>)
                    : kind == Recurrence::kProduct
                        ? (reverse ? scan_lines_as<Recurrence::kProduct, true>
                                   : scan_lines_as<Recurrence::kProduct, false>)
                        : (reverse ? scan_lines_as<Recurrence::kLinear, true>
                                   : scan_lines_as<Recurrence::kLinear, false>);
  scan(a, b, n, y);
}

// What stands before each number in `before`, in place of x; count ≤ kColumns.
template <bool kWhole>
HWY_INLINE void products_before(FloatVec (&x)[kColumns], int count, bool is_first,
                                DoubleVec& product) {
  const Doubles wide;
  const Floats d;
  const int end = kWhole ? kColumns : count;
  HWY_UNROLL(16)
  for (int c = 0; c < end; ++c) {
    const DoubleVec factor = hn::PromoteTo(wide, x[c]);
    x[c] = hn::DemoteTo(d, product);
    product = is_first && c == 0 ? factor : hn::Add(hn::Mul(product, factor), hn::Zero(wide));
  }
}

// before[i] · what stands behind, in place of `before`.
template <bool kWhole>
HWY_INLINE void products_behind(const FloatVec (&x)[kColumns], int count, bool is_last,
                                DoubleVec& product, FloatVec (&before)[kColumns]) {
  const Doubles wide;
  const Floats d;
  const int end = kWhole ? kColumns : count;
  HWY_UNROLL(16)
  for (int k = 0; k < end; ++k) {
    const int c = end - 1 - k;
    const FloatVec behind = hn::DemoteTo(d, product);
    before[c] = is_last && c == 0 ? behind : hn::Add(hn::Mul(behind, before[c]), hn::Zero(d));
    product = hn::Add(hn::Mul(hn::PromoteTo(wide, x[c]), product), hn::Zero(wide));
  }
}

void product_gradient_lines_kernel(const float* const* x, const float* dy, int64_t n,
                                   float* const* y) {
  const Doubles wide;
  for (int g = 0; g < kGroups; ++g) {
    const int l = g * kLanes;
    DoubleVec product = hn::Set(wide, 1.0);
    over_columns<false>(n, [&](int64_t at, int64_t count) HWY_ATTR {
      FloatVec factors[kColumns];
      if (count == kColumns) {
        load_columns(x + l, at, factors);
        products_before<true>(factors, kColumns, at == 0, product);
        store_columns(factors, at, y + l);
        return;
      }
      Tail tail;
      tail.read(x + l, at, count);
      load_columns(tail.lines, 0, factors);
      products_before<false>(factors, static_cast<int>(count), at == 0, product);
      store_columns(factors, 0, tail.lines);
      tail.write(at, count, y + l);
    });
    product = hn::PromoteTo(wide, hn::LoadU(Floats(), dy + l));
    over_columns<true>(n, [&](int64_t at, int64_t count) HWY_ATTR {
      FloatVec factors[kColumns], before[kColumns];
      if (count == kColumns) {
        load_columns(y + l, at, before);
        load_columns(x + l, at, factors);
        products_behind<true>(factors, kColumns, at == 0, product, before);
        store_columns(before, at, y + l);
        return;
      }
      Tail tail;
      tail.read(x + l, at, count);
      load_columns(tail.lines, 0, factors);
      tail.read(y + l, at, count);
      load_columns(tail.lines, 0, before);
      products_behind<false>(factors, static_cast<int>(count), at == 0, product, before);
      store_columns(before, 0, tail.lines);
      tail.write(at, count, y + l);
    });
  }
}

#else

constexpr bool kHasLines = false;

void scan_lines_kernel(Recurrence, bool, const float* const*, const float* const*, int64_t,
                       float* const*) {
  LUMEN_CHECK(!"vectors of lines");
}
void product_gradient_lines_kernel(const float* const*, const float*, int64_t, float* const*) {
  LUMEN_CHECK(!"vectors of lines");
}

#endif

bool has_lines() {
  return kHasLines;
}

// each(d, wide, i) for vectors of numbers of `count`, at last of one number.
template <class F>
HWY_INLINE void over_row(int64_t count, const F& each) {
  const hn::ScalableTag<double> wide;
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) each(wide, i);
  for (; i < count; ++i) each(hn::CappedTag<double, 1>(), i);
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load_wide(D wide, const T* x) {
  const hn::Rebind<float, D> d;
  return hn::PromoteTo(wide, load_numbers(d, x));
}
template <class D>
HWY_INLINE void store_narrow(D wide, hn::Vec<D> v, float* y) {
  const hn::Rebind<float, D> d;
  hn::StoreU(hn::DemoteTo(d, v), d, y);
}

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D wide, const double* x) {
  return hn::LoadU(wide, x);
}
template <class D>
HWY_INLINE void store_narrow(D wide, hn::Vec<D> v, double* y) {
  hn::StoreU(v, wide, y);
}

template <Recurrence kKind, class T>
void scan_row(bool first, const T* a, const T* b, int64_t count, double* carry, T* y) {
  over_row(count, [=](auto wide, int64_t i) HWY_ATTR {
    const auto own = load_wide(wide, (kKind == Recurrence::kProduct ? a : b) + i);
    auto value = own;
    if (!first) {
      value = hn::LoadU(wide, carry + i);
      if constexpr (kKind == Recurrence::kSum) {
        value = hn::Add(value, own);
      } else if constexpr (kKind == Recurrence::kProduct) {
        value = hn::Add(hn::Mul(own, value), hn::Zero(wide));
      } else {
        value = hn::Add(hn::Mul(load_wide(wide, a + i), value), own);
      }
    }
    hn::StoreU(value, wide, carry + i);
    store_narrow(wide, value, y + i);
  });
}

template <Recurrence kKind>
void scan_row(bool first, const int64_t* __restrict a, const int64_t* __restrict b, int64_t count,
              int64_t* __restrict carry, int64_t* __restrict y) {
  const int64_t* const own = kKind == Recurrence::kProduct ? a : b;
  if (first) {
    std::copy_n(own, count, carry);
    std::copy_n(own, count, y);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = kKind == Recurrence::kSum ? wrap_add(carry[i], own[i])
                          : kKind == Recurrence::kProduct
                              ? wrap_mul(carry[i], own[i])
                              : wrap_add(wrap_mul(a[i], carry[i]), b[i]);
    carry[i] = value;
    y[i] = value;
  }
}

template <Recurrence kKind, class T, class C>
void scan_rows_as(bool first, const std::byte* a, int64_t a_step, const std::byte* b,
                  int64_t b_step, int64_t rows, int64_t count, C* carry, std::byte* y,
                  int64_t y_step) {
  for (int64_t r = 0; r < rows; ++r, a += a_step, b += b_step, y += y_step) {
    scan_row<kKind>(first && r == 0, reinterpret_cast<const T*>(a), reinterpret_cast<const T*>(b),
                    count, carry, reinterpret_cast<T*>(y));
  }
}

void scan_rows_kernel(Recurrence kind, DType dtype, bool first, const std::byte* a, int64_t a_step,
                      const std::byte* b, int64_t b_step, int64_t rows, int64_t count, void* carry,
                      std::byte* y, int64_t y_step) {
  const auto scan = [=](auto type, auto* carried) HWY_ATTR {
    using T = decltype(type);
    using C = std::remove_pointer_t<decltype(carried)>;
    (kind == Recurrence::kSum       ? scan_rows_as<Recurrence::kSum, T, C>
     : kind == Recurrence::kProduct ? scan_rows_as<Recurrence::kProduct, T, C>
                                    : scan_rows_as<Recurrence::kLinear, T, C>)(first, a, a_step, b,
                                                                               b_step, rows, count,
                                                                               carried, y, y_step);
  };
  if (dtype == DType::kF32) return scan(float{}, static_cast<double*>(carry));
  if (dtype == DType::kF64) return scan(double{}, static_cast<double*>(carry));
  LUMEN_CHECK(dtype == DType::kI64);
  scan(int64_t{}, static_cast<int64_t*>(carry));
}

// body(x) with x as numbers of its type.
template <class F>
HWY_INLINE auto with_numbers(DType dtype, const std::byte* x, const F& body) {
  if (dtype == DType::kF32) return body(reinterpret_cast<const float*>(x));
  if (dtype == DType::kBF16) return body(reinterpret_cast<const uint16_t*>(x));
  LUMEN_CHECK(dtype == DType::kF16);
  return body(reinterpret_cast<const HalfBits*>(x));
}

template <class T>
void multiply_rows_of(const T* x, int64_t stride, int64_t rows, int64_t count, double* carry) {
  constexpr int kRows = 8;
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    const T* const from = x + r * stride;
    over_row(count, [=](auto wide, int64_t i) HWY_ATTR {
      auto value = hn::LoadU(wide, carry + i);
      HWY_UNROLL(8)
      for (int k = 0; k < kRows; ++k) {
        value = hn::Mul(value, load_wide(wide, from + k * stride + i));
      }
      hn::StoreU(hn::Add(value, hn::Zero(wide)), wide, carry + i);
    });
  }
  for (; r < rows; ++r) {
    const T* const from = x + r * stride;
    over_row(count, [=](auto wide, int64_t i) HWY_ATTR {
      const auto value = hn::Mul(hn::LoadU(wide, carry + i), load_wide(wide, from + i));
      hn::StoreU(hn::Add(value, hn::Zero(wide)), wide, carry + i);
    });
  }
}

void multiply_rows_kernel(DType dtype, const std::byte* x, int64_t stride, int64_t rows,
                          int64_t count, double* carry) {
  with_numbers(dtype, x, [=](const auto* from) HWY_ATTR {
    multiply_rows_of(from, stride, rows, count, carry);
  });
}

template <class T>
double multiply_line_of(const T* x, int64_t n) {
  const hn::ScalableTag<double> wide;
  constexpr auto kWide = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<double>()));
  constexpr int64_t kVectors = kProductParts / kWide;
  hn::Vec<decltype(wide)> part[kVectors];
  HWY_UNROLL(16)
  for (int64_t v = 0; v < kVectors; ++v) part[v] = hn::Set(wide, 1.0);
  int64_t i = 0;
  for (; i + kProductParts <= n; i += kProductParts) {
    HWY_UNROLL(16)
    for (int64_t v = 0; v < kVectors; ++v) {
      part[v] = hn::Mul(part[v], load_wide(wide, x + i + v * kWide));
    }
  }
  HWY_ALIGN double parts[kProductParts];
  HWY_UNROLL(16)
  for (int64_t v = 0; v < kVectors; ++v) hn::Store(part[v], wide, parts + v * kWide);
  for (int64_t p = 0; i + p < n; ++p) {
    parts[p] *= hn::GetLane(load_wide(hn::CappedTag<double, 1>(), x + i + p));
  }
  for (int64_t half = kProductParts / 2; half > 0; half /= 2) {
    for (int64_t p = 0; p < half; ++p) parts[p] *= parts[p + half];
  }
  return n > 1 ? parts[0] + 0.0 : parts[0];
}

double multiply_line_kernel(DType dtype, const std::byte* x, int64_t n) {
  return with_numbers(dtype, x,
                      [=](const auto* from) HWY_ATTR { return multiply_line_of(from, n); });
}

void product_before_row_kernel(const float* x, int64_t count, double* carry, float* y) {
  over_row(count, [=](auto wide, int64_t i) HWY_ATTR {
    const auto value = hn::LoadU(wide, carry + i);
    const auto product = hn::Mul(load_wide(wide, x + i), value);
    hn::StoreU(hn::Add(product, hn::Zero(wide)), wide, carry + i);
    store_narrow(wide, value, y + i);
  });
}

void product_behind_row_kernel(const float* x, bool first_row, int64_t count, double* carry,
                               float* y) {
  over_row(count, [=](auto wide, int64_t i) HWY_ATTR {
    const hn::Rebind<float, decltype(wide)> d;
    const auto value = hn::LoadU(wide, carry + i);
    const auto behind = hn::DemoteTo(d, value);
    hn::StoreU(first_row ? behind : hn::Add(hn::Mul(behind, hn::LoadU(d, y + i)), hn::Zero(d)), d,
               y + i);
    const auto product = hn::Mul(load_wide(wide, x + i), value);
    hn::StoreU(hn::Add(product, hn::Zero(wide)), wide, carry + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(has_lines);
HWY_EXPORT(scan_lines_kernel);
HWY_EXPORT(multiply_line_kernel);
HWY_EXPORT(product_gradient_lines_kernel);
HWY_EXPORT(scan_rows_kernel);
HWY_EXPORT(multiply_rows_kernel);
HWY_EXPORT(product_before_row_kernel);
HWY_EXPORT(product_behind_row_kernel);

bool has_scan_lines() {
  return HWY_DYNAMIC_DISPATCH(has_lines)();
}

void scan_lines(Recurrence kind, bool reverse, const float* const* a, const float* const* b,
                int64_t n, float* const* y) {
  HWY_DYNAMIC_DISPATCH(scan_lines_kernel)(kind, reverse, a, b, n, y);
}

double multiply_line(DType dtype, const std::byte* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(multiply_line_kernel)(dtype, x, n);
}

void product_gradient_lines(const float* const* x, const float* dy, int64_t n, float* const* y) {
  HWY_DYNAMIC_DISPATCH(product_gradient_lines_kernel)(x, dy, n, y);
}

void scan_rows(Recurrence kind, DType dtype, bool first, const std::byte* a, int64_t a_step,
               const std::byte* b, int64_t b_step, int64_t rows, int64_t count, void* carry,
               std::byte* y, int64_t y_step) {
  HWY_DYNAMIC_DISPATCH(scan_rows_kernel)
  (kind, dtype, first, a, a_step, b, b_step, rows, count, carry, y, y_step);
}

void multiply_rows(DType dtype, const std::byte* x, int64_t stride, int64_t rows, int64_t count,
                   double* carry) {
  HWY_DYNAMIC_DISPATCH(multiply_rows_kernel)(dtype, x, stride, rows, count, carry);
}

void product_before_row(const float* x, int64_t count, double* carry, float* y) {
  HWY_DYNAMIC_DISPATCH(product_before_row_kernel)(x, count, carry, y);
}

void product_behind_row(const float* x, bool first_row, int64_t count, double* carry, float* y) {
  HWY_DYNAMIC_DISPATCH(product_behind_row_kernel)(x, first_row, count, carry, y);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
