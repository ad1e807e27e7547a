#include "lib/kernels/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lib/kernels/quantize_blocks.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/piece-inl.h"
#include "lib/kernels/weights/quant_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;

// Runs vectors(i) for whole vectors and tail(i) for what is left.
template <class Vectors, class Tail>
HWY_INLINE void for_each_vector(int64_t n, Vectors vectors, Tail tail) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(FloatTag()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) vectors(i);
  for (; i < n; ++i) tail(i);
}

void half_to_float_row(const uint16_t* x, float* y, int64_t n) {
  const FloatTag d;
  for_each_vector(
      n, [&](int64_t i) HWY_ATTR { hn::StoreU(load_half(d, x + i), d, y + i); },
      [&](int64_t i) HWY_ATTR { y[i] = load_f16(x + i); });
}

void bfloat_to_float_row(const uint16_t* x, float* y, int64_t n) {
  const FloatTag d;
  for_each_vector(
      n, [&](int64_t i) HWY_ATTR { hn::StoreU(load_bfloat(d, x + i), d, y + i); },
      [&](int64_t i) HWY_ATTR { y[i] = to_float(bf16{load_bits(x + i)}); });
}

void half_to_float_rows(const uint16_t* x, int64_t x_stride, int64_t rows, int64_t n, float* y,
                        int64_t y_stride) {
  for (int64_t i = 0; i < rows; ++i) half_to_float_row(x + i * x_stride, y + i * y_stride, n);
}

void bfloat_to_float_rows(const uint16_t* x, int64_t x_stride, int64_t rows, int64_t n, float* y,
                          int64_t y_stride) {
  for (int64_t i = 0; i < rows; ++i) bfloat_to_float_row(x + i * x_stride, y + i * y_stride, n);
}

void float_to_half_row(const float* x, uint16_t* y, int64_t n) {
  const FloatTag d;
  for_each_vector(
      n, [&](int64_t i) HWY_ATTR { store_half(d, hn::LoadU(d, x + i), y + i); },
      [&](int64_t i) HWY_ATTR { store_bits(to_f16(x[i]).bits, y + i); });
}

void float_to_bfloat_row(const float* x, uint16_t* y, int64_t n) {
  const FloatTag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t pairs = 0;
  for (; pairs + 2 * lanes <= n; pairs += 2 * lanes) {
    store_bfloats(d, hn::LoadU(d, x + pairs), hn::LoadU(d, x + pairs + lanes), y + pairs);
  }
  x += pairs;
  y += pairs;
  n -= pairs;
  for_each_vector(
      n, [&](int64_t i) HWY_ATTR { store_bfloat(d, hn::LoadU(d, x + i), y + i); },
      [&](int64_t i) HWY_ATTR { store_bits(to_bf16(x[i]).bits, y + i); });
}

// y[i] = scale[i / kSub] · q[i] (+ min[i / kSub]) for one block, rounding after each operation.
template <class Format>
LUMEN_PIECE void scale_codes(const int8_t* q, const float* scale, const float* min, float* y) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<int32_t, decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> dq;
  for (int sub = 0; sub < kBlockOf<Format> / Format::kSub; ++sub) {
    const auto s = hn::Set(d, scale[sub]);
    for (size_t i = sub * Format::kSub; i < static_cast<size_t>(sub + 1) * Format::kSub;
         i += hn::Lanes(d)) {
      auto v = hn::Mul(s, hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dq, q + i))));
      if constexpr (Format::kHasMin) v = hn::Add(v, hn::Set(d, min[sub]));
      hn::StoreU(v, d, y + i);
    }
  }
}

template <class Format>
void quantized_to_float(const uint8_t* x, float* y, int64_t n) {
  int8_t q[kMaxBlock];
  float scale[kMaxSubBlocks], min[kMaxSubBlocks];
  for (int64_t i = 0; i < n; i += kBlockOf<Format>, x += kBytesOf<Format>) {
    Format::unpack(x, q, scale, min);
    scale_codes<Format>(q, scale, min, y + i);
  }
}

void quantized_to_float_row(DType dtype, const uint8_t* x, float* y, int64_t n) {
  with_format(dtype, [&](auto format) HWY_ATTR { quantized_to_float<decltype(format)>(x, y, n); });
}

// Rounds to nearest, halves away from zero: C's roundf, and what ggml's reference does.
template <class D>
HWY_INLINE hn::VFromD<D> round_away(D d, hn::VFromD<D> v) {
  const auto whole = hn::Trunc(v);
  const auto rest = hn::Abs(hn::Sub(v, whole));  // exact
  const auto one = hn::CopySignToAbs(hn::Set(d, 1.0f), v);
  return hn::Add(whole, hn::IfThenElseZero(hn::Ge(rest, hn::Set(d, 0.5f)), one));
}

