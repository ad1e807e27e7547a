#include "lib/optim/grad_scaler.h"

#include "lib/base/error.h"

namespace lumen::optim {
namespace {

constexpr double kLeast = 0x1p-126, kMost = 0x1p127;  // powers of two that float32 has

}  // namespace

GradScaler::GradScaler(const GradScalerConfig& config)
    : config_(config), scale_(config.init_scale) {
  const bool valid = config.init_scale >= kLeast && config.init_scale <= kMost &&
                     config.growth_factor > 1 && config.backoff_factor > 0 &&
                     config.backoff_factor < 1 && config.growth_interval >= 1;
  if (!valid) {
    fail(ErrorKind::kMalformed,
         "gradient scaler: expected a finite scale above 0, a growth factor "
         "above 1, a backoff factor between 0 and 1 and a growth interval of at least 1; got ",
         config.init_scale, ", ", config.growth_factor, ", ", config.backoff_factor, " and ",
         config.growth_interval);
  }
}

bool GradScaler::update(bool finite) {
  if (!finite) {
    scale_ = std::max(kLeast, scale_ * config_.backoff_factor);
    good_steps_ = 0;
  } else if (++good_steps_ == config_.growth_interval) {
    scale_ = std::min(kMost, scale_ * config_.growth_factor);
    good_steps_ = 0;
  }
  return finite;
}

io::Json GradScaler::state() const {
  return {{"scale", scale_}, {"good_steps", good_steps_}};
}

void GradScaler::load_state(const io::Json& state) {
  const double scale = io::get_number(state, "scale", kLeast, kMost);
  good_steps_ = io::get_int(state, "good_steps", 0, config_.growth_interval - 1);
  scale_ = scale;
}

}  // namespace lumen::optim
