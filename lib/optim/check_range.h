// The check that options of optimizers and schedules share.
#pragma once

#include <cmath>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::optim {

// Throws Error(kMalformed) unless low ≤ value ≤ high; an infinite `high` is no bound. `what` is
// "optimizer" or "schedule", `name` that of the option.
inline void check_range(const char* what, const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return;
  fail(ErrorKind::kMalformed, what, ": ", name, " is ", value, ", expected ", low,
       std::isinf(high) ? str(" or more") : str(" to ", high));
}

}  // namespace lumen::optim