void float_to_q8_0_row(const float* x, uint8_t* y, int64_t n) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int16_t, decltype(d)> di16;
  const hn::Rebind<int8_t, decltype(d)> di8;
  for (int64_t k = 0; k < n; k += 32, x += 32, y += kBytesOf<Q8_0>) {
    auto largest = hn::Zero(d);
    auto bad = hn::Zero(d);  // Σ 0 · x: NaN if any x is not finite, and then so is the scale
    for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
      const auto v = hn::LoadU(d, x + i);
      largest = hn::Max(largest, hn::Abs(v));
      bad = hn::MulAdd(v, hn::Zero(d), bad);
    }
    const float scale =
        hn::GetLane(hn::MaxOfLanes(d, largest)) / 127.0f + hn::GetLane(hn::SumOfLanes(d, bad));
    const float inverse = scale != 0 ? 1.0f / scale : 0.0f;
    const uint16_t bits = to_f16(scale).bits;
    std::memcpy(y, &bits, 2);
    for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
      const auto q = round_away(d, hn::Mul(hn::LoadU(d, x + i), hn::Set(d, inverse)));
      const auto narrow = hn::DemoteTo(di8, hn::DemoteTo(di16, hn::ConvertTo(di, q)));
      hn::StoreU(narrow, di8, reinterpret_cast<int8_t*>(y + 2 + i));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {

HWY_EXPORT(half_to_float_row);
HWY_EXPORT(bfloat_to_float_row);
HWY_EXPORT(half_to_float_rows);
HWY_EXPORT(bfloat_to_float_rows);
HWY_EXPORT(float_to_half_row);
HWY_EXPORT(float_to_bfloat_row);
HWY_EXPORT(quantized_to_float_row);
HWY_EXPORT(float_to_q8_0_row);

// Calls f with a null pointer to the C++ type of a plain type that has no kernel of its own.
template <class F>
void with_plain_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f(static_cast<double*>(nullptr));
    case DType::kI8:
      return f(static_cast<int8_t*>(nullptr));
    case DType::kU8:
      return f(static_cast<uint8_t*>(nullptr));
    case DType::kI32:
      return f(static_cast<int32_t*>(nullptr));
    case DType::kI64:
      return f(static_cast<int64_t*>(nullptr));
    case DType::kBool:
      return f(static_cast<bool*>(nullptr));
    default:
      LUMEN_CHECK(!"a type with a conversion");
  }
}

// Reads and writes go through memcpy: the pointers may be unaligned.
template <typename T>
void plain_to_float(const void* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    std::conditional_t<std::is_same_v<T, bool>, uint8_t, T> value;
    std::memcpy(&value, static_cast<const char*>(x) + i * sizeof value, sizeof value);
    y[i] = std::is_same_v<T, bool> ? static_cast<float>(value != 0) : static_cast<float>(value);
  }
}

template <typename T>
T saturate(float x) {
  if constexpr (std::is_same_v<T, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    return x;
  } else {
    if (std::isnan(x)) return 0;
    const float rounded = std::nearbyintf(x);
    // Both bounds are powers of two or small, hence exact in float; max + 1 is, max may not be.
    constexpr float kLow = static_cast<float>(std::numeric_limits<T>::min());
    constexpr float kEnd = static_cast<float>(std::numeric_limits<T>::max() / 2 + 1) * 2.0f;
    if (rounded < kLow) return std::numeric_limits<T>::min();
    if (rounded >= kEnd) return std::numeric_limits<T>::max();
    return static_cast<T>(rounded);
  }
}

template <typename T>
void float_to_plain(const float* x, void* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T value = saturate<T>(x[i]);
    std::memcpy(static_cast<char*>(y) + i * sizeof value, &value, sizeof value);
  }
}

// True if any of n words has all the bits of `mask`: an exponent of infinity or NaN.
template <typename Word>
bool any_all_ones(const void* x, int64_t n, Word mask) {
  Word found = 0;
  for (int64_t i = 0; i < n; ++i) {
    Word word;
    std::memcpy(&word, static_cast<const char*>(x) + i * sizeof word, sizeof word);
    found |= (word & mask) == mask;
  }
  return found != 0;
}

// Offsets of the f16 scales (and mins) inside a block; −1 where there is no second.
struct ScaleOffsets {
  int first, second;
};

ScaleOffsets scale_offsets(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return {0, -1};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108, -1};
    case DType::kQ6_K:
      return {208, -1};
    default:
      LUMEN_CHECK(!"a quantised type");
      return {};
  }
}

bool is_nonfinite_half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return (bits & 0x7C00) == 0x7C00;
}

