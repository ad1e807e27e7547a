#include "lib/runtime/tool/signals.h"

#include "lib/base/testing.h"

namespace lumen::runtime {

TEST_CASE("the end of the session is remembered, unless nohup lets it be ignored", "[signals]") {
  void (*const before)(int) = std::signal(SIGHUP, SIG_IGN);
  {
    const SignalWatch signals;
    std::raise(SIGHUP);
    CHECK(signals.termination() == 0);
    CHECK_FALSE(*signals.stop_flag());
  }
  std::signal(SIGHUP, SIG_DFL);
  {
    const SignalWatch signals;
    std::raise(SIGHUP);
    CHECK(signals.termination() == SIGHUP);
    CHECK(*signals.stop_flag());
  }
  std::signal(SIGHUP, before);
}

}  // namespace lumen::runtime
