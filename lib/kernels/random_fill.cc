#include "lib/kernels/random_fill.h"

#include <cmath>
#include <cstring>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/random_fill.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/philox-inl.h"
#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Two standard normal numbers from two words. No step may be fused: the bits are the same on every
// target.
HWY_INLINE void box_muller(WordVec a, WordVec b, FloatVec& first, FloatVec& second) {
  const Float d;
  const hn::RebindToSigned<Float> di;
  constexpr Rounding kTwice = Rounding::kTwice;
  const auto u = hn::Mul(hn::Add(bits24(a), hn::Set(d, 1.0f)), hn::Set(d, 0x1p-24f));
  FloatVec e, f;
  split_exponent(d, u, e, f);
  const auto rest = multiply_add<kTwice>(e, hn::Set(d, kLn2Low), log1p_rest<kTwice>(d, f));
  const auto log = multiply_add<kTwice>(e, hn::Set(d, kLn2High), hn::Add(f, rest));
  // u is at most 1; for 1 the logarithm is 0 exactly.
  const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0f), log));

  // The angle in turns is the nearest quarter plus an exact rest in [−1/8, 1/8).
  const auto turn = hn::BitCast(di, hn::ShiftRight<8>(b));
  const auto quarter = hn::ShiftRight<22>(hn::Add(turn, hn::Set(di, 1 << 21)));
  const auto beyond = hn::Sub(turn, hn::ShiftLeft<22>(quarter));
  const auto r = hn::Mul(hn::ConvertTo(d, beyond), hn::Set(d, 3.74507028e-7f));  // 2π / 2²⁴
  const auto z = hn::Mul(r, r);
  const auto sine = sin_unit<kTwice>(d, r, z), cosine = cos_unit<kTwice>(d, z);
  const auto one = hn::Set(di, 1);
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quarter, one), one));
  // cos: + − − + and sin: + + − − by quarter.
  const auto cos_sign = hn::ShiftLeft<30>(hn::AndNot(one, hn::Add(quarter, one)));
  const auto sin_sign = hn::ShiftLeft<30>(hn::AndNot(one, quarter));
  const auto sign_bit = hn::SignBit(d);
  const auto cos_bit = hn::And(hn::BitCast(d, cos_sign), sign_bit);
  const auto sin_bit = hn::And(hn::BitCast(d, sin_sign), sign_bit);
  first = hn::Mul(radius, hn::Xor(hn::IfThenElse(odd, sine, cosine), cos_bit));
  second = hn::Mul(radius, hn::Xor(hn::IfThenElse(odd, cosine, sine), sin_bit));
}

// For groups [begin, end), whose first element has index 0: f(words, at) with the words of elements
// at, at + 16, at + 32, at + 48 and those in the lanes after them.
template <class F>
HWY_INLINE void for_each_words(const RandomKey& key, int64_t begin, int64_t end, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Word()));
  for (int64_t group = begin; group < end; ++group) {
    for (int64_t lane = 0; lane < kCounters; lane += lanes) {
      WordVec words[4];
      philox(key, static_cast<uint64_t>(group * kCounters + lane), words);
      f(words, (group - begin) * kGroup + lane);
    }
  }
}

void uniform_groups(const RandomKey& key, int64_t begin, int64_t end, float low, float high,
                    float* y) {
  const Float d;
  const auto scale = hn::Set(d, 0x1p-24f), width = hn::Set(d, high - low), start = hn::Set(d, low);
  for_each_words(key, begin, end, [&](const WordVec(&words)[4], int64_t at) HWY_ATTR {
    for (int w = 0; w < 4; ++w) {
      const auto u = hn::Mul(bits24(words[w]), scale);
      hn::StoreU(multiply_add<Rounding::kTwice>(width, u, start), d, y + at + w * kCounters);
    }
  });
}

void normal_groups(const RandomKey& key, int64_t begin, int64_t end, float mean, float stddev,
                   float* y) {
  const Float d;
  const auto center = hn::Set(d, mean), width = hn::Set(d, stddev);
  for_each_words(key, begin, end, [&](const WordVec(&words)[4], int64_t at) HWY_ATTR {
    for (int w = 0; w < 4; w += 2) {
      FloatVec first, second;
      box_muller(words[w], words[w + 1], first, second);
      float* out = y + at + w * kCounters;
      hn::StoreU(multiply_add<Rounding::kTwice>(width, first, center), d, out);
      hn::StoreU(multiply_add<Rounding::kTwice>(width, second, center), d, out + kCounters);
    }
  });
}

void dropout_groups(const RandomKey& key, int64_t begin, int64_t end, DropoutRule rule,
                    const float* x, float* y) {
  const Float d;
  const auto threshold = hn::Set(d, rule.threshold), scale = hn::Set(d, rule.scale);
  for_each_words(key, begin, end, [&](const WordVec(&words)[4], int64_t at) HWY_ATTR {
    for (int w = 0; w < 4; ++w) {
      const int64_t i = at + w * kCounters;
      const auto factor = dropout_factor(words[w], threshold, scale);
      hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, y + i);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(uniform_groups);
HWY_EXPORT(normal_groups);
HWY_EXPORT(dropout_groups);

namespace {

constexpr int64_t kGroupSize = 64, kGroupsPerThread = 128;

// fill(begin, end, y) for ranges of whole groups of n elements, y being where `begin` goes, and for
// the partial last group through a buffer.
template <class Fill>
void fill_groups(ThreadPool& pool, int64_t n, float* y, const Fill& fill) {
  const int64_t groups = n / kGroupSize;
  pool.parallel_for(groups, kGroupsPerThread, [&](int64_t begin, int64_t end, int) {
    fill(begin, end, y + begin * kGroupSize);
  });
  if (n % kGroupSize == 0) return;
  float last[kGroupSize];
  fill(groups, groups + 1, last);
  std::memcpy(y + groups * kGroupSize, last, static_cast<size_t>(n % kGroupSize) * sizeof(float));
}

}  // namespace

void uniform_fill(ThreadPool& pool, const RandomKey& key, int64_t n, float low, float high,
                  float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(uniform_groups);
  fill_groups(pool, n, y, [&](int64_t begin, int64_t end, float* out) {
    kernel(key, begin, end, low, high, out);
  });
}

void normal_fill(ThreadPool& pool, const RandomKey& key, int64_t n, float mean, float stddev,
                 float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(normal_groups);
  fill_groups(pool, n, y, [&](int64_t begin, int64_t end, float* out) {
    kernel(key, begin, end, mean, stddev, out);
  });
}

void dropout(ThreadPool& pool, const RandomKey& key, int64_t n, double p, const float* x,
             float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(dropout_groups);
  const DropoutRule rule = dropout_rule(p);
  const int64_t rest = n % kGroupSize, whole = n - rest;
  float last[kGroupSize] = {};
  if (rest > 0) std::memcpy(last, x + whole, static_cast<size_t>(rest) * sizeof(float));
  fill_groups(pool, n, y, [&](int64_t begin, int64_t end, float* out) {
    const float* in = begin * kGroupSize == whole ? last : x + begin * kGroupSize;
    kernel(key, begin, end, rule, in, out);
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
