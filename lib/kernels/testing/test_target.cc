// In every test program: LUMEN_SIMD chooses the instruction set of its tests as it does for the
// tools. Tests that go through all targets come back to the one that was chosen.
#include <cstdio>
#include <cstdlib>

#include "lib/base/error.h"
#include "lib/kernels/simd.h"

namespace lumen::kernels {
namespace {

[[maybe_unused]] const bool forced = [] {
  const char* target = std::getenv("LUMEN_SIMD");
  if (target == nullptr || *target == '\0') return false;
  try {
    force_simd_target(target);
  } catch (const Error& error) {
    std::fprintf(stderr, "LUMEN_SIMD: %s\n", error.what());
    std::exit(2);
  }
  return true;
}();

}  // namespace
}  // namespace lumen::kernels
