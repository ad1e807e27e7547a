// Products on int8 tiles: of quantised panels with few rows (panel_dot_tiles.h) and of float16
// panels with many (fixed_tiles.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/tiles/fixed_tiles.h"
#include "lib/kernels/weights/panel_dot_native.h"
#include "lib/kernels/weights/panel_dot_tiles.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

// Then the running test is skipped.
bool lacks_int8_tiles() {
  if (uses_int8_tiles()) return false;
  lumen::testing::skip("this CPU has no tiles of int8 (AMX-INT8)");
  return true;
}

std::vector<float> run_linear(int threads, const std::vector<float>& x, int64_t m,
                              const std::vector<Weight>& weights) {
  const CodeProduct product = {
      [](int64_t rows, int64_t cols, int count) {
        return linear_workspace_bytes(rows, cols, count, true);
      },
      [](ThreadPool& pool, const LinearArgs& args, std::span<const Weight> all, int64_t) {
        LinearArgs whole = args;
        whole.weights = all;
        linear(pool, whole);
      }};
  return run_product(product, threads, x, m, weights);
}

bool same_bits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

std::vector<float> first_rows(const std::vector<float>& x, int64_t numbers) {
  return {x.begin(), x.begin() + numbers};
}

}  // namespace

TEST_CASE("panels on int8 tiles give the bits of panels in vectors") {
  if (lacks_int8_tiles()) return;
  Philox random(14);
  for (DType dtype : kWeightTypes) {
    if (!is_quantized(dtype)) continue;
    INFO(name(dtype));
    for (int64_t blocks : {1, 2, 3, 5, 11}) {
      const int64_t cols = blocks * info(dtype).block_elements, rows = 37, most = 40;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const Weight w{bytes.data(), dtype, rows, cols};
      const auto panels = pack(w);
      auto values = random_floats(random, most * cols);
      values[3 * cols] = std::numeric_limits<float>::quiet_NaN();
      std::vector<std::byte> memory;
      const StripRows x = quantize_strips(native_panel_strips, values, most, cols, memory);
      std::vector<float> expected(most * rows);
      dot_panels_native(in_panels(w, panels), 0, rows, x, expected.data(), rows);
      for (int64_t m = 1; m <= most; ++m) {
        INFO(cols << " columns, m = " << m);
        std::vector<std::byte> room;
        const StripRows tiles = quantize_strips(tile_strips, values, m, cols, room);
        // All, and a range that begins and ends inside panels, in rows with gaps.
        for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, rows}, {9, 35}}) {
          const int64_t stride = end - begin + 2;
          std::vector<float> y(m * stride, -1.0f);
          dot_panels_tiles(in_panels(w, panels), begin, end, tiles, y.data(), stride);
          for (int64_t r = 0; r < m; ++r) {
            const float* const row = y.data() + r * stride;
            CHECK(same_bits(row, expected.data() + r * rows + begin, end - begin));
            CHECK((row[stride - 2] == -1.0f && row[stride - 1] == -1.0f));
          }
        }
      }
    }
  }
}

TEST_CASE("few rows of quantised panels have the same bits on tiles, whatever they are beside") {
  if (lacks_int8_tiles()) return;
  Philox random(15);
  const int64_t cols = 768, most = 24;
  std::vector<std::vector<std::byte>> memory;
  std::vector<Weight> weights;
  for (DType dtype : kWeightTypes) {
    memory.push_back(random_weights(random, dtype, 21, cols));
    const Weight rows{memory.back().data(), dtype, 21, cols, Layout::kRowsAsPanels};
    weights.push_back(rows);
    const Weight plain{rows.data, dtype, 21, cols};
    memory.push_back(pack(plain));
    weights.push_back(in_panels(plain, memory.back()));
  }
  const auto x = random_floats(random, most * cols);
  force_simd_target("avx512");
  const auto expected = run_linear(1, x, most, weights);
  force_simd_target("amx");
  const int64_t n = static_cast<int64_t>(expected.size()) / most;
  for (int64_t m = 1; m <= most; ++m) {
    for (int threads : {1, 2, 3}) {
      INFO("m = " << m << ", " << threads << " threads");
      const auto y = run_linear(threads, first_rows(x, m * cols), m, weights);
      CHECK(same_bits(y.data(), expected.data(), m * n));
    }
  }
}

namespace {

// A panel of fixed-point numbers, as fixed_tiles.h describes it.
struct FixedPanel {
  FixedPanel(bool of_b, int64_t columns)
      : is_b(of_b), depth(columns), room(kTileRows * native_fixed_unit()->panel_depth(depth)) {}

