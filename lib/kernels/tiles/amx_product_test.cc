// Products of matrices on tiles, and others that round to bfloat16.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/tiles/amx_emulation.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

float as_bf16(float x) {
  return to_float(to_bf16(x));
}

std::vector<float> all_as_bf16(std::vector<float> values) {
  for (float& v : values) v = as_bf16(v);
  return values;
}

// A matrix as gemm takes it.
struct Matrix {
  std::vector<float> values;
  int64_t row_stride, col_stride;
};

Matrix matrix(std::vector<float> values, int64_t rows, int64_t cols, bool transposed) {
  return {std::move(values), transposed ? 1 : cols, transposed ? rows : 1};
}

GemmArgs gemm_args(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b) {
  GemmArgs args{};
  args.m = m, args.n = n, args.k = k;
  args.a = a.values.data(), args.a_row_stride = a.row_stride, args.a_col_stride = a.col_stride;
  args.b = b.values.data(), args.b_row_stride = b.row_stride, args.b_col_stride = b.col_stride;
  return args;
}

// c of `args`, starting from `before` everywhere, at the start of a cache line, its rows `gap`
// numbers apart; checks that nothing around it is written.
std::vector<float> run_gemm(GemmArgs args, int threads, float before = 0, int64_t gap = 3) {
  constexpr float kUntouched = -12345.0f;
  ThreadPool pool(threads);
  args.c_stride = args.n + gap;
  std::vector<std::byte> room(args.m * args.c_stride * sizeof(float) + 64);
  auto* const c = reinterpret_cast<float*>(align_64(room));
  std::fill_n(c, args.m * args.c_stride, kUntouched);
  for (int64_t i = 0; i < args.m; ++i) std::fill_n(c + i * args.c_stride, args.n, before);
  std::vector<std::byte> memory(gemm_workspace_bytes(args.m, args.n, args.k, threads) + 64);
  args.c = c;
  args.workspace = align_64(memory);
  gemm(pool, args);
  std::vector<float> result;
  for (int64_t i = 0; i < args.m; ++i) {
    const float* const row = c + i * args.c_stride;
    result.insert(result.end(), row, row + args.n);
    CHECK(std::all_of(row + args.n, row + args.c_stride, [](float v) { return v == kUntouched; }));
  }
  return result;
}

std::vector<float> run_linear(int threads, const std::vector<float>& x, int64_t m,
                              const std::vector<Weight>& weights, float bias = 0,
                              bool bf16 = false) {
  ThreadPool pool(threads);
  int64_t n = 0;
  for (const Weight& w : weights) n += w.rows;
  const int64_t cols = weights.front().cols;
  std::vector<float> y(m * n);
  const bool as_panels = weights.front().layout == Layout::kRowsAsPanels;
  std::vector<std::byte> memory(linear_workspace_bytes(m, cols, threads, as_panels, bf16) + 64);
  auto add = [&](int64_t, int64_t begin, int64_t end, float* piece) {
    for (int64_t j = 0; j < end - begin; ++j) piece[j] += bias;
  };
  const Epilogue epilogue = add;
  linear(pool, {.x = x.data(),
                .x_stride = cols,
                .m = m,
                .weights = weights,
                .y = y.data(),
                .y_stride = n,
                .workspace = align_64(memory),
                .epilogue = &epilogue,
                .bf16 = bf16});
  return y;
}

// Σ_k x[i][k] · w[j][k] in double, for x and the stored weights as `round` makes them.
std::vector<double> expected_linear(const std::vector<float>& x, int64_t m,
                                    const std::vector<Weight>& weights,
                                    const std::function<float(float)>& round) {
  std::vector<float> rounded = x;
  for (float& v : rounded) v = round(v);
  int64_t n = 0, column = 0;
  for (const Weight& w : weights) n += w.rows;
  std::vector<double> y(m * n);
  for (const Weight& w : weights) {
    std::vector<float> row(w.cols);
    for (int64_t j = 0; j < w.rows; ++j, ++column) {
      to_float(w.dtype, static_cast<const std::byte*>(w.data) + j * row_bytes(w.dtype, w.cols),
               row.data(), w.cols);
      for (float& v : row) v = round(v);
      for (int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < w.cols; ++k) sum += double{rounded[i * w.cols + k]} * row[k];
        y[i * n + column] = sum;
      }
    }
  }
  return y;
}

}  // namespace

