// Loss scaling for float16, whose gradients would vanish (Micikevicius et al. 2018).
#pragma once

#include <cstdint>

#include "lib/io/json.h"

namespace lumen::optim {

// Defaults are those of torch.amp.GradScaler.
struct GradScalerConfig {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // good steps in a row before the scale grows
};

// The loss is multiplied by scale() before it is differentiated; the optimizer is given 1/scale()
// as gradient scale; update() then says whether the step may be taken. Not thread-safe.
class GradScaler {
 public:
  // Throws Error(kMalformed) for values out of range.
  explicit GradScaler(const GradScalerConfig& config = {});

  double scale() const { return scale_; }

  // After each backward pass: whether all gradients were finite. Returns the same; false also
  // lowers the scale, and the step must be skipped.
  bool update(bool finite);

  // Scale and count; throws Error(kMalformed) if `state` is not what state() gave.
  io::Json state() const;
  void load_state(const io::Json& state);

 private:
  GradScalerConfig config_;
  double scale_;
  int64_t good_steps_ = 0;
};

}  // namespace lumen::optim