  struct Parts {
    int high, low;
  };
  Parts parts(int64_t row, int64_t k) const {
    const int64_t four = k % 16, first = k / 64 * 2048 + k % 64 / 16;
    const auto* bytes = reinterpret_cast<const int8_t*>(room.data());
    const int8_t* high = bytes + first + (is_b ? 64 * four + 4 * row : 64 * row + 4 * four);
    return {high[0], high[1024]};
  }
  // Of the first part, and of the product of low parts sixteen further.
  float scale(int64_t at) const {
    float value;
    const size_t place = divide_up(depth, 64) * 2048 + at * sizeof value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(room.data()) + place, sizeof value);
    return value;
  }
  // Whether it stands for `number`, to half a unit and what the inverse of a scale is wrong by.
  bool holds(int64_t row, int64_t k, float unit, float number) const {
    const Parts p = parts(row, k);
    const auto code = static_cast<float>(256 * p.high + p.low);
    return std::fabs(unit * code - number) <= 0.505f * unit;
  }

  bool is_b;
  int64_t depth;
  std::vector<uint16_t> room;
};

std::vector<uint16_t> random_halves(Philox& random, int64_t count) {
  std::vector<uint16_t> halves(count);
  for (uint16_t& half : halves) half = to_f16(static_cast<float>(random.normal())).bits;
  return halves;
}

}  // namespace

TEST_CASE("fixed-point panels hold numbers to half a unit of the 32639th part of their largest") {
  if (lacks_int8_tiles()) return;
  Philox random(16);
  for (int64_t depth : {1, 15, 17, 64, 100, 509, 512}) {
    for (int64_t rows : {1, 7, 16}) {
      INFO(rows << " rows of " << depth);
      auto x = random_floats(random, 16 * depth);
      if (depth > 1) x[depth - 1] *= 1000;  // of row 0
      const auto halves = random_halves(random, 16 * depth);
      FixedPanel a(false, depth), b(true, depth);
      pack_fixed_rows(x.data(), depth, rows, depth, a.room.data());
      pack_fixed_columns(halves.data(), depth, b.room.data());
      bool right = true;
      for (int64_t i = 0; i < 16; ++i) {
        float squares = 0, largest = 0;
        const float unit = a.scale(i) / 256;
        for (int64_t k = 0; k < round_up(depth, 64); ++k) {
          const float number = i < rows && k < depth ? x[i * depth + k] : 0.0f;
          const float half = k < depth ? to_float(f16{halves[k * 16 + i]}) : 0.0f;
          right &= a.holds(i, k, unit, number) && b.holds(i, k, b.scale(i), half);
          squares += number * number;
          largest = std::max(largest, std::fabs(number));
        }
        CHECK(unit == largest / 32639);
        const bool outlier = largest > 12 * std::sqrt(squares / static_cast<float>(depth));
        CHECK(a.scale(16 + i) == (outlier ? unit : 0));
      }
      CHECK(right);
    }
  }
}

namespace {

// The panels of an operand of the unit, one behind the other.
struct FixedPair {
  explicit FixedPair(const std::vector<FixedPanel>& panels) : memory(64 + 2 * bytes(panels[0])) {
    for (size_t i = 0; i < 2; ++i) {
      std::memcpy(align_64(memory) + i * bytes(panels[i]), panels[i].room.data(), bytes(panels[i]));
    }
  }
  static size_t bytes(const FixedPanel& panel) { return panel.room.size() * sizeof(uint16_t); }
  const uint16_t* data() { return reinterpret_cast<const uint16_t*>(align_64(memory)); }

  std::vector<std::byte> memory;
};

// An element as fixed_tiles.h defines it.
float fixed_element(const FixedPanel& a, int64_t i, const FixedPanel& b, int64_t j, float add) {
  int64_t high = 0, mixed = 0, low = 0;
  for (int64_t k = 0; k < a.depth; ++k) {
    const FixedPanel::Parts p = a.parts(i, k), q = b.parts(j, k);
    high += p.high * q.high;
    mixed += p.high * q.low + p.low * q.high;
    low += p.low * q.low;
  }
  const float sum = std::fma(256.0f, static_cast<float>(high), static_cast<float>(mixed));
  const float c = std::fma(sum * a.scale(i), b.scale(j), add);
  return std::fma(static_cast<float>(low) * a.scale(16 + i), b.scale(j), c);
}

}  // namespace

