// Optimizer steps: one fused pass over a parameter, its gradient and its state. Formulas are those
// of PyTorch's documentation of torch.optim, in float32; constants are given in double and rounded
// once.
//
// In every step `gradient_scale` multiplies the gradient first (clipping, unscaling; negative to
// maximise). Arrays have n floats, any alignment, and do not overlap. A state array is null where
// its comment says so. The same bits for any number of threads. noexcept.
#pragma once

#include <cstdint>
#include <span>

#include "lib/base/function_ref.h"
#include "lib/base/pool.h"

namespace lumen::kernels {

// g += weight_decay · p; with momentum: b = momentum · b + (1 − dampening) · g (first step: b = g),
// g = nesterov ? g + momentum · b : b; then p −= lr · g.
struct SgdStep {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0, gradient_scale = 1;
  bool nesterov = false;
  bool first = false;  // the first step: `buffer` holds nothing yet
};
// `buffer`: null if momentum is 0.
void sgd_step(ThreadPool& pool, int64_t n, const SgdStep& step, float* p, const float* g,
              float* buffer);

// Adam (Kingma & Ba 2015) and, decoupled, AdamW (Loshchilov & Hutter 2019):
// decoupled ? p −= lr · weight_decay · p : g += weight_decay · p;
// m += (1 − β₁)(g − m); v = β₂ v + (1 − β₂) g²; with amsgrad v̂ = max(v̂, v), else v̂ = v;
// p −= lr / bias_correction1 · m / (√v̂ / √bias_correction2 + eps).
struct AdamStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0, gradient_scale = 1;
  double bias_correction1 = 1, bias_correction2 = 1;  // 1 − β₁ᵗ and 1 − β₂ᵗ of step t = 1, 2, …
  bool decoupled = false;
};
// `v_max`: v̂ of amsgrad; null without.
void adam_step(ThreadPool& pool, int64_t n, const AdamStep& step, float* p, const float* g,
               float* m, float* v, float* v_max);

// g += weight_decay · p; s = α s + (1 − α) g²; centred: a += (1 − α)(g − a), r = √max(0, s − a²),
// else r = √s; with momentum b = momentum · b + g / (r + eps), p −= lr · b; else p −= lr · g / (r +
// eps).
struct RmspropStep {
  double lr = 0, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, gradient_scale = 1;
};
// `average`: a, null if not centred. `buffer`: null if momentum is 0; zeros before the first step.
void rmsprop_step(ThreadPool& pool, int64_t n, const RmspropStep& step, float* p, const float* g,
                  float* square, float* average, float* buffer);

// g += weight_decay · p; s += g²; p −= lr · g / (√s + eps). The caller applies lr_decay to lr.
struct AdagradStep {
  double lr = 0, eps = 1e-10, weight_decay = 0, gradient_scale = 1;
};
void adagrad_step(ThreadPool& pool, int64_t n, const AdagradStep& step, float* p, const float* g,
                  float* sum);

// Lion (Chen et al. 2023): p −= lr · weight_decay · p; p −= lr · sign(β₁ m + (1 − β₁) g);
// m = β₂ m + (1 − β₂) g. sign(0) = 0.
struct LionStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.99, weight_decay = 0, gradient_scale = 1;
};
void lion_step(ThreadPool& pool, int64_t n, const LionStep& step, float* p, const float* g,
               float* m);

// Σ |x[i]|^p in double, p > 0; p = +inf: max |x[i]|; p = 0: how many are not 0. NaN if an element
// is. The sum is taken in fixed blocks: the same bits for any number of threads.
double power_sum(ThreadPool& pool, const float* x, int64_t n, double p);
// The same of several arrays together, array(i) for i in [0, count), asked for on any thread.
double power_sum(ThreadPool& pool, size_t count, FunctionRef<std::span<const float>(size_t)> array,
                 double p);

// x = a · x.
void scale(ThreadPool& pool, int64_t n, float a, float* x);
// y = y + a · x.
void axpy(ThreadPool& pool, int64_t n, float a, const float* x, float* y);
// Every element into [low, high]; NaN stays.
void clip_values(ThreadPool& pool, int64_t n, float low, float high, float* x);
// Whether no element is infinite or NaN.
bool all_finite(ThreadPool& pool, const float* x, int64_t n);

}  // namespace lumen::kernels
