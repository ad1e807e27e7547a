// The loss of a run as a picture.
#pragma once

#include <string>
#include <vector>

#include "lib/io/json.h"

namespace lumen::runtime {

// An SVG of "loss" and, with points, "eval_loss" over "step", from the rows of metrics.jsonl; what
// is null is left out. Long runs are thinned to their mean per pixel. Logarithmic if the values
// span more than a factor of 20.
std::string loss_curve(const std::vector<io::Json>& rows);

}  // namespace lumen::runtime
