// The meaning of the kernels as naive loops in double: the oracle of their tests. Slow, simple,
// single-threaded; shapes and conventions as in the header of each kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lumen::kernels::reference {

inline std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& w,
                                    double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + eps) * w[i];
  }
  return y;
}

inline std::vector<double> layer_norm(const std::vector<double>& x, const std::vector<double>& w,
                                      const std::vector<double>& b, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (double v : x) mean += v / n;
  for (double v : x) variance += (v - mean) * (v - mean) / n;
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / std::sqrt(variance + eps) * w[i] + b[i];
  }
  return y;
}

inline std::vector<double> softmax(const std::vector<double>& x) {
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double v : x) maximum = std::fmax(maximum, v);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) sum += y[i] = std::exp(x[i] - maximum);
  for (double& v : y) v /= sum;
  return y;
}

// The rotation of one head row at `position`.
inline std::vector<double> rope(std::vector<double> x, double position,
                                const std::vector<float>& inv_freq, double attention_factor,
                                bool interleaved) {
  const size_t half = inv_freq.size();
  for (size_t i = 0; i < half; ++i) {
    double& a = x[interleaved ? 2 * i : i];
    double& b = x[interleaved ? 2 * i + 1 : half + i];
    const double angle = position * inv_freq[i];
    const double cos = std::cos(angle) * attention_factor;
    const double sin = std::sin(angle) * attention_factor;
    const double rotated = a * cos - b * sin;
    b = b * cos + a * sin;
    a = rotated;
  }
  return x;
}

// One query row over all `positions` rows of k and v (row-major [positions, head_dim]) for which
// sees(position) holds.
template <class Sees>
std::vector<double> attention(const float* q, const float* k, const float* v, int64_t positions,
                              int64_t head_dim, double scale, const Sees& sees) {
  std::vector<double> scores;
  for (int64_t p = 0; p < positions; ++p) {
    double score = 0;
    for (int64_t i = 0; i < head_dim; ++i) score += double(q[i]) * k[p * head_dim + i];
    scores.push_back(sees(p) ? scale * score : -std::numeric_limits<double>::infinity());
  }
  const std::vector<double> weights = softmax(scores);
  std::vector<double> out(static_cast<size_t>(head_dim));
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < head_dim; ++i) {
      out[static_cast<size_t>(i)] += weights[static_cast<size_t>(p)] * v[p * head_dim + i];
    }
  }
  return out;
}

}  // namespace lumen::kernels::reference
