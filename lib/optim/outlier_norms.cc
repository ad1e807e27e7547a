#include "lib/optim/outlier_norms.h"

#include <cmath>

#include "lib/base/error.h"

namespace lumen::optim {

bool OutlierNorms::add(double norm, double sigma) {
  constexpr int64_t kLeast = 20;
  if (sigma == 0) return false;
  if (count_ >= kLeast) {
    const double deviation = std::sqrt(squares_ / static_cast<double>(count_ - 1));
    if (norm > mean_ + sigma * deviation) return true;
  }
  ++count_;
  const double difference = norm - mean_;
  mean_ += difference / static_cast<double>(count_);
  squares_ += difference * (norm - mean_);
  return false;
}

io::Json OutlierNorms::state() const {
  return {count_, mean_, squares_};
}

void OutlierNorms::load_state(const io::Json& state) {
  const bool valid = state.is_array() && state.size() == 3 && state[0].is_number_integer() &&
                     state[0].get<int64_t>() >= 0 && state[1].is_number() && state[2].is_number() &&
                     state[2].get<double>() >= 0;
  if (!valid) {
    fail(ErrorKind::kMalformed,
         "gradient norms: expected their count, mean and sum of squares, got ", state.dump());
  }
  count_ = state[0].get<int64_t>();
  mean_ = state[1].get<double>();
  squares_ = state[2].get<double>();
}

}  // namespace lumen::optim