TEST_CASE("products of fixed-point panels have the bits of their definition") {
  if (lacks_int8_tiles()) return;
  Philox random(17);
  const TileUnit& unit = *native_fixed_unit();
  for (int64_t depth : {40, 64, 200, 512}) {
    const int64_t pitch = kTileRows * unit.panel_depth(depth);
    std::vector<FixedPanel> a(2, {false, depth}), b(2, {true, depth});
    for (size_t i = 0; i < 2; ++i) {
      auto x = random_floats(random, 16 * depth);
      if (static_cast<int64_t>(i) == depth / 200 % 2)
        x[4 * depth + 3] = 1000;  // in the first panel, or the second
      pack_fixed_rows(x.data(), depth, 16, depth, a[i].room.data());
      pack_fixed_columns(random_halves(random, 16 * depth).data(), depth, b[i].room.data());
    }
    FixedPair all_a(a), all_b(b);
    const auto before = random_floats(random, 32 * 32);
    for (int bits = 0; bits < 8; ++bits) {
      const int row_panels = 1 + bits % 2, col_panels = 1 + bits / 2 % 2;
      const bool add = bits >= 4;
      std::vector<float> c(32 * 48, -1.0f);
      unit.enter();
      unit.multiply({.a_high = all_a.data(),
                     .a_low = nullptr,
                     .b_high = all_b.data(),
                     .b_low = nullptr,
                     .a_pitch = pitch,
                     .b_pitch = pitch,
                     .steps = unit.panel_depth(depth) / kTileDepth,
                     .row_panels = row_panels,
                     .col_panels = col_panels,
                     .add = add ? before.data() : nullptr,
                     .add_stride = 32,
                     .c = c.data(),
                     .c_stride = 48,
                     .low_low = false});
      unit.leave();
      int wrong = 0;
      for (int64_t i = 0; i < 32; ++i) {
        for (int64_t j = 0; j < 48; ++j) {
          const bool inside = i < 16 * row_panels && j < 16 * col_panels;
          const float start = inside && add ? before[i * 32 + j] : 0.0f;
          wrong += c[i * 48 + j] !=
                   (inside ? fixed_element(a[i / 16], i % 16, b[j / 16], j % 16, start) : -1.0f);
        }
      }
      INFO("depth " << depth << ", " << row_panels << " by " << col_panels << " panels");
      CHECK(wrong == 0);
    }
  }
}

namespace {

// A float16 matrix in rows and in panels.
struct Halves {
  Halves(int64_t rows, int64_t cols, const std::vector<float>& values) {
    stored.resize(row_bytes(DType::kF16, cols) * rows);
    from_float(DType::kF16, values.data(), stored.data(), rows * cols);
    in_rows = {stored.data(), DType::kF16, rows, cols};
    packed = pack(in_rows);
  }
  Halves(Philox& random, int64_t rows, int64_t cols)
      : Halves(rows, cols, random_floats(random, rows * cols)) {}

  Weight panels() const { return kernels::in_panels(in_rows, packed); }
  Weight later() const {
    Weight w = in_rows;
    w.layout = Layout::kRowsAsPanels;
    return w;
  }

  std::vector<std::byte> stored, packed;
  Weight in_rows;
};

}  // namespace

TEST_CASE("many rows with float16 panels on int8 tiles: shapes, several weights, threads") {
  if (lacks_int8_tiles()) return;
  Philox random(18);
  for (int64_t cols : {64, 100, 512, 530, 1100}) {
    const Halves a(random, 70, cols), b(random, 5, cols), c(random, 301, cols);
    const std::vector<Weight> rows{a.in_rows, b.in_rows, c.in_rows};
    const std::vector<Weight> panels{a.panels(), b.panels(), c.panels()};
    const int64_t most = cols == 530 ? 540 : 70;
    const auto x = random_floats(random, most * cols);
    const auto all = run_linear(1, x, most, panels);
    CHECK(relative_error(all, expected_linear(x.data(), cols, most, rows)) < 9e-5);
    for (int64_t m : {int64_t{32}, int64_t{33}, int64_t{49}, most}) {
      INFO("cols = " << cols << ", m = " << m);
      const auto some = first_rows(x, m * cols);
      const auto expected = first_rows(all, m * 376);
      for (int threads : {1, 2, 3})
        CHECK(same_bits(run_linear(threads, some, m, panels), expected));
      CHECK(same_bits(run_linear(2, some, m, {a.later(), b.later(), c.later()}), expected));
    }
  }
  const Halves few(random, 21, 8800);  // more than one pass over the columns, a tile of 5 rows
  const auto x = random_floats(random, 35 * 8800);
  const auto y = run_linear(1, x, 35, {few.panels()});
  CHECK(relative_error(y, expected_linear(x.data(), 8800, 35, {few.in_rows})) < 9e-5);
  CHECK(same_bits(run_linear(3, x, 35, {few.panels()}), y));
}

