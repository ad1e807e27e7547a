#include "lib/kernels/pooling.h"

#include <cmath>

#include "lib/base/random.h"
#include "lib/kernels/every_target.h"

using namespace lumen;
using namespace lumen::kernels;

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
