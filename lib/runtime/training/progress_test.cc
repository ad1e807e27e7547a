#include "lib/runtime/training/progress.h"

#include "lib/base/testing.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;

}  // namespace

TEST_CASE("a narrow terminal shows step, loss and time left before anything else") {
  Progress::State state;
  state.step = 1250;
  state.share = 0.25;
  state.loss = 2.3026;
  state.lr = 3e-4;
  state.rate = 12345;
  const auto bar = [&](size_t columns) { return Progress::bar(state, 5000, 100, columns); };
  CHECK(bar(200) ==
        "[==========                              ] step 1250/5000  loss 2.3026  lr 3e-04  "
        "12,345 tok/s  ETA 5:00");
  CHECK(bar(74) == "step 1250/5000  loss 2.3026  lr 3e-04  12,345 tok/s  ETA 5:00");
  CHECK(bar(60) == "step 1250/5000  loss 2.3026  12,345 tok/s  ETA 5:00");
  CHECK(bar(50) == "step 1250/5000  loss 2.3026  ETA 5:00");
  CHECK(bar(36) == "step 1250  loss 2.3026  ETA 5:00");
  CHECK(bar(31) == "1250 2.3026 5:00");
  size_t shown = 0;
  for (size_t columns = 19; columns < 200; ++columns) {
    const std::string line = bar(columns);
    INFO(columns);
    CHECK(line.size() <= columns);
    CHECK(line.size() >= shown);  // more room never shows less
    shown = line.size();
    for (const char* part : {"1250", "2.3026", "5:00"}) CHECK(contains(line, part));
    CHECK(line.starts_with('[') == (columns >= 75));
  }
}

TEST_CASE("before the time left is known, and without a number of steps, nothing stands for them") {
  Progress::State state;
  state.step = 7;
  state.first_step = 6;
  state.loss = 0.5;
  CHECK(Progress::bar(state, 0, 1, 29) == "step 7  loss 0.5000");
  CHECK(Progress::bar(state, 0, 1, 18) == "7 0.5000");
  CHECK(Progress::bar(state, 0, 1, 5) == "7 0.5");
}

}  // namespace lumen::runtime
