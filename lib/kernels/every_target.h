// For tests: runs a piece of code once per SIMD target of this CPU.
#pragma once

#include <string>

#include "lib/base/testing.h"
#include "lib/kernels/simd.h"

namespace lumen::kernels {

// Calls body() with dispatch restricted to each supported target in turn, best last so that what
// follows runs on it. Failures name the target.
template <class Body>
void on_every_target(Body&& body) {
  auto targets = supported_simd_targets();
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    force_simd_target(*target);
    INFO("SIMD target " << *target);
    body();
  }
}

}  // namespace lumen::kernels
