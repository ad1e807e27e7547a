#include "lib/runtime/tool/machine_limits.h"

#include <limits>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/tensor/allocator.h"

namespace lumen::runtime {
namespace {

TEST_CASE("what is read from memory proves its bandwidth, what a cache may hold does not") {
  constexpr double kMeasured = 20e9, kModel = 1e9, kSmallModel = 25e6;
  CHECK(at_least_proven(kMeasured, kModel, 15) == kMeasured);
  CHECK(at_least_proven(kMeasured, kModel, 30) == 30e9);
  CHECK(at_least_proven(kMeasured, kSmallModel, 2000) == kMeasured);
}

TEST_CASE("where memory is short the bandwidth is measured with less, and that is said") {
  ThreadPool pool(1);
  const int64_t used = memory_stats().live_bytes;
  limit_memory(used + (40 << 20));
  const ReadBandwidth little = measure_read_bandwidth(pool);
  limit_memory(used + (7 << 20));
  lumen::testing::refusal(ErrorKind::kResource, [&] { measure_read_bandwidth(pool); });
  limit_memory(std::numeric_limits<int64_t>::max());
  CHECK(little.block_bytes == size_t{32} << 20);
  CHECK(little.bytes_per_second > 0);
  CHECK(describe_shortage(little) ==
        "note: memory is short: its bandwidth is measured with 32 MiB in place of 256 MiB, a "
        "part of which caches may hold\n");
  CHECK(describe_shortage({1, kBeyondCaches}).empty());
}

}  // namespace
}  // namespace lumen::runtime