TEST_CASE("without tiles, or under exact products, the unit is null and products are float32") {
  const std::string chosen = chosen_simd_target();
  for (const std::string& target : supported_simd_targets()) {
    force_simd_target(target);
    CHECK((tile_unit() != nullptr) == (target == "amx"));
  }
  force_simd_target(supported_simd_targets().front());
  CHECK((chosen_simd_target() == "amx") == has_native_tiles());

  Philox random(1);
  const int64_t m = 48, n = 40, k = 100;
  const Matrix a = matrix(random_floats(random, m * k), m, k, false);
  const Matrix b = matrix(random_floats(random, k * n), k, n, false);
  const GemmArgs args = gemm_args(m, n, k, a, b);
  force_simd_target(compiled_simd_targets().back());
  const auto plain = run_gemm(args, 1);
  const TileUnitScope scope(&kEmulatedTileUnit);
  CHECK(tile_unit() == &kEmulatedTileUnit);
  CHECK(run_gemm(args, 1) != plain);
  {
    const ExactProductsScope exact;
    CHECK(tile_unit() == nullptr);
    const ExactProductsScope inner(false);
    CHECK(run_gemm(args, 2) == plain);
  }
  CHECK(tile_unit() == &kEmulatedTileUnit);
  force_simd_target(chosen);
}

TEST_CASE("gemm on tiles agrees with the naive loop for all layouts and shapes") {
  on_every_tile_unit([] {
    Philox random(3);
    struct Size {
      int64_t m, n, k;
    };
    for (Size s : {Size{32, 16, 32},
                   {33, 17, 33},
                   {47, 31, 65},
                   {48, 32, 64},
                   {65, 100, 257},     // more than one block of columns of the operands
                   {40, 300, 40},      // more than one block of columns
                   {300, 40, 40},      // of the turned product
                   {530, 20, 35},      // more than one pass of rows
                   {48, 70, 530},      // halves of the sums, where both operands have columns
                   {70, 33, 1100},     // likewise, of the turned product
                   {35, 16, 8300}}) {  // more than one pass of columns
      INFO(s.m << " x " << s.n << " x " << s.k);
      for (bool a_transposed : {false, true}) {
        for (bool b_transposed : {false, true}) {
          if (s.k > 8192 && a_transposed != b_transposed) continue;
          const Matrix a = matrix(random_floats(random, s.m * s.k), s.m, s.k, a_transposed);
          const Matrix b = matrix(random_floats(random, s.k * s.n), s.k, s.n, b_transposed);
          GemmArgs args = gemm_args(s.m, s.n, s.k, a, b);
          const auto expected = reference::gemm(args);
          const auto one = run_gemm(args, 1);
          CHECK(relative_error(one, expected) < 4e-6);
          if (a_transposed && b_transposed) continue;
          CHECK(run_gemm(args, 2) == one);
          CHECK(run_gemm(args, 3) == one);
          std::vector<int> seen(s.m * s.n);
          auto count = [&](int64_t row, int64_t begin, int64_t end, float*) {
            for (int64_t j = begin; j < end; ++j) ++seen[row * s.n + j];
          };
          const Epilogue epilogue = count;
          args.epilogue = &epilogue;
          CHECK(relative_error(run_gemm(args, 1), expected) < 4e-6);
          CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
          args.epilogue = nullptr;
          args.accumulate = true;
          auto more = expected;
          for (double& v : more) v += 1;
          CHECK(relative_error(run_gemm(args, 2, 1.0f), more) < 4e-6);
        }
      }
    }
  });
}

