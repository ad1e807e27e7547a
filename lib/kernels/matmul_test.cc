#include "lib/kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/testing/run_linear.h"
#include "lib/kernels/weights/dot_rows.h"
#include "lib/kernels/weights/dot_rows_vnni.h"

using namespace lumen;
using namespace lumen::kernels;

TEST_CASE("linear agrees with the naive loop for every type, few and many rows") {
  on_every_target([] {
    Philox random(1);
    for (DType dtype : kWeightTypes) {
      INFO(name(dtype));
      const int64_t cols = 512 + 256, rows = 37;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols}};
      for (int64_t m : {1, 2, 3, 4, 7, 9, 13, 25, 30}) {
        const int64_t x_stride = cols + 5;
        const auto x = random_floats(random, m * x_stride + 1);
        const auto actual = run_linear(1, x.data() + 1, x_stride, m, weights);
        INFO("m = " << m);
        CHECK(relative_error(actual, expected_linear(x.data() + 1, x_stride, m, weights)) < 2e-6);
      }
    }
  });
}

TEST_CASE("linear handles every number of rows and odd widths") {
  on_every_target([] {
    Philox random(2);
    for (int64_t cols : {1, 3, 31, 32, 33, 515, 600}) {
      const int64_t rows = 1 + cols % 35;
      const auto bytes = random_weights(random, DType::kF16, rows, cols);
      const std::vector<Weight> weights{{bytes.data(), DType::kF16, rows, cols}};
      for (int64_t m = 1; m <= 40; m += cols < 100 ? 1 : 7) {
        const auto x = random_floats(random, m * cols);
        const auto actual = run_linear(1, x.data(), cols, m, weights);
        INFO("cols = " << cols << ", m = " << m);
        CHECK(relative_error(actual, expected_linear(x.data(), cols, m, weights)) < 2e-6);
      }
    }
    for (int64_t cols : {32, 96, 544}) {  // an odd number of 32-blocks, and more than one k-block
      const auto bytes = random_weights(random, DType::kQ5_1, 33, cols);
      const std::vector<Weight> weights{{bytes.data(), DType::kQ5_1, 33, cols}};
      for (int64_t m : {1, 11, 29}) {
        const auto x = random_floats(random, m * cols);
        const auto actual = run_linear(1, x.data(), cols, m, weights);
        CHECK(relative_error(actual, expected_linear(x.data(), cols, m, weights)) < 2e-6);
      }
    }
  });
}

TEST_CASE("one row at a time gives what many rows at once give") {
  on_every_target([] {
    Philox random(3);
    for (DType dtype : kWeightTypes) {
      INFO(name(dtype));
      const int64_t cols = 1024, rows = 50, m = 33;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols}};
      const auto x = random_floats(random, m * cols);
      const auto together = run_linear(1, x.data(), cols, m, weights);
      std::vector<double> apart;
      for (int64_t i = 0; i < m; ++i) {
        for (float v : run_linear(1, x.data() + i * cols, cols, 1, weights)) apart.push_back(v);
      }
      CHECK(relative_error(together, apart) < 1e-6);
      // With few rows the result does not depend on their number at all.
      for (int64_t few : {3, 8}) {
        const auto some = run_linear(1, x.data(), cols, few, weights);
        CHECK(std::equal(some.begin(), some.end(), apart.begin()));
      }
    }
  });
}

TEST_CASE("weights of several types share one call, and threads change no bit") {
  on_every_target([] {
    Philox random(4);
    const int64_t cols = 512;
    const auto a = random_weights(random, DType::kQ4_K, 70, cols);
    const auto b = random_weights(random, DType::kQ6_K, 5, cols);
    const auto c = random_weights(random, DType::kBF16, 130, cols);
    const auto d = random_weights(random, DType::kQ8_0, 33, cols);
    const std::vector<Weight> weights{{a.data(), DType::kQ4_K, 70, cols},
                                      {b.data(), DType::kQ6_K, 5, cols},
                                      {c.data(), DType::kBF16, 130, cols},
                                      {d.data(), DType::kQ8_0, 33, cols}};
    for (int64_t m : {1, 2, 5, 13, 25, 130}) {
      INFO("m = " << m);
      const auto x = random_floats(random, m * cols);
      const auto one = run_linear(1, x.data(), cols, m, weights);
      CHECK(relative_error(one, expected_linear(x.data(), cols, m, weights)) < 2e-6);
      CHECK(run_linear(2, x.data(), cols, m, weights) == one);
      CHECK(run_linear(3, x.data(), cols, m, weights) == one);
    }
  });
}

