#include "lib/optim/outlier_norms.h"

#include <cmath>

#include "lib/base/testing.h"

namespace lumen::optim {
namespace {

// Norms of mean 2 and standard deviation 1.026 (20 of them).
void add_twenty(OutlierNorms& norms, double sigma) {
  for (int i = 0; i < 20; ++i) REQUIRE_FALSE(norms.add(i % 2 == 0 ? 1 : 3, sigma));
}

TEST_CASE("a norm far above those before it is an outlier, and does not become one of them") {
  OutlierNorms norms;
  add_twenty(norms, 3);
  const double limit = 2 + 3 * std::sqrt(20.0 / 19);
  const io::Json before = norms.state();
  for (int i = 0; i < 3; ++i) CHECK(norms.add(limit + 1e-9, 3));
  CHECK(norms.state() == before);
  CHECK_FALSE(norms.add(limit - 1e-9, 3));
  CHECK(norms.state() != before);
  CHECK_FALSE(norms.add(0, 3));  // far below is none
}

TEST_CASE("the first twenty norms are none, whatever they are") {
  OutlierNorms norms;
  for (int i = 0; i < 20; ++i) CHECK_FALSE(norms.add(std::pow(10, i), 1));
}

TEST_CASE("without a limit no norm is an outlier, and none is kept") {
  OutlierNorms norms;
  const io::Json before = norms.state();
  for (int i = 0; i < 30; ++i) CHECK_FALSE(norms.add(i == 29 ? 1e30 : 1, 0));
  CHECK(norms.state() == before);
}

TEST_CASE("gradient norms go on from their state, and nothing else is taken for one") {
  OutlierNorms norms;
  add_twenty(norms, 3);
  OutlierNorms onward;
  onward.load_state(io::Json::parse(norms.state().dump()));
  CHECK(onward.state() == norms.state());
  CHECK(onward.add(6, 3));
  for (const char* bad : {"{}", "[1, 2]", "[-1, 0, 0]", "[1.5, 0, 0]", "[1, \"a\", 0]",
                          "[1, 0, -1]", "[1, 0, 0, 0]"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(onward.load_state(io::Json::parse(bad)), Error);
  }
  CHECK(onward.state() == norms.state());
}

}  // namespace
}  // namespace lumen::optim
