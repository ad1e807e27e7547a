// How far results of tests are from what is wanted. Private to tests.
#pragma once

#include <cmath>
#include <cstddef>

#include "lib/base/testing.h"

namespace lumen::testing {

// ‖got − want‖ / ‖want‖ of as many numbers.
template <class Got, class Want>
double relative_error(const Got& got, const Want& want) {
  REQUIRE(got.size() == want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double wanted = want[i];
    difference += std::pow(double{got[i]} - wanted, 2);
    norm += std::pow(wanted, 2);
  }
  return std::sqrt(difference / norm);
}

}  // namespace lumen::testing
