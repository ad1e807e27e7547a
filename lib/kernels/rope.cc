#include "lib/kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/base/check.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// (a, b) → (a cos − b sin, b cos + a sin), sin times `sign`, for the pairs of one head row from `i`
// on by whole vectors of D; returns the first pair that is left. y may be x.
template <class D, class From, class To>
HWY_INLINE size_t rotate_vectors(D d, const From* x, const float* cos, const float* sin, float sign,
                                 size_t i, size_t half, To* y) {
  const auto signs = hn::Set(d, sign);
  const size_t lanes = hn::Lanes(d);
  for (; i + lanes <= half; i += lanes) {
    const auto a = load_numbers(d, x + i);
    const auto b = load_numbers(d, x + half + i);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::Mul(hn::LoadU(d, sin + i), signs);
    store_numbers(d, hn::MulSub(a, c, hn::Mul(b, s)), y + i);
    store_numbers(d, hn::MulAdd(b, c, hn::Mul(a, s)), y + half + i);
  }
  return i;
}

template <class From, class To>
void rotate_halves(const From* x, const float* cos, const float* sin, float sign, size_t half,
                   To* y) {
  size_t i = rotate_vectors(hn::ScalableTag<float>(), x, cos, sin, sign, 0, half, y);
  // Single numbers take longer to round than to rotate.
  if constexpr (sizeof(From) + sizeof(To) < 2 * sizeof(float)) {
    i = rotate_vectors(hn::CappedTag<float, 8>(), x, cos, sin, sign, i, half, y);
  }
  for (; i < half; ++i) {
    const float a = number(x[i]), b = number(x[half + i]), s = sin[i] * sign;
    store_number(a * cos[i] - b * s, y + i);
    store_number(b * cos[i] + a * s, y + half + i);
  }
}

void rotate_half_split(const float* x, bool x_bf16, const float* cos, const float* sin, float sign,
                       size_t half, float* y, bool y_bf16) {
  const auto* const narrow_x = reinterpret_cast<const uint16_t*>(x);
  auto* const narrow_y = reinterpret_cast<uint16_t*>(y);
  if (x_bf16) {
    y_bf16 ? rotate_halves(narrow_x, cos, sin, sign, half, narrow_y)
           : rotate_halves(narrow_x, cos, sin, sign, half, y);
  } else {
    y_bf16 ? rotate_halves(x, cos, sin, sign, half, narrow_y)
           : rotate_halves(x, cos, sin, sign, half, y);
  }
}

void rotate_interleaved(const float* x, const float* cos, const float* sin, float sign, size_t half,
                        float* y) {
  const hn::ScalableTag<float> d;
  const auto signs = hn::Set(d, sign);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    hn::Vec<decltype(d)> a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::Mul(hn::LoadU(d, sin + i), signs);
    hn::StoreInterleaved2(hn::MulSub(a, c, hn::Mul(b, s)), hn::MulAdd(b, c, hn::Mul(a, s)), d,
                          y + 2 * i);
  }
  for (; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1], s = sin[i] * sign;
    y[2 * i] = a * cos[i] - b * s;
    y[2 * i + 1] = b * cos[i] + a * s;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(rotate_half_split);
HWY_EXPORT(rotate_interleaved);

namespace {

template <class Float>
Float* number_at(Float* x, bool bf16, int64_t offset) {
  return bf16 ? reinterpret_cast<Float*>(reinterpret_cast<uintptr_t>(x) + 2 * offset) : x + offset;
}

// What is not rotated.
void copy_rest(const float* x, bool x_bf16, int64_t begin, int64_t count, float* y, bool y_bf16) {
  x = number_at(x, x_bf16, begin);
  y = number_at(y, y_bf16, begin);
  if (x_bf16 == y_bf16) {
    std::memcpy(y, x, static_cast<size_t>(row_bytes(x_bf16 ? DType::kBF16 : DType::kF32, count)));
  } else if (x_bf16) {
    to_float(DType::kBF16, x, y, count);
  } else {
    from_float(DType::kBF16, x, y, count);
  }
}

}  // namespace

void rope_table(int64_t start, int64_t tokens, const float* inv_freq, int64_t half_dim,
                float attention_factor, float* cos_sin) {
  for (int64_t t = 0; t < tokens; ++t) {
    float* cos_row = cos_sin + t * 2 * half_dim;
    float* sin_row = cos_row + half_dim;
    const auto position = static_cast<double>(start + t);
    for (int64_t i = 0; i < half_dim; ++i) {
      // The product of a position below 2^29 and a float is exact in double.
      const double angle = position * static_cast<double>(inv_freq[i]);
      cos_row[i] = static_cast<float>(std::cos(angle) * attention_factor);
      sin_row[i] = static_cast<float>(std::sin(angle) * attention_factor);
    }
  }
}

void rope(ThreadPool& pool, const RopeArgs& args) {
  const bool x_bf16 = args.x_type == DType::kBF16, y_bf16 = args.y_type == DType::kBF16;
  LUMEN_CHECK(!args.interleaved || !(x_bf16 || y_bf16));
  const auto interleaved = HWY_DYNAMIC_DISPATCH(rotate_interleaved);
  const auto half_split = HWY_DYNAMIC_DISPATCH(rotate_half_split);
  const float sign = args.inverse ? -1.0f : 1.0f;
  const int64_t rotated = 2 * args.half_dim, rest = args.head_dim - rotated;
  const int64_t grain =
      std::max<int64_t>(1, 8192 / std::max<int64_t>(1, args.heads * args.head_dim));
  pool.parallel_for(args.batch * args.tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t b = at / args.tokens, t = at % args.tokens;
      const float* cos = args.cos_sin + b * args.cos_sin_batch_stride + t * rotated;
      for (int64_t h = 0; h < args.heads; ++h) {
        const int64_t from = b * args.batch_stride + t * args.token_stride + h * args.head_stride;
        const int64_t to = (at * args.heads + h) * args.head_dim;
        const float* const x = number_at(args.x, x_bf16, from);
        float* const y = number_at(args.y, y_bf16, to);
        const auto half = static_cast<size_t>(args.half_dim);
        if (args.interleaved) {
          interleaved(x, cos, cos + half, sign, half, y);
        } else {
          half_split(x, x_bf16, cos, cos + half, sign, half, y, y_bf16);
        }
        if (x != y && rest > 0) copy_rest(x, x_bf16, rotated, rest, y, y_bf16);
      }
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
