// The meaning of the kernels as naive loops in double: the oracle of their tests. Shapes and
// conventions as in the header of each kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/kernels/conv.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels::reference {

// Activations as products with quantised weights see them: rounded to int8 per 32 columns.
inline std::vector<float> round_activations(const float* x, int64_t cols) {
  std::vector<float> rounded(x, x + cols);
  for (int64_t k = 0; k < cols; k += 32) {
    float max_abs = 0;
    for (int64_t i = k; i < k + 32; ++i) max_abs = std::max(max_abs, std::fabs(x[i]));
    const float inverse = max_abs > 0 ? 127.0f / max_abs : 0.0f;
    for (int64_t i = k; i < k + 32; ++i) {
      rounded[i] = std::nearbyintf(x[i] * inverse) * (max_abs / 127.0f);
    }
  }
  return rounded;
}

// Σ_k x[i][k] · w[j][k] in order, m × w.rows, of rows of x that lie x_stride floats apart; with
// quantised weights of activations as they see them.
std::vector<double> linear(const float* x, int64_t x_stride, int64_t m, const Weight& w);

// Appends the same of one row.
inline void linear_row(const float* x, const Weight& w, std::vector<double>& y) {
  const std::vector<double> row = linear(x, 0, 1, w);
  y.insert(y.end(), row.begin(), row.end());
}

// a · b, row-major m × n.
std::vector<double> gemm(const GemmArgs& args);

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

// One token of the gated delta rule (delta_rule.h): brings `state` [key_dim, value_dim] up to date
// and gives the token's output.
inline std::vector<double> delta_rule(std::vector<double>& state, const float* q, const float* k,
                                      const float* v, const float* decay, bool by_rows, double beta,
                                      int64_t key_dim, int64_t value_dim, bool corrects) {
  std::vector<double> out;
  for (int64_t j = 0; j < value_dim; ++j) {
    const auto at = [&](int64_t i) -> double& {
      return state[static_cast<size_t>(i * value_dim + j)];
    };
    const auto decayed = [&](int64_t i) { return double(decay[by_rows ? i : 0]) * at(i); };
    double known = 0, sum = 0;
    for (int64_t i = 0; corrects && i < key_dim; ++i) known += decayed(i) * k[i];
    for (int64_t i = 0; i < key_dim; ++i) {
      at(i) = decayed(i) + k[i] * beta * (v[j] - known);
      sum += at(i) * q[i];
    }
    out.push_back(sum);
  }
  return out;
}

// cap · tanh(x / cap); x if cap is 0.
inline double soft_cap(double x, double cap) {
  return cap == 0 ? x : cap * std::tanh(x / cap);
}

// The slopes of ALiBi as Press et al. (2022) have them.
inline double bias_slope(int64_t heads, double max_bias, int64_t head) {
  const double n = std::exp2(std::floor(std::log2(double(heads))));
  if (double(head) < n) return std::pow(std::exp2(-max_bias / n), double(head + 1));
  return std::pow(std::exp2(-max_bias / 2 / n), 2 * (double(head) - n) + 1);
}

// One query row over all `positions` rows of k and v (row-major [positions, head_dim]) for which
// sees(position) holds; to scores there is added slope · (position − at).
std::vector<double> attention(const float* q, const float* k, const float* v, int64_t positions,
                              int64_t head_dim, double scale, double cap,
                              FunctionRef<bool(int64_t)> sees,
                              double sink = -std::numeric_limits<double>::infinity(),
                              double slope = 0, int64_t at = 0);

// y of conv2d, and dx and dw for dy.
struct Conv {
  std::vector<double> y, dx, dw;
};
Conv conv2d(const ConvShape& s, const std::vector<float>& x, const std::vector<float>& w,
            const std::vector<float>& bias, const std::vector<float>& dy);

}  // namespace lumen::kernels::reference
