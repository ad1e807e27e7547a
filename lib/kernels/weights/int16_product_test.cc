#include "lib/kernels/weights/int16_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/weights/int16_tile.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr DType kHalves[] = {DType::kF16, DType::kBF16};

// A matrix in rows and in panels.
struct Matrix {
  Matrix(DType dtype, int64_t rows, int64_t cols, const std::vector<float>& values)
      : stored(row_bytes(dtype, cols) * rows) {
    from_float(dtype, values.data(), stored.data(), rows * cols);
    in_rows = {stored.data(), dtype, rows, cols};
    packed = pack(in_rows);
  }
  Matrix(Philox& random, DType dtype, int64_t rows, int64_t cols)
      : Matrix(dtype, rows, cols, random_floats(random, rows * cols)) {}
  Weight weight() const { return in_panels(in_rows, packed); }

  std::vector<std::byte> stored, packed;
  Weight in_rows;
};

std::vector<float> run_int16(int threads, const std::vector<float>& x, int64_t m,
                             const std::vector<Weight>& weights) {
  return run_product({int16_product_bytes, int16_product}, threads, x, m, weights);
}

template <class Body>
void on_every_int16_target(Body&& body) {
  on_targets_that(has_int16_tile, "this CPU has no AVX2", body);
}

}  // namespace

TEST_CASE("int16 products agree with the naive loop and give every row the same bits") {
  on_every_int16_target([] {
    Philox random(21);
    for (DType dtype : kHalves) {
      const int64_t cols = 416, rows = 45;  // a block and a half deep, a tile and a half wide
      const Matrix matrix(random, dtype, rows, cols);
      const auto x = random_floats(random, 70 * cols);
      const auto all = run_int16(1, x, 70, {matrix.weight()});
      CHECK(relative_error(all, expected_linear(x.data(), cols, 70, {matrix.in_rows})) < 1.5e-4);
      for (int64_t m : {1, 2, 5, 6, 7, 12, 13, 33}) {
        INFO(name(dtype) << ", m = " << m);
        CHECK(same_bits(run_int16(1, x, m, {matrix.weight()}),
                        {all.begin(), all.begin() + m * rows}));
      }
    }
  });
}

TEST_CASE("int16 products: several weights in one call, odd rows, threads") {
  on_every_int16_target([] {
    Philox random(22);
    for (int64_t cols : {32, 608}) {
      const Matrix a(random, DType::kBF16, 70, cols), b(random, DType::kBF16, 5, cols);
      const Matrix c(random, DType::kF16, 129, cols), d(random, DType::kF16, 1, cols);
      const std::vector<Weight> weights{a.weight(), b.weight(), c.weight(), d.weight()};
      for (int64_t m : {3, 70, 523}) {
        INFO("cols = " << cols << ", m = " << m);
        const auto x = random_floats(random, m * cols);
        const auto one = run_int16(1, x, m, weights);
        CHECK(relative_error(one, expected_linear(x.data(), cols, m,
                                                  {a.in_rows, b.in_rows, c.in_rows, d.in_rows})) <
              1.5e-4);
        CHECK(same_bits(run_int16(2, x, m, weights), one));
        CHECK(same_bits(run_int16(3, x, m, weights), one));
      }
    }
    const Matrix few(random, DType::kF16, 7, 96);  // more threads than tiles: rows are divided
    const auto x = random_floats(random, 40 * 96);
    CHECK(same_bits(run_int16(3, x, 40, {few.weight()}), run_int16(1, x, 40, {few.weight()})));
  });
}

// Where 32-bit sums would overflow if they could, with groups of all magnitudes: all numbers alike,
// and a single large one, which has the largest code.
TEST_CASE("int16 products of numbers that are codes are exact") {
  on_every_int16_target([] {
    for (DType dtype : kHalves) {
      const int64_t cols = 3 * kInt16Group - 32, rows = 18, m = 7;
      for (float sign : {1.0f, -1.0f}) {
        for (bool alike : {true, false}) {
          std::vector<float> w(rows * cols), x(m * cols);
          const auto value = [&](size_t i, float most) {
            const auto group = static_cast<int>(i % cols / kInt16Group);
            const bool large = alike || i % cols % kInt16Group == 5;
            return std::ldexp(large ? most : 0.0f, 10 * group - 17);
          };
          // 255 · 2^k is the largest number of bfloat16 in its binade.
          for (size_t i = 0; i < w.size(); ++i) w[i] = value(i, 255.0f);
          for (size_t i = 0; i < x.size(); ++i) x[i] = sign * value(i, 32767.0f);
          const Matrix matrix(dtype, rows, cols, w);
          // √Σ c² + 6 is not the norm, so that codes of x that are alike are rounded, all the same.
          CHECK(relative_error(run_int16(1, x, m, {matrix.weight()}),
                               expected_linear(x.data(), cols, m, {matrix.in_rows})) <
                (alike ? 1e-4 : 2e-7));
        }
      }
    }
  });
}

