#include "lib/kernels/short_panels.h"

#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/tiles/amx_emulation.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr DType kHalves[] = {DType::kF16, DType::kBF16};

uint16_t& number_at(std::vector<std::byte>& matrix, int64_t i) {
  return reinterpret_cast<uint16_t*>(matrix.data())[i];
}

float rounded_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits &= 0xFFFF0000u;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

// A matrix whose numbers are bfloat16, of every magnitude that such weights have: of sixteen rows
// one is zero and one is small; some numbers are far smaller than the rest of their row, one of 30
// is a zero with a sign.
std::vector<std::byte> short_matrix(Philox& random, DType dtype, int64_t rows, int64_t cols) {
  std::vector<float> values = random_floats(random, rows * cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t row = i / cols;
    if (row % 16 == 3) values[i] = 0;
    if (row % 16 == 5) values[i] *= 0x1p-9f;
    if (i % 911 == 7) values[i] *= 0x1p-13f;
    if (i % 30 == 29) values[i] = -0.0f;
    values[i] = rounded_to_bf16(values[i]);
  }
  std::vector<std::byte> bytes(row_bytes(dtype, cols) * rows);
  from_float(dtype, values.data(), bytes.data(), rows * cols);
  for (int64_t i = 0; dtype == DType::kF16 && i < rows * cols; ++i) {
    uint16_t& bits = number_at(bytes, i);  // subnormal halves lose bits: as many as a bfloat16 has
    if ((bits & 0x7C00) == 0 && (bits & 0x3FF) >= 0x100) bits &= 0xFFFC;
  }
  return bytes;
}

std::vector<float> multiply(int threads, const std::vector<float>& x, int64_t m,
                            const std::vector<Weight>& weights) {
  return run_product({[](int64_t rows, int64_t cols, int count) {
                        return linear_workspace_bytes(rows, cols, count);
                      },
                      [](ThreadPool& pool, const LinearArgs& args, std::span<const Weight>,
                         int64_t) { linear(pool, args); }},
                     threads, x, m, weights);
}

}  // namespace

TEST_CASE("short panels exist for halves in groups of eight columns, and are shorter") {
  for (const DType dtype : kHalves) {
    for (int64_t cols : {24, 32, 288, 2048}) {
      CHECK(has_short_panels(dtype, cols));
      CHECK(matrix_bytes(Layout::kShortPanels, dtype, 33, cols) <
            matrix_bytes(Layout::kPanels, dtype, 33, cols));
    }
    CHECK(matrix_bytes(Layout::kShortPanels, dtype, 16, 4096) < 0.77 * 16 * 2 * 4096);
    for (int64_t cols : {0, 8, 16, 28, 2050}) CHECK(!has_short_panels(dtype, cols));
  }
  CHECK(!has_short_panels(DType::kF32, 256));
  CHECK(!has_short_panels(DType::kQ8_0, 256));
}

TEST_CASE("short panels give back every bit, and are the same whatever packs them") {
  Philox random(31);
  for (const DType dtype : kHalves) {
    for (int64_t cols : {24, 64, 256, 264, 776}) {
      const int64_t rows = 37;
      const auto bytes = short_matrix(random, dtype, rows, cols);
      const Weight w{bytes.data(), dtype, rows, cols};
      const auto panels = pack(w), first = pack_short(w);
      on_every_target([&] {
        INFO(name(dtype) << ", " << cols << " columns");
        const auto packed = pack_short(w);
        REQUIRE(!packed.empty());
        CHECK(packed == first);
        CHECK(pack(in_short_panels(w, packed)) == panels);
        for (int64_t k = 0; k < cols; k += 8) {
          std::vector<std::byte> want(kPanelRows * 8 * 2), got(want.size());
          pack_panel(w, 1, k, 8, want.data());
          pack_panel(in_short_panels(w, packed), 1, k, 8, got.data());
          CHECK(got == want);
        }
      });
    }
  }
}

