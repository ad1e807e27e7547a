#include "lib/kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// (a, b) → (a cos − b sin, b cos + a sin), sin times `sign`, for the pairs of one head row; y may
// be x.
void rotate_half_split(const float* x, const float* cos, const float* sin, float sign, size_t half,
                       float* y) {
  const hn::ScalableTag<float> d;
  const auto signs = hn::Set(d, sign);
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + half + i);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::Mul(hn::LoadU(d, sin + i), signs);
    hn::StoreU(hn::MulSub(a, c, hn::Mul(b, s)), d, y + i);
    hn::StoreU(hn::MulAdd(b, c, hn::Mul(a, s)), d, y + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i], s = sin[i] * sign;
    y[i] = a * cos[i] - b * s;
    y[half + i] = b * cos[i] + a * s;
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
  const auto kernel = args.interleaved ? HWY_DYNAMIC_DISPATCH(rotate_interleaved)
                                       : HWY_DYNAMIC_DISPATCH(rotate_half_split);
  const float sign = args.inverse ? -1.0f : 1.0f;
  const int64_t row_elements = args.heads * args.head_dim;
  const int64_t rotated = 2 * args.half_dim;
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, row_elements));
  pool.parallel_for(args.batch * args.tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / args.tokens, t = row % args.tokens;
      const float* x = args.x + b * args.batch_stride + t * args.token_stride;
      const float* cos = args.cos_sin + b * args.cos_sin_batch_stride + t * rotated;
      float* y = args.y + row * row_elements;
      for (int64_t h = 0; h < args.heads; ++h, x += args.head_stride, y += args.head_dim) {
        kernel(x, cos, cos + args.half_dim, sign, static_cast<size_t>(args.half_dim), y);
        if (x != y && rotated < args.head_dim) {
          std::memcpy(y + rotated, x + rotated,
                      static_cast<size_t>(args.head_dim - rotated) * sizeof(float));
        }
      }
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