TEST_CASE("sums on tiles get to C with the same bits whatever its rows are like") {
  on_every_tile_unit([] {
    Philox random(14);
    struct Size {
      int64_t m, n, k;
      bool bf16;
    };
    // Rows that are cache lines are stored tile by tile, those of the last, which is more than 32
    // MiB, past the caches; others are moved. The third is divided by rows.
    for (Size s : {Size{70, 96, 600, false},
                   {47, 112, 40, false},
                   {200, 48, 300, false},
                   {1026, 8336, 32, true}}) {
      INFO(s.m << " x " << s.n << " x " << s.k);
      const Matrix a = matrix(random_floats(random, s.m * s.k), s.m, s.k, false);
      const Matrix b = matrix(random_floats(random, s.k * s.n), s.k, s.n, true);
      GemmArgs args = gemm_args(s.m, s.n, s.k, a, b);
      args.bf16 = s.bf16;
      auto finish = [](int64_t row, int64_t begin, int64_t end, float* piece) {
        for (int64_t j = begin; j < end; ++j) piece[j - begin] += static_cast<float>(row - 2 * j);
      };
      const Epilogue epilogue = finish;
      args.epilogue = &epilogue;
      const auto finished = run_gemm(args, 1);
      CHECK(run_gemm(args, 2, 0, 0) == finished);
      args.epilogue = nullptr;
      const auto moved = run_gemm(args, 1);
      CHECK(run_gemm(args, 2, 0, 0) == moved);
      if (s.bf16) continue;  // large
      CHECK(run_gemm(args, 1, 0, 0) == moved);
      CHECK(run_gemm(args, 2, 0, 16) == moved);
      auto more = reference::gemm(args);
      for (double& v : more) v += 1;
      args.accumulate = true;
      CHECK(relative_error(run_gemm(args, 2, 1.0f, 0), more) < 4e-6);
    }
  });
}

TEST_CASE("products of bfloat16 numbers on tiles are as good as float32's") {
  on_every_tile_unit([] {
    Philox random(4);
    const int64_t m = 37, n = 50, k = 600;
    const Matrix a = matrix(all_as_bf16(random_floats(random, m * k)), m, k, false);
    const Matrix b = matrix(all_as_bf16(random_floats(random, k * n)), k, n, true);
    const GemmArgs args = gemm_args(m, n, k, a, b);
    CHECK(relative_error(run_gemm(args, 1), reference::gemm(args)) < 5e-7);
  });
}

TEST_CASE("infinities and NaNs come out of tiles as out of float32") {
  on_every_tile_unit([] {
    Philox random(5);
    const int64_t m = 70, n = 40, k = 300;
    Matrix a = matrix(random_floats(random, m * k), m, k, false);
    Matrix b = matrix(random_floats(random, k * n), k, n, false);
    a.values[3 * k + 7] = INFINITY;
    a.values[50 * k + 290] = std::nanf("");
    b.values[9 * n + 20] = -INFINITY;
    b.values[7 * n + 1] = 1.5f;  // no low part to multiply the infinity with
    const GemmArgs args = gemm_args(m, n, k, a, b);
    const auto actual = run_gemm(args, 2);
    const auto expected = reference::gemm(args);
    for (size_t i = 0; i < actual.size(); ++i) {
      INFO("element " << i << ": " << actual[i] << ", not " << expected[i]);
      if (std::isfinite(expected[i])) {
        CHECK(std::fabs(actual[i] - expected[i]) < 1e-3);
      } else {
        CHECK(std::isnan(actual[i]) == std::isnan(expected[i]));
        CHECK((std::isnan(expected[i]) || actual[i] == static_cast<float>(expected[i])));
      }
    }
  });
}

