#include "lib/kernels/pooling.h"

#include <array>
#include <cmath>

#include "lib/base/random.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

// Calls f(pixel) for the pixels of the window of output (i, j) that exist.
template <class F>
void for_each_pixel(const PoolShape& s, int64_t i, int64_t j, const F& f) {
  for (int64_t u = 0; u < s.kernel_height; ++u) {
    for (int64_t v = 0; v < s.kernel_width; ++v) {
      const int64_t row = i * s.stride_y + u * s.dilation_y - s.padding_y;
      const int64_t column = j * s.stride_x + v * s.dilation_x - s.padding_x;
      if (row < 0 || row >= s.in_height || column < 0 || column >= s.in_width) continue;
      f(row * s.in_width + column);
    }
  }
}

int64_t outputs(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

std::vector<PoolShape> any_windows() {
  std::vector<PoolShape> shapes;
  for (int64_t width : {5, 9, 12, 31, 64, 300}) {
    for (int64_t kernel : {1, 3, 4}) {
      for (int64_t stride : {1, 2, 3}) {
        for (int64_t dilation : {1, 2}) {
          for (int64_t padding : {int64_t{0}, kernel / 2}) {
            if (width + 2 * padding <= dilation * (kernel - 1)) continue;
            PoolShape s{2, 6, width, 0, outputs(width, kernel, stride, padding, dilation)};
            s.kernel_height = 3, s.padding_y = 1, s.stride_y = 2;
            s.out_height = outputs(6, 3, 2, 1, 1);
            s.kernel_width = kernel, s.padding_x = padding, s.stride_x = stride;
            s.dilation_x = dilation;
            shapes.push_back(s);
          }
        }
      }
    }
  }
  return shapes;
}

}  // namespace

TEST_CASE("pooling by any windows") {
  Philox random(4);
  for (PoolShape s : any_windows()) {
    INFO(s.in_width << " wide, kernel " << s.kernel_width << ", stride " << s.stride_x
                    << ", dilation " << s.dilation_x << ", padding " << s.padding_x);
    const int64_t pixels = s.in_height * s.in_width, results = s.out_height * s.out_width;
    std::vector<float> x, values, dy;
    for (int64_t i = 0; i < s.planes * pixels; ++i) {
      const auto v = static_cast<float>(random.next_u32() % 9);  // many are equal
      x.push_back(v == 8 && random.next_u32() % 4 == 0 ? NAN : v);
      values.push_back(static_cast<float>(random.uniform()));
    }
    for (int64_t i = 0; i < s.planes * results; ++i) dy.push_back(static_cast<float>(i % 7));
    std::vector<float> largest, gradient(x.size(), 0.0f), average, average_gradient(x.size(), 0.0f);
    for (int64_t o = 0; o < s.planes * results; ++o) {
      const int64_t begin = o / results * pixels, i = o % results / s.out_width;
      int64_t best = -1, count = 0;
      float sum = 0;
      for_each_pixel(s, i, o % s.out_width, [&](int64_t p) {
        if (best < 0 || (!std::isnan(x[begin + best]) && !(x[begin + p] <= x[begin + best]))) {
          best = p;
        }
        sum += values[begin + p];
        ++count;
      });
      largest.push_back(values[begin + best]);
      gradient[begin + best] += dy[o];
      const float share = 1.0f / static_cast<float>(count);
      average.push_back(sum * share);
      for_each_pixel(s, i, o % s.out_width,
                     [&](int64_t p) { average_gradient[begin + p] += dy[o] * share; });
    }
    s.include_padding = false;
    on_every_target([&] {
      for (int threads : {1, 2}) {
        ThreadPool pool(threads);
        std::vector<float> got(largest.size(), NAN), got_gradient(x.size(), NAN);
        max_pool2d(pool, s, x.data(), values.data(), got.data());
        max_pool2d_grad(pool, s, x.data(), dy.data(), got_gradient.data());
        REQUIRE(got == largest);
        REQUIRE(got_gradient == gradient);
        if (s.dilation_x != 1) continue;
        avg_pool2d(pool, s, values.data(), got.data());
        avg_pool2d_grad(pool, s, dy.data(), got_gradient.data());
        REQUIRE(got == average);
        REQUIRE(got_gradient == average_gradient);
      }
    });
  }
}

