#include "lib/kernels/simd.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/testing.h"

using namespace lumen;
using namespace lumen::kernels;

TEST_CASE("the best supported SIMD target is chosen by default and after forcing it again") {
  const auto compiled = compiled_simd_targets();
  const auto supported = supported_simd_targets();
  REQUIRE(!supported.empty());
  const std::string chosen = chosen_simd_target();
  for (const auto& name : supported) {
    CHECK(std::count(compiled.begin(), compiled.end(), name) == 1);
    force_simd_target(name);
    CHECK(chosen_simd_target() == name);
  }
  force_simd_target(supported.front());
  CHECK(chosen_simd_target() == supported.front());
  force_simd_target(chosen);
}

TEST_CASE("an unknown SIMD target is a usage error that lists the known ones") {
  try {
    force_simd_target("mmx");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kUsage);
    CHECK(std::string(error.what()).find(compiled_simd_targets().front()) != std::string::npos);
  }
}