// The sum as int16_tile.h defines it.
TEST_CASE("int16 products have the bits of their definition") {
  on_every_int16_target([] {
    Philox random(24);
    const int64_t cols = 2 * kInt16Group + 32;
    for (DType dtype : kHalves) {
      const Matrix matrix(random, dtype, 32, cols);
      const auto x = random_floats(random, cols);
      const auto y = run_int16(1, x, 1, {matrix.weight()});
      for (int64_t j = 0; j < 32; ++j) {
        std::vector<float> w(cols);
        to_float(dtype, matrix.stored.data() + j * row_bytes(dtype, cols), w.data(), cols);
        float sum = 0;
        for (int64_t group = 0; group < cols; group += kInt16Group) {
          const int64_t end = std::min(cols, group + kInt16Group);
          float x_most = 0, w_most = 0, w_squares = 0;
          for (int64_t k = group; k < end; ++k) {
            x_most = std::max(x_most, std::abs(x[k]));
            w_most = std::max(w_most, std::abs(w[k]));
          }
          const int exponent = std::ilogb(w_most) - 1;
          int64_t x_squares = 0, dot = 0;
          for (int64_t k = group; k < end; ++k) {
            const int64_t c = std::lrint(x[k] * (1023.0f / x_most));
            const float u = std::ldexp(w[k], -exponent);
            x_squares += c * c;
            w_squares = std::fma(u, u, w_squares);
          }
          const int shift = (2 * kInt16NormBits - 1 - std::ilogb(w_squares * (1 + 0x1p-10f))) / 2;
          const float w_scale = std::ldexp(1.0f, exponent - shift);
          const float norm = std::sqrt(static_cast<float>(x_squares)) + 6;
          const float steps = std::max(norm / kInt16XNorm, 1023.0f / 32767);
          const float x_scale = x_most / 1023.0f * steps, inverse = 1023.0f / x_most / steps;
          for (int64_t k = group; k < end; ++k) {
            dot += std::lrint(x[k] * inverse) * std::lrint(w[k] / w_scale);
          }
          CHECK(std::abs(dot) < int64_t{1} << 31);
          sum = std::fma(static_cast<float>(dot), x_scale * w_scale, sum);
        }
        CHECK(y[j] == sum);
      }
    }
  });
}

TEST_CASE("int16 products take what is tiny, and show a NaN or an infinity where it belongs") {
  on_every_int16_target([] {
    Philox random(23);
    for (DType dtype : kHalves) {
      for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
        auto values = random_floats(random, 40 * 96);
        values[21 * 96 + 33] = bad;
        const Matrix matrix(dtype, 40, 96, values);
        auto x = random_floats(random, 13 * 96);
        x[7 * 96 + 77] = bad;
        const auto y = run_int16(1, x, 13, {matrix.weight()});
        for (size_t i = 0; i < y.size(); ++i) {
          CHECK(std::isnan(y[i]) == (i / 40 == 7 || i % 40 == 21));
        }
      }
    }
    // Subnormal numbers of bfloat16 are zero here, those of float16 are not.
    const Matrix tiny(DType::kBF16, 2, 32, std::vector<float>(64, 1e-39f));
    for (float y : run_int16(1, std::vector<float>(32, 1e-36f), 1, {tiny.weight()})) CHECK(y == 0);
    const Matrix small(DType::kF16, 1, 32, std::vector<float>(32, 0x1p-24f));
    std::vector<float> x(32);
    x[9] = 1;
    CHECK(std::abs(run_int16(1, x, 1, {small.weight()})[0] - 0x1p-24f) < 1e-6f * 0x1p-24f);
  });
}
