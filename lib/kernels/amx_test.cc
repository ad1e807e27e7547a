#include "lib/kernels/amx.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/amx_emulation.h"
#include "lib/kernels/bf16_dot.h"
#include "lib/kernels/bf16_panels.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/every_target.h"
#include "lib/kernels/random_weights.h"
#include "lib/kernels/reference.h"

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
  auto add = [&](int64_t row, int64_t begin, int64_t end, float*) {
    for (int64_t j = begin; j < end; ++j) y[row * n + j] += bias;
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
  std::vector<double> y;
  for (int64_t i = 0; i < m; ++i) {
    for (const Weight& w : weights) {
      std::vector<float> row(w.cols);
      for (int64_t j = 0; j < w.rows; ++j) {
        to_float(w.dtype, static_cast<const std::byte*>(w.data) + j * row_bytes(w.dtype, w.cols),
                 row.data(), w.cols);
        double sum = 0;
        for (int64_t k = 0; k < w.cols; ++k) {
          sum += double{round(x[i * w.cols + k])} * round(row[k]);
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

constexpr uint32_t kFeatures = 1u << 22 | 1u << 24;
constexpr uint64_t kStates = 3 << 17;

int permissions_asked = 0;

bool grant() {
  ++permissions_asked;
  return true;
}

bool refuse() {
  ++permissions_asked;
  return false;
}

}  // namespace

TEST_CASE("tiles are used only where CPU, system and permission allow it and a product is right") {
  CHECK(tiles_work({kFeatures, kStates, grant, &kEmulatedTileUnit}));
  CHECK_FALSE(tiles_work({kFeatures, kStates, refuse, &kEmulatedTileUnit}));
  permissions_asked = 0;
  CHECK_FALSE(tiles_work({kFeatures, kStates, grant, nullptr}));
  CHECK_FALSE(tiles_work({1u << 24, kStates, grant, &kEmulatedTileUnit}));
  CHECK_FALSE(tiles_work({1u << 22, kStates, grant, &kEmulatedTileUnit}));
  CHECK_FALSE(tiles_work({kFeatures, 1 << 17, grant, &kEmulatedTileUnit}));
  CHECK_FALSE(tiles_work({kFeatures, 0, grant, &kEmulatedTileUnit}));
  CHECK(permissions_asked == 0);

  constexpr TileUnit kWrong = {EmulatedTiles::enter, EmulatedTiles::leave,
                               [](const TileStrips& strips) {
                                 multiply_any_strips<EmulatedTiles>(strips);
                                 strips.c[(2 * kTileRows - 1) * 2 * kTileRows + 17] += 1;
                               }};
  CHECK_FALSE(tiles_work({kFeatures, kStates, grant, &kWrong}));
}

TEST_CASE("without tiles, or under exact products, the unit is null and products are float32") {
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
  force_simd_target(supported_simd_targets().front());
}

TEST_CASE("bfloat16 panels hold both parts, in both orders, from any strides") {
  on_every_target([] {
    Philox random(2);
    for (int64_t depth : {1, 2, 31, 32, 33, 96, 100}) {
      for (int64_t rows : {1, 7, 16}) {
        const int64_t padded = padded_depth(depth);
        const auto values = random_floats(random, 2 * (depth + 1) * 20);
        for (StripSource from : {StripSource{values.data() + 1, depth + 1, 1},
                                 {values.data() + 1, 1, 20},
                                 {values.data() + 1, 2, 40}}) {
          for (PanelOrder order : {PanelOrder::kRows, PanelOrder::kPairs}) {
            std::vector<uint16_t> high(16 * padded + 1, 77), low(high);
            CHECK(pack_bf16_panel(from, rows, depth, order, {high.data(), low.data()}) ==
                  PanelContent::kTwoParts);
            std::vector<uint16_t> alone(high.size(), 77);
            CHECK(pack_bf16_panel(from, rows, depth, order, {alone.data(), nullptr}) ==
                  PanelContent::kOnePart);
            CHECK(alone == high);
            CHECK(high.back() == 77);
            CHECK(low.back() == 77);
            bool right = true;
            for (int64_t i = 0; i < 16; ++i) {
              for (int64_t k = 0; k < padded; ++k) {
                const int64_t at = order == PanelOrder::kRows ? k / 32 * 512 + i * 32 + k % 32
                                                              : k / 2 * 32 + i * 2 + k % 2;
                const bool inside = i < rows && k < depth;
                const float x = inside ? from.x[i * from.row_stride + k * from.col_stride] : 0;
                const float first = to_float(bf16{high[at]}), second = to_float(bf16{low[at]});
                right &= first == as_bf16(x) && second == as_bf16(x - first) &&
                         std::fabs(x - first - second) <= std::ldexp(std::fabs(x), -17);
              }
            }
            CHECK(right);
          }
        }
      }
    }
  });
}

TEST_CASE("bfloat16 parts of special numbers") {
  on_every_target([] {
    auto pack = [](std::vector<float> values) {
      struct {
        PanelContent content;
        std::vector<uint16_t> high = std::vector<uint16_t>(512), low = high;
      } panel;
      panel.content = pack_bf16_panel({values.data(), static_cast<int64_t>(values.size()), 1}, 1,
                                      static_cast<int64_t>(values.size()), PanelOrder::kRows,
                                      {panel.high.data(), panel.low.data()});
      return panel;
    };
    const auto exact = pack({1.0f, -0.5f, 0.0f, -0.0f, 255.0f, 0x1p-126f});
    CHECK(exact.content == PanelContent::kOnePart);
    CHECK(exact.high[1] == 0xbf00);
    CHECK(exact.high[3] == 0x8000);
    const auto largest = pack({-3.4028234e38f});  // would round to infinity
    CHECK(largest.content == PanelContent::kTwoParts);
    const double sum = double{to_float(bf16{largest.high[0]})} + to_float(bf16{largest.low[0]});
    CHECK(std::fabs(sum / -3.4028234e38 - 1) < 0x1p-17);
    const auto infinite = pack({1.0f, -INFINITY, 1.001f});
    CHECK(infinite.content == PanelContent::kNonfinite);
    CHECK(infinite.high[1] == 0xff80);
    CHECK(infinite.low[1] == 0);
    uint32_t bits = 0x7f800001;  // a NaN that is all in the lower half
    const auto nan = pack({1.0f, std::bit_cast<float>(bits)});
    CHECK(nan.content == PanelContent::kNonfinite);
    CHECK(std::isnan(to_float(bf16{nan.high[1]})));
    CHECK(nan.low[1] == 0);
  });
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

namespace {

constexpr float kSums[] = {0};  // stands for the sums in `add` of what sums_of gets

// What one call of the micro-kernel makes of sums that are 0.001 before.
std::vector<float> sums_of(const TileUnit& unit, TileStrips strips) {
  std::vector<float> sums(4 * kTileRows * kTileRows, 1e-3f);
  strips.c = sums.data();
  if (strips.add != nullptr) strips.add = sums.data();
  unit.enter();
  unit.multiply(strips);
  unit.leave();
  return sums;
}

}  // namespace

TEST_CASE("the CPU's dot products of bfloat16 compute what emulated tiles do") {
  if (!has_bf16_dot()) return lumen::testing::skip("this CPU has no AVX512-BF16");
  Philox random(13);
  const int64_t steps = 5, numbers = 2 * kTileRows * kTileDepth * steps;
  std::vector<uint16_t> a(numbers), b(numbers);
  for (auto* bits : {&a, &b}) {
    for (uint16_t& v : *bits) v = to_bf16(static_cast<float>(random.normal())).bits;
  }
  for (int rows : {1, 2}) {
    for (int cols : {1, 2}) {
      for (bool add : {false, true}) {
        const TileStrips strips = {.a_high = a.data(),
                                   .a_low = nullptr,
                                   .b_high = b.data(),
                                   .b_low = nullptr,
                                   .a_pitch = numbers / 2,
                                   .b_pitch = numbers / 2,
                                   .steps = steps,
                                   .row_panels = rows,
                                   .col_panels = cols,
                                   .add = add ? kSums : nullptr,
                                   .add_stride = 2 * kTileRows,
                                   .c = nullptr,
                                   .c_stride = 2 * kTileRows,
                                   .low_low = false};
        const auto emulated = sums_of(kEmulatedTileUnit, strips);
        const auto native = sums_of(*native_dot_unit(), strips);
        for (size_t i = 0; i < native.size(); ++i) {
          CHECK(std::fabs(native[i] - emulated[i]) < 1e-4);  // sums of 160 in another order
        }
      }
    }
  }
}

TEST_CASE("short products on tiles are those of whole ones") {
  Philox random(11);
  constexpr int64_t kPanels = 3, kPanel = kTileRows * kTileDepth * kShortSteps;
  std::vector<uint16_t> a(kPanels * kPanel), b(2 * kPanel);
  for (auto* bits : {&a, &b}) {
    for (uint16_t& v : *bits) v = to_bf16(static_cast<float>(random.normal())).bits;
  }
  for (const int64_t steps : {int64_t{1}, kShortSteps}) {
    TileStrips strips = {.a_high = a.data(),
                         .a_low = nullptr,
                         .b_high = b.data(),
                         .b_low = nullptr,
                         .a_pitch = kPanel,
                         .b_pitch = kPanel,
                         .steps = steps,
                         .row_panels = 1,
                         .col_panels = 2,
                         .add = nullptr,
                         .add_stride = 0,
                         .c = nullptr,
                         .c_stride = 2 * kTileRows,
                         .low_low = false};
    on_every_tile_unit([&] {
      std::vector<float> whole(kPanels * 2 * kTileRows * kTileRows), pieces = whole;
      const TileUnit& unit = *tile_unit();
      unit.enter();
      for (int64_t i = 0; i < kPanels; ++i) {
        strips.row_panels = 1;
        strips.a_high = a.data() + i * kPanel;
        strips.c = pieces.data() + i * 2 * kTileRows * kTileRows;
        unit.multiply(strips);
      }
      strips.row_panels = kPanels;
      strips.a_high = a.data();
      strips.c = whole.data();
      unit.multiply_short(strips);
      unit.leave();
      CHECK(whole == pieces);
    });
  }
}

TEST_CASE("the CPU's tiles compute what the emulated ones do") {
  if (!has_native_tiles()) return lumen::testing::skip("this CPU or system has no AMX");
  Philox random(9);
  const int64_t steps = 5, numbers = 2 * kTileRows * kTileDepth * steps;
  auto numbers_of = [&](float scale) {
    std::vector<uint16_t> bits(numbers);
    for (uint16_t& b : bits) b = to_bf16(scale * static_cast<float>(random.normal())).bits;
    return bits;
  };
  for (float scale : {1.0f, 1e-19f}) {  // the latter with products that are flushed to zero
    const auto a = numbers_of(scale), b = numbers_of(scale), al = numbers_of(1), bl = numbers_of(1);
    for (int rows : {1, 2}) {
      for (int cols : {1, 2}) {
        for (int parts : {0, 1, 2, 3}) {
          const TileStrips strips = {.a_high = a.data(),
                                     .a_low = parts & 1 ? al.data() : nullptr,
                                     .b_high = b.data(),
                                     .b_low = parts & 2 ? bl.data() : nullptr,
                                     .a_pitch = numbers / 2,
                                     .b_pitch = numbers / 2,
                                     .steps = steps,
                                     .row_panels = rows,
                                     .col_panels = cols,
                                     .add = parts > 0 ? kSums : nullptr,
                                     .add_stride = 2 * kTileRows,
                                     .c = nullptr,
                                     .c_stride = 2 * kTileRows,
                                     .low_low = rows == cols};
          CHECK(sums_of(*native_tile_unit(), strips) == sums_of(kEmulatedTileUnit, strips));
        }
      }
    }
  }
}