TEST_CASE("linear on tiles agrees with the naive loop for every kind of weight") {
  on_every_tile_unit([] {
    Philox random(6);
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      INFO(name(dtype));
      for (int64_t cols : {64, 96, 800}) {
        for (int64_t m : {32, 33, 49}) {
          const int64_t rows = 7 + cols % 55;
          INFO("m = " << m << ", cols = " << cols << ", rows = " << rows);
          const auto bytes = random_weights(random, dtype, rows, cols);
          const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols}};
          const auto x = random_floats(random, m * cols);
          const auto y = run_linear(1, x, m, weights);
          const auto panels = pack(weights[0]);
          CHECK(run_linear(1, x, m, {in_panels(weights[0], panels)}) == y);
          const auto exact = expected_linear(x, m, weights, [](float v) { return v; });
          const double bound = dtype == DType::kF32 ? 4e-6 : dtype == DType::kF16 ? 5e-6 : 4e-3;
          CHECK(relative_error(y, exact) < bound);
          if (bound > 1e-3) {  // what else than the rounding is wrong
            CHECK(relative_error(y, expected_linear(x, m, weights, as_bf16)) < 5e-7);
          }
        }
      }
    }
    // Blocks of 256 columns; two weights meet inside a tile.
    for (DType dtype : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      const int64_t cols = 768, m = 35;
      const auto bytes = random_weights(random, dtype, 21, cols);
      const Weight w{bytes.data(), dtype, 21, cols};
      const auto panels = pack(w);
      const auto x = random_floats(random, m * cols);
      const auto y = run_linear(1, x, m, {w, w});
      INFO(name(dtype));
      const auto exact = expected_linear(x, m, {w, w}, [](float v) { return v; });
      CHECK(relative_error(y, exact) < 4e-3);
      CHECK(run_linear(1, x, m, {in_panels(w, panels), in_panels(w, panels)}) == y);
    }
    // Odd widths, rows at odd addresses.
    for (int64_t cols : {1, 31, 33, 515}) {
      for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        auto bytes = random_weights(random, dtype, 21, cols);
        bytes.insert(bytes.begin(), std::byte{0});
        const std::vector<Weight> weights{{bytes.data() + 1, dtype, 21, cols}};
        const auto x = all_as_bf16(random_floats(random, 35 * cols));
        const auto exact = expected_linear(x, 35, weights, [](float v) { return v; });
        INFO(name(dtype) << ", cols = " << cols);
        CHECK(relative_error(run_linear(2, x, 35, weights), exact) < 4e-6);
      }
    }
  });
}

TEST_CASE("weights of several types share one call on tiles, and threads change no bit") {
  on_every_tile_unit([] {
    Philox random(7);
    const int64_t cols = 320, m = 66;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Weight> weights;
    struct Part {
      DType dtype;
      int64_t rows;
    };
    for (Part part : {Part{DType::kQ8_0, 70},
                      {DType::kBF16, 5},
                      {DType::kBF16, 40},
                      {DType::kF16, 30},
                      {DType::kF32, 9},
                      {DType::kQ4_0, 33}}) {
      bytes.push_back(random_weights(random, part.dtype, part.rows, cols));
      weights.push_back({bytes.back().data(), part.dtype, part.rows, cols});
    }
    const auto x = random_floats(random, m * cols);
    const auto one = run_linear(1, x, m, weights, 0.5f);
    auto expected = expected_linear(x, m, weights, [](float v) { return v; });
    for (double& v : expected) v += 0.5;
    CHECK(relative_error(one, expected) < 4e-3);
    CHECK(run_linear(2, x, m, weights, 0.5f) == one);
    CHECK(run_linear(3, x, m, weights, 0.5f) == one);
    // Fewer columns than threads times a strip: rows are divided.
    const std::vector<Weight> narrow(weights.begin() + 1, weights.begin() + 2);
    CHECK(run_linear(3, x, m, narrow) == run_linear(1, x, m, narrow));
  });
}

TEST_CASE("the rounding of activations to bfloat16 is finer than that to int8") {
  Philox random(8);
  const int64_t cols = 2048, rows = 64, m = 32;
  const auto bytes = random_weights(random, DType::kQ8_0, rows, cols);
  const std::vector<Weight> weights{{bytes.data(), DType::kQ8_0, rows, cols}};
  const auto x = random_floats(random, m * cols);
  const auto exact = expected_linear(x, m, weights, [](float v) { return v; });
  on_every_target([&] {  // none of which rounds to bfloat16 by itself
    const double int8_error = relative_error(run_linear(1, x, m, weights), exact);
    const TileUnitScope scope(&kEmulatedTileUnit);
    CHECK(relative_error(run_linear(1, x, m, weights), exact) < 0.6 * int8_error);
  });
}

