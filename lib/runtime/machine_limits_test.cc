#include "lib/runtime/machine_limits.h"

#include "lib/base/testing.h"

namespace lumen::runtime {
namespace {

TEST_CASE("what is read from memory proves its bandwidth, what a cache may hold does not") {
  constexpr double kMeasured = 20e9, kModel = 1e9, kSmallModel = 25e6;
  CHECK(at_least_proven(kMeasured, kModel, 15) == kMeasured);
  CHECK(at_least_proven(kMeasured, kModel, 30) == 30e9);
  CHECK(at_least_proven(kMeasured, kSmallModel, 2000) == kMeasured);
}

}  // namespace
}  // namespace lumen::runtime