TEST_CASE("the VNNI kernel agrees with the portable one") {
  if (vnni_bits() != 512) return lumen::testing::skip("this CPU has no AVX512-VNNI");
  Philox random(8);
  for (DType dtype : kWeightTypes) {
    if (!is_quantized(dtype)) continue;
    INFO(name(dtype));
    // One, two, three and many blocks: pairs, fours and an odd rest.
    for (int64_t blocks : {1, 2, 3, 5, 8, 23}) {
      const int64_t cols = blocks * info(dtype).block_elements, rows = 9, m = 7;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const Weight w{bytes.data(), dtype, rows, cols};
      std::vector<std::byte> memory;
      const QuantizedRows x = quantize(random_floats(random, m * cols), m, cols, memory);
      std::vector<float> native(m * rows), portable(m * rows);
      dot_rows_vnni(w, 0, rows, x, m, native.data(), rows);
      dot_rows_portable(w, 0, rows, x, m, portable.data(), rows);
      CHECK(relative_error(native, {portable.begin(), portable.end()}) < 1e-6);
    }
  }
}

TEST_CASE("a NaN or infinity in the activations is never hidden by their rounding") {
  on_every_target([] {
    Philox random(5);
    const auto bytes = random_weights(random, DType::kQ4_1, 8, 64);
    const std::vector<Weight> weights{{bytes.data(), DType::kQ4_1, 8, 64}};
    for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      for (int64_t m : {1, 12, 30}) {
        auto x = random_floats(random, m * 64);
        x[40] = bad;
        const auto y = run_linear(1, x.data(), 64, m, weights);
        for (int64_t j = 0; j < 8; ++j) CHECK(std::isnan(y[j]));
        for (size_t j = 8; j < y.size(); ++j) CHECK(std::isfinite(y[j]));
      }
    }
    const std::vector<float> tiny(64, 1e-40f);
    for (float y : run_linear(1, tiny.data(), 64, 1, weights)) CHECK(y == 0.0f);
  });
}

TEST_CASE("empty products are zero and empty inputs do nothing") {
  ThreadPool pool(2);
  const Weight none{nullptr, DType::kF32, 5, 0};
  for (int64_t m : {1, 20}) {
    std::vector<float> y(m * 5, 7.0f);
    std::vector<std::byte> memory(linear_workspace_bytes(m, 0, 2) + 64);
    linear(pool, {.x = y.data(),
                  .x_stride = 0,
                  .m = m,
                  .weights = {&none, 1},
                  .y = y.data(),
                  .y_stride = 5,
                  .workspace = align_64(memory)});
    CHECK(std::all_of(y.begin(), y.end(), [](float v) { return v == 0.0f; }));
  }
  linear(pool, {.x = nullptr,
                .x_stride = 0,
                .m = 0,
                .weights = {&none, 1},
                .y = nullptr,
                .y_stride = 0,
                .workspace = nullptr});
}

TEST_CASE("linear_workspace_bytes never decreases with the number of rows") {
  for (int64_t cols : {32, 2048, 5632}) {
    size_t before = 0;
    for (int64_t m = 1; m < 1200; ++m) {
      const size_t bytes = linear_workspace_bytes(m, cols, 2);
      CHECK(bytes >= before);
      before = bytes;
    }
  }
}

TEST_CASE("gemm agrees with the naive loop for all layouts and shapes") {
  on_every_target([] {
    Philox random(6);
    struct Size {
      int64_t m, n, k;
    };
    for (Size s : {Size{1, 1, 1},
                   {2, 3, 5},
                   {13, 33, 31},
                   {12, 32, 64},
                   {40, 10, 600},
                   {5, 70, 9},
                   {6, 16, 1100},
                   {520, 3, 7},
                   {3, 4, 0}}) {
      const auto a = random_floats(random, s.m * s.k), b = random_floats(random, s.k * s.n);
      for (bool a_transposed : {false, true}) {
        for (bool b_transposed : {false, true}) {
          GemmArgs args{};
          args.m = s.m, args.n = s.n, args.k = s.k;
          args.a = a.data(), args.b = b.data();
          args.a_row_stride = a_transposed ? 1 : s.k;
          args.a_col_stride = a_transposed ? s.m : 1;
          args.b_row_stride = b_transposed ? 1 : s.n;
          args.b_col_stride = b_transposed ? s.k : 1;
          args.c_stride = s.n + 1;
          const auto expected = reference::gemm(args);
          std::vector<float> first;
          for (int threads : {1, 2, 3}) {
            ThreadPool pool(threads);
            std::vector<float> c(s.m * args.c_stride, -3.0f);
            std::vector<std::byte> memory(gemm_workspace_bytes(s.m, s.n, s.k, threads) + 64);
            args.c = c.data();
            args.workspace = align_64(memory);
            gemm(pool, args);
            std::vector<float> actual;
            for (int64_t i = 0; i < s.m; ++i) {
              for (int64_t j = 0; j < s.n; ++j) actual.push_back(c[i * args.c_stride + j]);
              CHECK(c[i * args.c_stride + s.n] == -3.0f);
            }
            INFO(s.m << " x " << s.n << " x " << s.k << ", threads " << threads);
            CHECK(relative_error(actual, expected) < 2e-6);
            if (threads == 1) first = actual;
            CHECK(actual == first);
          }
        }
      }
    }
  });
}
