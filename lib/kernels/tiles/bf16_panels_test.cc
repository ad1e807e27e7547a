#include "lib/kernels/tiles/bf16_panels.h"

#include <cmath>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

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
                right &= first == to_float(to_bf16(x)) && second == to_float(to_bf16(x - first)) &&
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
