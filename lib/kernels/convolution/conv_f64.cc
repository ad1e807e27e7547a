// Convolutions of float64: every output plane is the sum of shifted planes, tap by tap. No pixel
// that lies outside the image is looked at.
#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/conv.h"

namespace lumen::kernels {
namespace {

// The outputs i in [begin, end) of `out` whose pixel i · stride + offset lies in [0, in).
struct OutputRange {
  int64_t begin, end;

  OutputRange(int64_t offset, int64_t stride, int64_t in, int64_t out)
      : begin(std::min(out, offset < 0 ? divide_up(-offset, stride) : 0)),
        end(offset < in ? std::min(out, (in - 1 - offset) / stride + 1) : 0) {}
};

// Calls body(tap, first pixel of x, first pixel of y, count) for the rows of outputs of one plane
// and what each tap of the kernel, counted from 0, sees of the image; pixels of x are stride_x
// apart.
template <class Body>
void for_each_run(const ConvShape& s, const Body& body) {
  for (int64_t u = 0; u < s.kernel_height; ++u) {
    const int64_t down = u * s.dilation_y - s.padding_y;
    const OutputRange rows(down, s.stride_y, s.in_height, s.out_height);
    for (int64_t v = 0; v < s.kernel_width; ++v) {
      const int64_t right = v * s.dilation_x - s.padding_x;
      const OutputRange columns(right, s.stride_x, s.in_width, s.out_width);
      if (columns.begin >= columns.end) continue;
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        body(u * s.kernel_width + v,
             (i * s.stride_y + down) * s.in_width + columns.begin * s.stride_x + right,
             i * s.out_width + columns.begin, columns.end - columns.begin);
      }
    }
  }
}

// Extents that the three share.
struct Sizes {
  int64_t in_pixels, out_pixels, taps;
  int64_t group_in, group_out;  // channels of a group

  explicit Sizes(const ConvShape& s)
      : in_pixels(s.in_height * s.in_width),
        out_pixels(s.out_height * s.out_width),
        taps(s.kernel_height * s.kernel_width),
        group_in(s.in_channels / s.groups),
        group_out(s.out_channels / s.groups) {}
};

// body(i) for i in [0, n), each of which works on a plane.
template <class Body>
void for_each_plane(ThreadPool& pool, int64_t n, const Body& body) {
  pool.parallel_for(n, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace

void conv2d_f64(ThreadPool& pool, const ConvShape& s, const double* x, const double* w,
                const double* bias, double* y) {
  const Sizes size(s);
  for_each_plane(pool, s.batch * s.out_channels, [&](int64_t plane) {
    const int64_t n = plane / s.out_channels, o = plane % s.out_channels;
    double* to = y + plane * size.out_pixels;
    std::fill_n(to, size.out_pixels, bias ? bias[o] : 0.0);
    for (int64_t c = 0; c < size.group_in; ++c) {
      const int64_t channel = o / size.group_out * size.group_in + c;
      const double* from = x + (n * s.in_channels + channel) * size.in_pixels;
      const double* taps = w + (o * size.group_in + c) * size.taps;
      for_each_run(s, [&](int64_t tap, int64_t in, int64_t out, int64_t count) {
        for (int64_t j = 0; j < count; ++j) to[out + j] += taps[tap] * from[in + j * s.stride_x];
      });
    }
  });
}

void conv2d_input_grad_f64(ThreadPool& pool, const ConvShape& s, const double* dy, const double* w,
                           double* dx) {
  const Sizes size(s);
  for_each_plane(pool, s.batch * s.in_channels, [&](int64_t plane) {
    const int64_t n = plane / s.in_channels, channel = plane % s.in_channels;
    const int64_t group = channel / size.group_in, c = channel % size.group_in;
    double* to = dx + plane * size.in_pixels;
    std::fill_n(to, size.in_pixels, 0.0);
    for (int64_t o = group * size.group_out; o < (group + 1) * size.group_out; ++o) {
      const double* from = dy + (n * s.out_channels + o) * size.out_pixels;
      const double* taps = w + (o * size.group_in + c) * size.taps;
      for_each_run(s, [&](int64_t tap, int64_t in, int64_t out, int64_t count) {
        for (int64_t j = 0; j < count; ++j) to[in + j * s.stride_x] += taps[tap] * from[out + j];
      });
    }
  });
}

void conv2d_weight_grad_f64(ThreadPool& pool, const ConvShape& s, const double* x, const double* dy,
                            double* dw) {
  const Sizes size(s);
  for_each_plane(pool, s.out_channels * size.group_in, [&](int64_t plane) {
    const int64_t o = plane / size.group_in, c = plane % size.group_in;
    const int64_t channel = o / size.group_out * size.group_in + c;
    double* taps = dw + plane * size.taps;
    std::fill_n(taps, size.taps, 0.0);
    for (int64_t n = 0; n < s.batch; ++n) {
      const double* from = x + (n * s.in_channels + channel) * size.in_pixels;
      const double* slopes = dy + (n * s.out_channels + o) * size.out_pixels;
      for_each_run(s, [&](int64_t tap, int64_t in, int64_t out, int64_t count) {
        double sum = 0;
        for (int64_t j = 0; j < count; ++j) sum += from[in + j * s.stride_x] * slopes[out + j];
        taps[tap] += sum;
      });
    }
  });
}

}  // namespace lumen::kernels
