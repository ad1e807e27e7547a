// Integer division and multiples, rounded up. For x ≥ 0, y > 0.
#pragma once

#include <cstdint>

namespace lumen {

constexpr int64_t divide_up(int64_t x, int64_t y) {
  return (x + y - 1) / y;
}

constexpr int64_t round_up(int64_t x, int64_t multiple) {
  return divide_up(x, multiple) * multiple;
}

}  // namespace lumen