TEST_CASE("what short panels hold without loss ends where more than patches would be needed") {
  on_every_target([] {
    Philox random(32);
    const int64_t rows = 20, cols = 512;
    const auto matrix = short_matrix(random, DType::kBF16, rows, cols);
    const auto fits = [&](std::vector<std::byte> bytes, DType dtype) {
      return !pack_short({bytes.data(), dtype, rows, cols}).empty();
    };
    const auto check_exact = [&](const std::vector<std::byte>& bytes) {
      const Weight w{bytes.data(), DType::kBF16, rows, cols};
      CHECK(pack(in_short_panels(w, pack_short(w))) == pack(w));
    };
    CHECK(fits(matrix, DType::kBF16));
    // As many numbers below what is kept of a panel as there may be patches, and one more.
    std::vector<std::byte> bytes = matrix;
    for (int64_t i = 0; i < 16 * cols; ++i) number_at(bytes, i) = 0x3F80;
    const int64_t most = short_panel_patch_bytes(cols) / 8 - 1;
    CHECK(most >= cols / 16);
    for (int64_t i = 0; i < most; ++i) number_at(bytes, 201 * i) = 0x8081;
    REQUIRE(fits(bytes, DType::kBF16));
    check_exact(bytes);
    number_at(bytes, 201 * most) = 0x8081;
    CHECK(!fits(bytes, DType::kBF16));
    // The smallest exponent that is kept beside 1, and the next smaller one.
    const auto fits_beside_one = [&](uint16_t bits) {
      for (int64_t i = 0; i < 16 * cols; ++i) number_at(bytes, i) = i % cols ? bits : 0x3F80;
      return fits(bytes, DType::kBF16);
    };
    bytes = matrix;
    CHECK(fits_beside_one(0x3F80 - 13 * 0x80));
    CHECK(!fits_beside_one(0x3F80 - 14 * 0x80));
    CHECK(fits_beside_one(0x8000));
    // A half with more bits than a bfloat16.
    bytes = short_matrix(random, DType::kF16, rows, cols);
    CHECK(fits(bytes, DType::kF16));
    number_at(bytes, 18 * cols + 500) |= 1;
    CHECK(!fits(bytes, DType::kF16));
    // Infinities and NaN; a number that its row's power of two would take out of range.
    for (const uint16_t bits : {0x7F80, 0xFF80, 0x7FC1}) {
      bytes = matrix;
      number_at(bytes, 77) = bits;
      CHECK(!fits(bytes, DType::kBF16));
    }
    bytes = matrix;
    for (int64_t i = 0; i < cols; ++i) number_at(bytes, i) = 0x3E80;
    number_at(bytes, 77) = 0x0003;
    REQUIRE(fits(bytes, DType::kBF16));
    check_exact(bytes);
    for (int64_t i = 0; i < cols; ++i) number_at(bytes, i) = 0x4180;
    number_at(bytes, 77) = 0x0003;
    CHECK(!fits(bytes, DType::kBF16));
  });
}

TEST_CASE("products with short panels have the bits of those with panels") {
  Philox random(33);
  const auto check = [&] {
    for (const DType dtype : kHalves) {
      for (int64_t cols : {32, 72, 776}) {
        const auto first = short_matrix(random, dtype, 91, cols);
        const auto second = short_matrix(random, dtype, 21, cols);
        const Weight a{first.data(), dtype, 91, cols}, b{second.data(), dtype, 21, cols};
        const auto panels_a = pack(a), panels_b = pack(b);
        const auto short_a = pack_short(a), short_b = pack_short(b);
        const auto x = random_floats(random, 40 * cols);
        for (int64_t m : {1, 2, 5, 8, 24, 25, 40}) {
          INFO(name(dtype) << ", " << cols << " columns, m = " << m);
          const auto want = multiply(1, x, m, {in_panels(b, panels_b), in_panels(a, panels_a)});
          for (int threads : {1, 2}) {
            CHECK(same_bits(
                multiply(threads, x, m, {in_short_panels(b, short_b), in_short_panels(a, short_a)}),
                want));
          }
          const auto mixed =
              multiply(1, x, m, {in_panels(b, panels_b), in_short_panels(a, short_a)});
          if (m <= 24) CHECK(same_bits(mixed, want));
          const ExactProductsScope scope;
          CHECK(same_bits(multiply(2, x, m, {in_short_panels(a, short_a)}),
                          multiply(1, x, m, {in_panels(a, panels_a)})));
        }
      }
    }
  };
  on_every_target(check);
  const TileUnitScope scope(&kEmulatedTileUnit);
  check();
}
