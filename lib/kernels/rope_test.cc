#include "lib/kernels/rope.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"
#include "lib/kernels/tiles/bf16_panels.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

std::vector<float> frequencies(int64_t half_dim) {
  std::vector<float> values;
  for (int64_t i = 0; i < half_dim; ++i) {
    values.push_back(static_cast<float>(std::pow(10000.0, -double(i) / double(half_dim))));
  }
  return values;
}

}  // namespace

TEST_CASE("rope_table is exact to float at any position") {
  const auto inv_freq = frequencies(48);
  for (int64_t start : {0, 4095, 131071, 16'000'000}) {
    std::vector<float> table(3 * 2 * 48);
    rope_table(start, 3, inv_freq.data(), 48, 1.25f, table.data());
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t i = 0; i < 48; ++i) {
        const long double angle = static_cast<long double>(start + t) * inv_freq[size_t(i)];
        const auto at = static_cast<size_t>(t * 96 + i);
        REQUIRE(std::fabs(table[at] - 1.25L * std::cos(angle)) < 1e-6L);
        REQUIRE(std::fabs(table[at + 48] - 1.25L * std::sin(angle)) < 1e-6L);
      }
    }
  }
}

TEST_CASE("rope rotates both layouts, whole and partial heads, any strides") {
  Philox random(1);
  for (int64_t half_dim : {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64}) {
    for (int64_t rest : {0, 5}) {
      for (bool interleaved : {false, true}) {
        const int64_t head_dim = 2 * half_dim + rest, batch = 2, tokens = 5, heads = 3, start = 40;
        const auto inv_freq = frequencies(half_dim);
        std::vector<float> table(static_cast<size_t>(tokens * 2 * half_dim));
        rope_table(start, tokens, inv_freq.data(), half_dim, 1.0f, table.data());
        // Queries inside a wider fused row, with two floats between heads.
        const int64_t head_stride = head_dim + 2, token_stride = heads * head_stride + 7;
        const int64_t batch_stride = tokens * token_stride;
        const std::vector<float> x = random_floats(random, batch * batch_stride);
        on_every_target([&] {
          std::vector<float> y(static_cast<size_t>(batch * tokens * heads * head_dim));
          const RopeArgs args{batch,       tokens,       heads,        head_dim,
                              half_dim,    x.data(),     batch_stride, token_stride,
                              head_stride, table.data(), interleaved,  y.data()};
          ThreadPool one(1), three(3);
          rope(one, args);
          for (int64_t row = 0; row < batch * tokens * heads; ++row) {
            const int64_t h = row % heads, t = row / heads % tokens, b = row / heads / tokens;
            const float* from = &x[size_t(b * batch_stride + t * token_stride + h * head_stride)];
            const auto expected = reference::rope({from, from + head_dim}, double(start + t),
                                                  inv_freq, 1.0, interleaved);
            for (int64_t i = 0; i < head_dim; ++i) {
              REQUIRE(y[size_t(row * head_dim + i)] == Approx(expected[size_t(i)]).margin(1e-6));
            }
          }
          // In place on a contiguous copy, on three threads.
          std::vector<float> z;
          for (int64_t row = 0; row < batch * tokens * heads; ++row) {
            const int64_t h = row % heads, t = row / heads % tokens, b = row / heads / tokens;
            const float* from = &x[size_t(b * batch_stride + t * token_stride + h * head_stride)];
            z.insert(z.end(), from, from + head_dim);
          }
          rope(three,
               {batch, tokens, heads, head_dim, half_dim, z.data(), tokens * heads * head_dim,
                heads * head_dim, head_dim, table.data(), interleaved, z.data()});
          REQUIRE(std::memcmp(y.data(), z.data(), y.size() * sizeof(float)) == 0);
        });
      }
    }
  }
}

TEST_CASE("rope reads and rounds to bfloat16, half-split") {
  Philox random(2);
  for (int64_t half_dim : {1, 3, 8, 15, 16, 24, 33, 64}) {
    const int64_t rest = 5, head_dim = 2 * half_dim + rest, tokens = 3, heads = 2;
    const auto inv_freq = frequencies(half_dim);
    std::vector<float> table(static_cast<size_t>(tokens * 2 * half_dim));
    rope_table(40, tokens, inv_freq.data(), half_dim, 1.0f, table.data());
    std::vector<float> x = random_floats(random, tokens * heads * head_dim);
    round_to_bf16(x.data(), static_cast<int64_t>(x.size()));
    std::vector<uint16_t> narrow_x(x.size());
    round_row(x.data(), static_cast<int64_t>(x.size()), narrow_x.data());
    on_every_target([&] {
      ThreadPool pool(2);
      std::vector<float> y(x.size());
      std::vector<uint16_t> narrow_y(x.size());
      RopeArgs args{1, tokens,           heads,    head_dim,     half_dim, x.data(),
                    0, heads * head_dim, head_dim, table.data(), false,    y.data()};
      rope(pool, args);
      const std::vector<float> expected = y;
      auto check = [&](double tolerance) {
        for (size_t i = 0; i < y.size(); ++i) {
          REQUIRE(std::fabs(y[i] - expected[i]) <= tolerance * (1 + std::fabs(expected[i])));
        }
      };
      auto check_narrow = [&] {
        for (size_t i = 0; i < y.size(); ++i) y[i] = to_float(bf16{narrow_y[i]});
        check(0x1p-8);
      };
      args.y = reinterpret_cast<float*>(narrow_y.data());
      args.y_type = DType::kBF16;
      rope(pool, args);
      check_narrow();
      args.x = reinterpret_cast<const float*>(narrow_x.data());
      args.x_type = DType::kBF16;
      rope(pool, args);
      check_narrow();
      args.y = y.data();
      args.y_type = DType::kF32;
      rope(pool, args);
      check(1e-6);
    });
  }
}
