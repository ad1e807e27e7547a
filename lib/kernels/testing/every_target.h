// For tests: runs a piece of code once per SIMD target of this CPU.
#pragma once

#include <string>

#include "lib/base/testing.h"
#include "lib/kernels/simd.h"

namespace lumen::kernels {

// Calls body() with dispatch restricted to each supported target in turn, the best last, and comes
// back to the one in use. Failures name the target. Without "amx", where products are made of
// bfloat16: see amx_product_test.cc.
template <class Body>
void on_every_target(Body&& body) {
  const std::string chosen = chosen_simd_target();
  const auto targets = supported_simd_targets();
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    if (*target == "amx") continue;
    force_simd_target(*target);
    INFO("SIMD target " << *target);
    body();
  }
  force_simd_target(chosen);
}

// The same on those targets for which `suits` is true; a skipped test that says `lack` if there are
// none.
template <class Body>
void on_targets_that(bool (*suits)(), const char* lack, Body&& body) {
  bool found = false;
  on_every_target([&] {
    if (!suits()) return;
    found = true;
    body();
  });
  if (!found) lumen::testing::skip(lack);
}

// The same on those that add products of bytes in one instruction (simd.h).
template <class Body>
void on_every_native_target(Body&& body) {
  on_targets_that(uses_native_dot, "this CPU has no dot products of bytes (VNNI, dotprod)", body);
}

}  // namespace lumen::kernels
