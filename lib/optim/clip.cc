#include "lib/optim/clip.h"

#include <cmath>

#include "lib/base/error.h"
#include "lib/kernels/optimizer_step.h"

namespace lumen::optim {
namespace {

void check_floats(std::span<const Array> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Array& gradient = gradients[i];
    const bool missing = gradient.empty() && gradient.elements() > 0;
    if (gradient.dtype() == DType::kF32 && !missing) continue;
    fail(ErrorKind::kMalformed, "clipping: gradient ", i, " is ",
         missing ? "missing" : name(gradient.dtype()), ", expected f32");
  }
}

}  // namespace

double grad_norm(ThreadPool& pool, std::span<const Array> gradients, double p) {
  check_floats(gradients);
  if (!(p > 0))
    fail(ErrorKind::kMalformed, "the p of a gradient norm is ", p, ", expected above 0");
  const double sum = kernels::power_sum(
      pool, gradients.size(), [&](size_t i) { return gradients[i].as<float>(); }, p);
  return std::isinf(p) ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p);
}

double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;
}

void clip_grad_value(ThreadPool& pool, std::span<const Array> gradients, double limit,
                     double scale) {
  if (!(limit >= 0)) {
    fail(ErrorKind::kMalformed, "the limit of a gradient value is ", limit, ", expected 0 or more");
  }
  check_floats(gradients);
  const auto bound = static_cast<float>(limit);
  for (Array gradient : gradients) {  // a copy shares the memory
    float* x = gradient.as_mutable<float>().data();
    if (scale != 1) kernels::scale(pool, gradient.elements(), static_cast<float>(scale), x);
    kernels::clip_values(pool, gradient.elements(), -bound, bound, x);
  }
}

}  // namespace lumen::optim
