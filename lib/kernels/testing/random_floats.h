// For tests: random numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/random.h"

namespace lumen::kernels {

// `count` normal numbers of this standard deviation.
inline std::vector<float> random_floats(Philox& random, int64_t count, double deviation = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(deviation * random.normal());
  return values;
}

}  // namespace lumen::kernels