// Runs body() with every tile unit and with the products of every SIMD target.
template <class Body>
void on_every_bf16_unit(Body&& body) {
  on_every_tile_unit(body);
  on_every_target(body);
}

TEST_CASE("products rounded to bfloat16 are those of rounded numbers") {
  on_every_bf16_unit([] {
    Philox random(10);
    struct Size {
      int64_t m, n, k;
    };
    for (Size s :
         {Size{1, 1, 1}, {5, 40, 33}, {40, 50, 600}, {130, 33, 31}, {33, 270, 96}, {530, 40, 64}}) {
      INFO(s.m << " x " << s.n << " x " << s.k);
      for (bool transposed : {false, true}) {
        const auto a_values = random_floats(random, s.m * s.k);
        const auto b_values = random_floats(random, s.k * s.n);
        const Matrix a = matrix(a_values, s.m, s.k, transposed);
        const Matrix b = matrix(b_values, s.k, s.n, !transposed);
        GemmArgs args = gemm_args(s.m, s.n, s.k, a, b);
        args.bf16 = true;
        const auto y = run_gemm(args, 1);
        CHECK(run_gemm(args, 2) == y);
        const Matrix rounded_a = matrix(all_as_bf16(a_values), s.m, s.k, transposed);
        const Matrix rounded_b = matrix(all_as_bf16(b_values), s.k, s.n, !transposed);
        const GemmArgs rounded = gemm_args(s.m, s.n, s.k, rounded_a, rounded_b);
        CHECK(relative_error(y, reference::gemm(rounded)) < 5e-7);
      }
    }
  });
}

TEST_CASE("linear rounds to bfloat16 if asked to, whatever the number of rows") {
  on_every_bf16_unit([] {
    Philox random(11);
    const int64_t cols = 100;
    const auto floats = random_weights(random, DType::kF32, 40, cols);
    const auto narrow = random_weights(random, DType::kBF16, 19, cols);
    const std::vector<Weight> weights{{floats.data(), DType::kF32, 40, cols},
                                      {narrow.data(), DType::kBF16, 19, cols}};
    for (int64_t m : {1, 3, 9, 31, 32, 60}) {
      INFO(m << " rows");
      const auto x = random_floats(random, m * cols);
      const auto y = run_linear(1, x, m, weights, 0.5f, true);
      CHECK(run_linear(2, x, m, weights, 0.5f, true) == y);
      auto expected = expected_linear(x, m, weights, as_bf16);
      for (double& v : expected) v += 0.5;
      CHECK(relative_error(y, expected) < 5e-7);
    }
  });
}

TEST_CASE("many rows with bfloat16 panels are rounded where dot products of them are fast") {
  Philox random(12);
  const int64_t m = 45, cols = 288;
  const auto bytes = random_weights(random, DType::kBF16, 70, cols);
  const Weight w{bytes.data(), DType::kBF16, 70, cols};
  const auto packed = pack(w);
  const auto x = random_floats(random, m * cols);
  const auto rounded = expected_linear(x, m, {w}, as_bf16);
  const auto exact = expected_linear(x, m, {w}, [](float v) { return v; });
  on_every_target([&] {
    const auto y = run_linear(1, x, m, {in_panels(w, packed)});
    CHECK(relative_error(y, fast_bf16_dot() || uses_amx() ? rounded : exact) < 3e-4);
    Weight rows = w;
    rows.layout = Layout::kRowsAsPanels;
    CHECK(run_linear(2, x, m, {rows}) == y);
    const ExactProductsScope scope;
    CHECK(relative_error(run_linear(1, x, m, {in_panels(w, packed)}), exact) < 5e-7);
  });
}
