#include "lib/runtime/tool/machine_limits.h"

#include <algorithm>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/kernels/peak.h"
#include "lib/tensor/allocator.h"

namespace lumen::runtime {
namespace {

constexpr int kTries = 7;
constexpr size_t kLeastBlock = size_t{8} << 20;

// kBeyondCaches bytes, or as large a part as there is.
Buffer largest_block() {
  for (size_t bytes = kBeyondCaches;; bytes /= 2) {
    try {
      return allocate(bytes);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kResource || bytes <= kLeastBlock) throw;
    }
  }
}

}  // namespace

ReadBandwidth measure_read_bandwidth(ThreadPool& pool) {
  constexpr size_t kLine = 64;
  const Buffer memory = largest_block();
  // Each part is written by the thread that reads it: on that thread's memory.
  pool.parallel_for(static_cast<int64_t>(memory.bytes), kLine,
                    [&](int64_t begin, int64_t end, int) {
                      std::fill(memory.data + begin, memory.data + end, std::byte{1});
                    });
  ReadBandwidth best{0, memory.bytes};
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    kernels::read_memory(pool, memory.data, memory.bytes);
    best.bytes_per_second =
        std::max(best.bytes_per_second, static_cast<double>(memory.bytes) / seconds_since(start));
  }
  return best;
}

std::string describe_shortage(const ReadBandwidth& measured) {
  if (measured.block_bytes >= kBeyondCaches) return "";
  return str("note: memory is short: its bandwidth is measured with ",
             human_bytes(measured.block_bytes), " in place of ", human_bytes(kBeyondCaches),
             ", a part of which caches may hold\n");
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
