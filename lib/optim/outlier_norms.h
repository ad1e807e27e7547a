// Which gradients are so much larger than those before them that their step is better left out.
#pragma once

#include <cstdint>

#include "lib/io/json.h"

namespace lumen::optim {

// Keeps mean and variance of gradient norms (Welford 1962), of the steps that were taken. Not
// thread-safe.
class OutlierNorms {
 public:
  // Whether `norm` lies more than `sigma` standard deviations above the mean of at least 20 norms
  // before it; if not, it becomes one of them. sigma = 0: never, and nothing is kept.
  bool add(double norm, double sigma);

  // Count, mean and Σ (norm − mean)²; throws Error(kMalformed) if `state` is not what state() gave.
  io::Json state() const;
  void load_state(const io::Json& state);

 private:
  int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;  // Σ (norm − mean)²
};

}  // namespace lumen::optim