// How far ahead of it what has_nonfinite_scale reads is fetched.
constexpr int64_t kCheckedAhead = 2048;

bool has_nonfinite_exponent(const uint8_t* x, int64_t n) {
  const uint8_t* const end = x + row_bytes(DType::kMXFP4, n);
  int found = 0;
  for (; x < end; x += info(DType::kMXFP4).block_bytes) {
    __builtin_prefetch(x + kCheckedAhead);
    found |= int{*x == kMxfp4None};
  }
  return found != 0;
}

bool has_nonfinite_scale(DType dtype, const uint8_t* x, int64_t n) {
  if (dtype == DType::kMXFP4) return has_nonfinite_exponent(x, n);
  const ScaleOffsets offsets = scale_offsets(dtype);
  const int second = std::max(offsets.first, offsets.second);  // the first again if there is one
  const int64_t step = info(dtype).block_bytes;
  const uint8_t* end = x + row_bytes(dtype, n);
  int found = 0;  // no branch per block: a row is short, and memory is what takes time
  for (; x < end; x += step) {
    __builtin_prefetch(x + kCheckedAhead);
    found |= int{is_nonfinite_half(x + offsets.first)} | int{is_nonfinite_half(x + second)};
  }
  return found != 0;
}

}  // namespace

void to_float(DType dtype, const void* x, float* y, int64_t n) {
  if (dtype == DType::kF32) {
    if (n > 0) std::memmove(y, x, n * sizeof(float));
  } else if (dtype == DType::kF16) {
    HWY_DYNAMIC_DISPATCH(half_to_float_row)(static_cast<const uint16_t*>(x), y, n);
  } else if (dtype == DType::kBF16) {
    HWY_DYNAMIC_DISPATCH(bfloat_to_float_row)(static_cast<const uint16_t*>(x), y, n);
  } else if (is_quantized(dtype)) {
    HWY_DYNAMIC_DISPATCH(quantized_to_float_row)(dtype, static_cast<const uint8_t*>(x), y, n);
  } else {
    with_plain_type(
        dtype, [&](auto* type) { plain_to_float<std::remove_pointer_t<decltype(type)>>(x, y, n); });
  }
}

void to_float_rows(DType dtype, const void* x, int64_t x_stride, int64_t rows, int64_t n, float* y,
                   int64_t y_stride) {
  const auto* const bits = static_cast<const uint16_t*>(x);
  if (dtype == DType::kF16) {
    HWY_DYNAMIC_DISPATCH(half_to_float_rows)(bits, x_stride, rows, n, y, y_stride);
  } else {
    HWY_DYNAMIC_DISPATCH(bfloat_to_float_rows)(bits, x_stride, rows, n, y, y_stride);
  }
}

void from_float(DType dtype, const float* x, void* y, int64_t n) {
  if (dtype == DType::kF32) {
    if (n > 0) std::memmove(y, x, n * sizeof(float));
  } else if (dtype == DType::kF16) {
    HWY_DYNAMIC_DISPATCH(float_to_half_row)(x, static_cast<uint16_t*>(y), n);
  } else if (dtype == DType::kBF16) {
    HWY_DYNAMIC_DISPATCH(float_to_bfloat_row)(x, static_cast<uint16_t*>(y), n);
  } else if (dtype == DType::kQ8_0) {
    HWY_DYNAMIC_DISPATCH(float_to_q8_0_row)(x, static_cast<uint8_t*>(y), n);
  } else if (can_quantize(dtype)) {
    quantize_blocks(dtype, x, y, n);
  } else {
    with_plain_type(
        dtype, [&](auto* type) { float_to_plain<std::remove_pointer_t<decltype(type)>>(x, y, n); });
  }
}

void from_float(ThreadPool& pool, DType dtype, const float* x, void* y, int64_t n) {
  constexpr int64_t kGrain = 4096;  // elements: whole blocks of every type
  pool.parallel_pieces(n, kGrain, kGrain, [&](int64_t begin, int64_t end, int) {
    from_float(dtype, x + begin, static_cast<std::byte*>(y) + row_bytes(dtype, begin), end - begin);
  });
}

bool has_nonfinite(DType dtype, const void* x, int64_t n) {
  switch (dtype) {
    case DType::kF32:
      return any_all_ones<uint32_t>(x, n, 0x7F800000u);
    case DType::kF64:
      return any_all_ones<uint64_t>(x, n, 0x7FF0000000000000u);
    case DType::kF16:
      return any_all_ones<uint16_t>(x, n, 0x7C00);
    case DType::kBF16:
      return any_all_ones<uint16_t>(x, n, 0x7F80);
    default:
      return is_quantized(dtype) && has_nonfinite_scale(dtype, static_cast<const uint8_t*>(x), n);
  }
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