TEST_CASE("float16 weights that are in short panels give the bits of panels on int8 tiles") {
  if (lacks_int8_tiles()) return;
  Philox random(19);
  auto values = random_floats(random, 40 * 320);
  for (float& v : values) v = to_float(to_bf16(v));
  const Halves w(40, 320, values);
  const auto packed = pack_short(w.in_rows);
  REQUIRE(!packed.empty());
  const auto x = random_floats(random, 50 * 320);
  CHECK(same_bits(run_linear(2, x, 50, {in_short_panels(w.in_rows, packed)}),
                  run_linear(1, x, 50, {w.panels()})));
}

// Without the products of low parts the error would be twice as large.
TEST_CASE("fixed-point products are as good as float16 activations where columns are large") {
  if (lacks_int8_tiles()) return;
  Philox random(20);
  const int64_t cols = 2048, rows = 48, m = 48;
  const Halves w(random, rows, cols);
  for (const auto& [columns, factor] :
       {std::pair<int64_t, float>{0, 1.0f}, {1, 100.0f}, {4, 100.0f}, {8, 20.0f}}) {
    INFO(columns << " columns times " << factor);
    auto x = random_floats(random, m * cols);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < columns; ++j) x[i * cols + (517 * j + 33) % cols] *= factor;
    }
    const auto expected = expected_linear(x.data(), cols, m, {w.in_rows});
    auto rounded = x;
    for (float& v : rounded) v = to_float(to_f16(v));
    const auto halves = expected_linear(rounded.data(), cols, m, {w.in_rows});
    const std::vector<float> of_halves(halves.begin(), halves.end());
    const auto y = run_linear(1, x, m, {w.panels()});
    CHECK(relative_error(y, expected) < 1.3 * relative_error(of_halves, expected));
    const ExactProductsScope exact;
    CHECK(relative_error(run_linear(1, x, m, {w.panels()}), expected) < 2e-6);
  }
}

TEST_CASE("fixed-point products of zeros, of all magnitudes, of NaNs and infinities") {
  if (lacks_int8_tiles()) return;
  Philox random(21);
  const int64_t cols = 192, rows = 40, m = 35;
  auto values = random_floats(random, rows * cols);
  std::fill_n(values.begin() + 3 * cols, cols, 0.0f);
  std::fill_n(values.begin() + 4 * cols, cols, 0x1p-24f);  // the smallest float16
  std::fill_n(values.begin() + 5 * cols, cols, -65504.0f);
  for (int64_t k = 0; k < cols; ++k)
    values[6 * cols + k] = std::ldexp(1.0f, -static_cast<int>(k % 24));
  const Halves w(rows, cols, values);
  auto x = random_floats(random, m * cols);
  std::fill_n(x.begin() + 7 * cols, cols, 0.0f);
  std::fill_n(x.begin() + 8 * cols, cols, 1e-40f);
  std::fill_n(x.begin() + 9 * cols, cols, 1e30f);
  std::fill_n(x.begin() + 10 * cols, cols, 1e-30f);
  const auto y = run_linear(1, x, m, {w.panels()});
  const auto expected = expected_linear(x.data(), cols, m, {w.in_rows});
  for (int64_t i = 0; i < m; ++i) {
    double norm = 0;
    for (int64_t k = 0; k < cols; ++k) norm += double{x[i * cols + k]} * x[i * cols + k];
    for (int64_t j = 0; j < rows; ++j) {
      const float sum = y[i * rows + j];
      if (i == 7 || i == 8 || j == 3) {
        CHECK(sum == 0.0f);
        continue;
      }
      double weight_norm = 0;
      for (int64_t k = 0; k < cols; ++k) weight_norm += std::pow(double{values[j * cols + k]}, 2);
      CHECK(std::fabs(sum - expected[i * rows + j]) < 3e-4 * std::sqrt(norm * weight_norm));
    }
  }
  for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    auto bad_values = values;
    bad_values[21 * cols + 33] = bad;
    const Halves bad_w(rows, cols, bad_values);
    auto bad_x = x;
    bad_x[30 * cols + 77] = bad;
    const auto bad_y = run_linear(1, bad_x, m, {bad_w.panels()});
    for (size_t i = 0; i < bad_y.size(); ++i) {
      CHECK(std::isnan(bad_y[i]) == (i / rows == 30 || i % rows == 21));
    }
  }
}