TEST_CASE("adaptive averages of even and uneven parts, and of everything") {
  Philox random(5);
  for (auto [height, width, out_height, out_width] :
       {std::array<int64_t, 4>{8, 12, 2, 3}, {7, 40, 3, 9}, {33, 57, 1, 1}}) {
    PoolShape s{3, height, width, out_height, out_width};
    s.adaptive = true;
    std::vector<float> x, y(static_cast<size_t>(3 * out_height * out_width)), dx;
    for (int64_t i = 0; i < 3 * height * width; ++i) {
      x.push_back(static_cast<float>(random.uniform()));
    }
    dx.resize(x.size());
    ThreadPool pool(2);
    avg_pool2d(pool, s, x.data(), y.data());
    avg_pool2d_grad(pool, s, y.data(), dx.data());
    std::vector<double> want_dx(x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      const int64_t at = static_cast<int64_t>(o), plane = at / (out_height * out_width);
      const int64_t i = at / out_width % out_height, j = at % out_width;
      const int64_t top = i * height / out_height, left = j * width / out_width;
      const int64_t bottom = ((i + 1) * height + out_height - 1) / out_height;
      const int64_t right = ((j + 1) * width + out_width - 1) / out_width;
      double sum = 0, count = static_cast<double>((bottom - top) * (right - left));
      for (int64_t row = top; row < bottom; ++row) {
        for (int64_t column = left; column < right; ++column) {
          const auto p = static_cast<size_t>((plane * height + row) * width + column);
          sum += x[p];
          want_dx[p] += y[o] / count;
        }
      }
      CHECK(y[o] == Approx(sum / count).epsilon(1e-5));
    }
    for (size_t i = 0; i < dx.size(); ++i) REQUIRE(dx[i] == Approx(want_dx[i]).epsilon(1e-5));
  }
}

TEST_CASE("maximum pooling by 1 x 2 chooses the larger pixel or the first NaN") {
  Philox random(4);
  const int64_t planes = 2, height = 3;
  for (int64_t width = 2; width < 72; ++width) {
    INFO(width);
    PoolShape s{planes, height, width, height, width / 2};
    s.kernel_height = s.stride_y = 1;
    s.kernel_width = s.stride_x = 2;
    const auto pixels = static_cast<size_t>(planes * height * width);
    std::vector<float> x(pixels), values(pixels), y;
    for (size_t i = 0; i < pixels; ++i) {
      const auto v = static_cast<float>(random.next_u32() % 6);
      x[i] = v == 5 ? NAN : v;
      values[i] = static_cast<float>(i);
    }
    for (int64_t row = 0; row < planes * height; ++row) {
      for (int64_t j = 0; j < s.out_width; ++j) {
        const auto first = static_cast<size_t>(row * width + 2 * j);
        const bool keeps = std::isnan(x[first]) || x[first + 1] <= x[first];
        y.push_back(values[keeps ? first : first + 1]);
      }
    }
    on_every_target([&] {
      ThreadPool pool(2);
      std::vector<float> got(y.size(), NAN);
      max_pool2d(pool, s, x.data(), values.data(), got.data());
      REQUIRE(got == y);
    });
  }
}

TEST_CASE("maximum pooling by 2 x 2 chooses the first largest pixel or the first NaN") {
  Philox random(3);
  const int64_t planes = 3;
  for (int64_t height : {2, 5}) {
    for (int64_t width = 2; width < 72; ++width) {
      INFO(height << " x " << width);
      PoolShape s{planes, height, width, height / 2, width / 2};
      s.kernel_height = s.kernel_width = s.stride_y = s.stride_x = 2;
      const auto pixels = static_cast<size_t>(planes * height * width);
      std::vector<float> x(pixels), values(pixels), dx(pixels, 0.0f);
      for (size_t i = 0; i < pixels; ++i) {
        // Few values, so that many are equal.
        const auto v = static_cast<float>(random.next_u32() % 6);
        x[i] = v == 5 ? NAN : v;
        values[i] = static_cast<float>(i);
      }
      std::vector<float> y, dy;
      for (int64_t plane = 0; plane < planes; ++plane) {
        for (int64_t i = 0; i < s.out_height; ++i) {
          for (int64_t j = 0; j < s.out_width; ++j) {
            const int64_t corner = (plane * height + 2 * i) * width + 2 * j;
            int64_t best = corner;
            for (int64_t p : {corner + 1, corner + width, corner + width + 1}) {
              if (!std::isnan(x[best]) && !(x[p] <= x[best])) best = p;
            }
            y.push_back(values[best]);
            dy.push_back(static_cast<float>(dy.size() + 1));
            dx[best] = dy.back();
          }
        }
      }
      on_every_target([&] {
        for (int threads : {1, 2}) {
          ThreadPool pool(threads);
          std::vector<float> got(y.size(), NAN), gradient(pixels, NAN);
          max_pool2d(pool, s, x.data(), values.data(), got.data());
          max_pool2d_grad(pool, s, x.data(), dy.data(), gradient.data());
          REQUIRE(got == y);
          REQUIRE(gradient == dx);
        }
      });
    }
  }
}
