#include "lib/kernels/tiles/amx.h"

#include <cmath>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/tiles/amx_emulation.h"
#include "lib/kernels/tiles/bf16_dot.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

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

TEST_CASE("a row of strips on tiles is what the strips are one by one") {
  Philox random(12);
  constexpr int64_t kSteps = 3, kMost = 3, kPanel = kTileRows * kTileDepth * kSteps;
  constexpr int64_t kStrip = 2 * kTileRows, kPitch = kMost * kStrip + 5;
  std::vector<uint16_t> a(4 * kPanel), b(4 * kPanel * kMost);
  for (auto* bits : {&a, &b}) {
    for (uint16_t& v : *bits) v = to_bf16(static_cast<float>(random.normal())).bits;
  }
  on_every_tile_unit([&] {
    const TileUnit& unit = *tile_unit();
    for (int64_t steps = 1; steps <= kSteps; ++steps) {
      for (int64_t strips = 1; strips <= kMost; ++strips) {
        for (int products : {1, 3, 4}) {
          const bool parts = products > 1;
          TileStrips row = {.a_high = a.data(),
                            .a_low = parts ? a.data() + 2 * kPanel : nullptr,
                            .b_high = b.data(),
                            .b_low = parts ? b.data() + 2 * kPanel : nullptr,
                            .a_pitch = kPanel,
                            .b_pitch = kPanel,
                            .steps = steps,
                            .row_panels = 2,
                            .col_panels = 2,
                            .add = nullptr,
                            .add_stride = 0,
                            .c = nullptr,
                            .c_stride = kPitch,
                            .low_low = products == 4,
                            .strips = strips,
                            .b_strip = 4 * kPanel,
                            .c_strip = kStrip};
          std::vector<float> whole(kStrip * kPitch, 7), pieces = whole;
          unit.enter();
          for (int64_t i = 0; i < strips; ++i) {
            TileStrips piece = row;
            piece.b_high += i * row.b_strip;
            if (parts) piece.b_low += i * row.b_strip;
            piece.c = pieces.data() + i * row.c_strip;
            unit.multiply(piece);
          }
          row.c = whole.data();
          unit.multiply_row(row);
          unit.leave();
          INFO(steps << " steps, " << strips << " strips, " << products << " products");
          CHECK(whole == pieces);
        }
      }
    }
  });
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
