// What tests wait for most, compiled with optimisation in every build.
#include "lib/kernels/reference.h"

namespace lumen::kernels::reference {

// Eight rows of w at a time, whose sums are added up beside each other.
std::vector<double> linear(const float* x, int64_t x_stride, int64_t m, const Weight& w) {
  constexpr int64_t kRows = 8;
  std::vector<float> activations;
  for (int64_t i = 0; i < m; ++i) {
    const float* const from = x + i * x_stride;
    const std::vector<float> row = is_quantized(w.dtype) ? round_activations(from, w.cols)
                                                         : std::vector<float>(from, from + w.cols);
    activations.insert(activations.end(), row.begin(), row.end());
  }
  std::vector<float> row(static_cast<size_t>(w.cols));
  std::vector<double> block(static_cast<size_t>(w.cols * kRows));
  std::vector<double> y(static_cast<size_t>(m * w.rows));
  for (int64_t first = 0; first < w.rows; first += kRows) {
    const int64_t count = std::min(kRows, w.rows - first);
    for (int64_t j = 0; j < count; ++j) {
      to_float(w.dtype,
               static_cast<const std::byte*>(w.data) + (first + j) * row_bytes(w.dtype, w.cols),
               row.data(), w.cols);
      for (int64_t k = 0; k < w.cols; ++k) block[k * kRows + j] = row[k];
    }
    for (int64_t i = 0; i < m; ++i) {
      double sums[kRows] = {};
      for (int64_t k = 0; k < w.cols; ++k) {
        const double activation = activations[i * w.cols + k];
        for (int64_t j = 0; j < kRows; ++j) sums[j] += activation * block[k * kRows + j];
      }
      std::copy_n(sums, count, y.begin() + i * w.rows + first);
    }
  }
  return y;
}

std::vector<double> gemm(const GemmArgs& args) {
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

std::vector<double> attention(const float* q, const float* k, const float* v, int64_t positions,
                              int64_t head_dim, double scale, double cap,
                              FunctionRef<bool(int64_t)> sees, double sink, double slope,
                              int64_t at) {
  std::vector<double> scores(static_cast<size_t>(positions),
                             -std::numeric_limits<double>::infinity());
  for (int64_t p = 0; p < positions; ++p) {
    if (!sees(p)) continue;
    double score = 0;
    for (int64_t i = 0; i < head_dim; ++i) score += double(q[i]) * k[p * head_dim + i];
    scores[static_cast<size_t>(p)] = soft_cap(scale * score, cap) + slope * double(p - at);
  }
  scores.push_back(sink);
  const std::vector<double> weights = softmax(scores);
  std::vector<double> out(static_cast<size_t>(head_dim));
  for (int64_t p = 0; p < positions; ++p) {
    const double weight = weights[static_cast<size_t>(p)];
    for (int64_t i = 0; i < head_dim; ++i) {
      out[static_cast<size_t>(i)] += weight * v[p * head_dim + i];
    }
  }
  return out;
}

Conv conv2d(const ConvShape& s, const std::vector<float>& x, const std::vector<float>& w,
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
