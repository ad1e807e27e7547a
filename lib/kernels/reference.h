// The meaning of the kernels as naive loops in double: the oracle of their tests. Shapes and
// conventions as in the header of each kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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

// Appends Σ_k x[k] · w[j][k] for every row j of w.
inline void linear_row(const float* x, const Weight& w, std::vector<double>& y) {
  std::vector<float> row(w.cols);
  const std::vector<float> activations =
      is_quantized(w.dtype) ? round_activations(x, w.cols) : std::vector<float>(x, x + w.cols);
  for (int64_t j = 0; j < w.rows; ++j) {
    to_float(w.dtype, static_cast<const std::byte*>(w.data) + j * row_bytes(w.dtype, w.cols),
             row.data(), w.cols);
    double sum = 0;
    for (int64_t k = 0; k < w.cols; ++k) sum += static_cast<double>(activations[k]) * row[k];
    y.push_back(sum);
  }
}

// a · b, row-major m × n.
inline std::vector<double> gemm(const GemmArgs& args) {
  std::vector<double> c;
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < args.k; ++k) {
        sum += static_cast<double>(args.a[i * args.a_row_stride + k * args.a_col_stride]) *
               args.b[k * args.b_row_stride + j * args.b_col_stride];
      }
      c.push_back(sum);
    }
  }
  return c;
}

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
template <class Sees>
std::vector<double> attention(const float* q, const float* k, const float* v, int64_t positions,
                              int64_t head_dim, double scale, double cap, const Sees& sees,
                              double sink = -std::numeric_limits<double>::infinity(),
                              double slope = 0, int64_t at = 0) {
  std::vector<double> scores;
  for (int64_t p = 0; p < positions; ++p) {
    double score = 0;
    for (int64_t i = 0; i < head_dim; ++i) score += double(q[i]) * k[p * head_dim + i];
    scores.push_back(sees(p) ? soft_cap(scale * score, cap) + slope * double(p - at)
                             : -std::numeric_limits<double>::infinity());
  }
  scores.push_back(sink);
  const std::vector<double> weights = softmax(scores);
  std::vector<double> out(static_cast<size_t>(head_dim));
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < head_dim; ++i) {
      out[static_cast<size_t>(i)] += weights[static_cast<size_t>(p)] * v[p * head_dim + i];
    }
  }
  return out;
}

// y of conv2d, and dx and dw for dy.
struct Conv {
  std::vector<double> y, dx, dw;
};
inline Conv conv2d(const ConvShape& s, const std::vector<float>& x, const std::vector<float>& w,
                   const std::vector<float>& bias, const std::vector<float>& dy) {
  Conv r{std::vector<double>(dy.size()), std::vector<double>(x.size()),
         std::vector<double>(w.size())};
  const int64_t in_group = s.in_channels / s.groups, out_group = s.out_channels / s.groups;
  // Every product of an output element (n, o, i, j) and a weight (o, c, u, v) inside the image.
  for (int64_t at = 0; at < static_cast<int64_t>(dy.size()); ++at) {
    const int64_t j = at % s.out_width, i = at / s.out_width % s.out_height;
    const int64_t o = at / s.out_width / s.out_height % s.out_channels;
    const int64_t n = at / s.out_width / s.out_height / s.out_channels;
    r.y[at] += bias[o];
    for (int64_t c = 0; c < in_group; ++c) {
      for (int64_t u = 0; u < s.kernel_height; ++u) {
        for (int64_t v = 0; v < s.kernel_width; ++v) {
          const int64_t row = i * s.stride_y + u * s.dilation_y - s.padding_y;
          const int64_t col = j * s.stride_x + v * s.dilation_x - s.padding_x;
          if (row < 0 || row >= s.in_height || col < 0 || col >= s.in_width) continue;
          const int64_t channel = o / out_group * in_group + c;
          const int64_t from =
              ((n * s.in_channels + channel) * s.in_height + row) * s.in_width + col;
          const int64_t weight = ((o * in_group + c) * s.kernel_height + u) * s.kernel_width + v;
          r.y[at] += static_cast<double>(w[weight]) * x[from];
          r.dx[from] += static_cast<double>(w[weight]) * dy[at];
          r.dw[weight] += static_cast<double>(x[from]) * dy[at];
        }
      }
    }
  }
  return r;
}

}  // namespace lumen::kernels::reference
