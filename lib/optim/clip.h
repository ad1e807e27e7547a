// Gradient clipping.
#pragma once

#include <span>

#include "lib/base/pool.h"
#include "lib/tensor/array.h"

namespace lumen::optim {

// The p-norm of all elements of all gradients (float32) together, in double: (Σ |g|^p)^(1/p), for
// p = inf max |g|. NaN if an element is. Throws Error(kMalformed) unless p > 0 and all are float32.
// The same bits for any number of threads.
double grad_norm(ThreadPool& pool, std::span<const Array> gradients, double p = 2);

// What gradients of norm `norm` are multiplied with to have at most `max_norm`: PyTorch's
// min(1, max_norm / (norm + 1e-6)), NaN for a norm that is. Given to Optimizer::step as its
// gradient scale.
double clip_factor(double norm, double max_norm);

// Every element times `scale`, then into [−limit, limit], in place; NaN stays. Throws
// Error(kMalformed) unless limit ≥ 0 and all are float32.
void clip_grad_value(ThreadPool& pool, std::span<const Array> gradients, double limit,
                     double scale = 1);

}  // namespace lumen::optim
