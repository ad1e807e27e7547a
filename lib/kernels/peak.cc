#include "lib/kernels/peak.h"

#include <atomic>

#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Enough to hide the latency of two pipelines of multiply-adds; they fit 16 registers.
constexpr int kChains = 12;

// Returns the operations; the sum goes to `sink`, so that the work is not left out. Every chain
// starts with another number: of equal ones the compiler computes only one.
double multiply_add_rounds(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.5f), y = hn::Set(d, 1e-9f);
  hn::VFromD<decltype(d)> sums[kChains];
  HWY_UNROLL(12)
  for (int i = 0; i < kChains; ++i) sums[i] = hn::Set(d, *sink + static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) sums[i] = hn::MulAdd(sums[i], x, y);
  }
  HWY_UNROLL(12)
  for (int i = 1; i < kChains; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sums[0]));
  return 2.0 * static_cast<double>(rounds * kChains) * static_cast<double>(hn::Lanes(d));
}

uint64_t sum_words(const uint64_t* words, size_t count) {
  constexpr size_t kLine = 64 / sizeof(uint64_t);
  const hn::ScalableTag<uint64_t> d;
  const size_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    for (size_t k = 0; k < 4 * lanes; k += kLine) fetch_panel_ahead<1>(words + i + k);
    a = hn::Add(a, hn::LoadU(d, words + i));
    b = hn::Add(b, hn::LoadU(d, words + i + lanes));
    c = hn::Add(c, hn::LoadU(d, words + i + 2 * lanes));
    e = hn::Add(e, hn::LoadU(d, words + i + 3 * lanes));
  }
  uint64_t sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(multiply_add_rounds);
HWY_EXPORT(sum_words);

double multiply_add(ThreadPool& pool, int64_t rounds) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(multiply_add_rounds);
  std::atomic<double> operations{0};
  pool.run([&](int, int threads) {
    volatile float kept = 0.5f;  // of unknown value: nothing is computed in advance
    float value = kept;
    const double done = kernel(rounds, &value);
    kept = value;
    operations = done * threads;
  });
  return operations;
}

uint64_t read_memory(ThreadPool& pool, const std::byte* data, size_t bytes) {
  constexpr int64_t kLine = 8;  // words
  const auto kernel = HWY_DYNAMIC_DISPATCH(sum_words);
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  std::atomic<uint64_t> sum{0};
  pool.parallel_for(static_cast<int64_t>(bytes / sizeof(uint64_t)), kLine,
                    [&](int64_t begin, int64_t end, int) {
                      sum += kernel(words + begin, static_cast<size_t>(end - begin));
                    });
  return sum;
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
