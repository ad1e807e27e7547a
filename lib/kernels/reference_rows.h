// The gradients of rows and the losses as naive loops in double, beside reference.h.
#pragma once

#include "lib/kernels/reference.h"

namespace lumen::kernels::reference {

using Vector = std::vector<double>;

// dx of y = f(x) from Jᵀ dy, where J[i][j] = ∂y_i / ∂x_j.
template <class Jacobian>
Vector transposed_product(const Vector& dy, const Jacobian& jacobian) {
  Vector dx(dy.size(), 0.0);
  for (size_t i = 0; i < dy.size(); ++i) {
    for (size_t j = 0; j < dy.size(); ++j) dx[j] += jacobian(i, j) * dy[i];
  }
  return dx;
}

inline Vector softmax_backward(const Vector& x, const Vector& dy) {
  const Vector y = softmax(x);
  return transposed_product(dy, [&](size_t i, size_t j) { return y[i] * ((i == j) - y[j]); });
}

inline Vector log_softmax_backward(const Vector& x, const Vector& dy) {
  const Vector y = softmax(x);
  return transposed_product(dy, [&](size_t i, size_t j) { return (i == j) - y[j]; });
}

// x / √(mean(x²) + eps).
inline Vector rms_normal(const Vector& x, double eps) {
  return rms_norm(x, Vector(x.size(), 1.0), eps);
}

inline Vector rms_norm_backward(const Vector& x, const Vector& w, const Vector& dy, double eps) {
  const auto n = static_cast<double>(x.size());
  double squares = 0;
  for (double v : x) squares += v * v;
  const double r = 1 / std::sqrt(squares / n + eps);
  return transposed_product(
      dy, [&](size_t i, size_t j) { return w[i] * ((i == j) * r - x[i] * x[j] * r * r * r / n); });
}

// (x − mean) / √(var + eps).
inline Vector layer_normal(const Vector& x, double eps) {
  return layer_norm(x, Vector(x.size(), 1.0), Vector(x.size(), 0.0), eps);
}

inline Vector layer_norm_backward(const Vector& x, const Vector& w, const Vector& dy, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (double v : x) mean += v / n;
  for (double v : x) variance += (v - mean) * (v - mean) / n;
  const double r = 1 / std::sqrt(variance + eps);
  const Vector normal = layer_normal(x, eps);
  return transposed_product(dy, [&](size_t i, size_t j) {
    return w[i] * r * ((i == j) - 1 / n - normal[i] * normal[j] / n);
  });
}

struct RowLoss {
  double loss = 0, weight = 0;
  Vector gradient;
};

// One row of cross-entropy; `w` has a weight per class.
inline RowLoss cross_entropy(const Vector& x, int64_t target, const Vector& w, int64_t ignore_index,
                             double smoothing) {
  RowLoss row;
  row.gradient.assign(x.size(), 0.0);
  if (target == ignore_index) return row;
  const Vector p = softmax(x);
  double maximum = x[0], sum = 0;
  for (double v : x) maximum = std::max(maximum, v);
  for (double v : x) sum += std::exp(v - maximum);
  const double log_sum = std::log(sum);
  double shares = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    const double share = ((static_cast<int64_t>(c) == target ? 1 - smoothing : 0) +
                          smoothing / static_cast<double>(x.size())) *
                         w[c];
    row.loss -= share * (x[c] - maximum - log_sum);
    row.gradient[c] = -share;
    shares += share;
  }
  // Σ_c share_c (p_j − [c = j])
  for (size_t j = 0; j < x.size(); ++j) row.gradient[j] += shares * p[j];
  row.weight = w[static_cast<size_t>(target)];
  return row;
}

}  // namespace lumen::kernels::reference
