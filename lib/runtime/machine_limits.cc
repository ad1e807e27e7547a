#include "lib/runtime/machine_limits.h"

#include <algorithm>

#include "lib/base/clock.h"
#include "lib/kernels/peak.h"
#include "lib/tensor/allocator.h"

namespace lumen::runtime {
namespace {

constexpr int kTries = 7;

}  // namespace

double measure_read_bandwidth(ThreadPool& pool) {
  constexpr size_t kBytes = kBeyondCaches, kLine = 64;
  const Buffer memory = allocate(kBytes);
  // Each part is written by the thread that reads it: on that thread's memory.
  pool.parallel_for(kBytes, kLine, [&](int64_t begin, int64_t end, int) {
    std::fill(memory.data + begin, memory.data + end, std::byte{1});
  });
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    kernels::read_memory(pool, memory.data, kBytes);
    best = std::max(best, static_cast<double>(kBytes) / seconds_since(start));
  }
  return best;
}

double at_least_proven(double measured, double bytes, double times_per_second) {
  return bytes < kBeyondCaches ? measured : std::max(measured, bytes * times_per_second);
}

double measure_flops(ThreadPool& pool) {
  constexpr int64_t kRounds = 2'000'000;
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    const double operations = kernels::multiply_add(pool, kRounds);
    best = std::max(best, operations / seconds_since(start));
  }
  return best;
}

}  // namespace lumen::runtime
