#include "lib/kernels/attention/attention_tile.h"

#include <algorithm>
#include <vector>

#include "lib/base/pool.h"
#include "lib/base/testing.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;
using namespace lumen::kernels;

// Every column and position of several heads, from every place where a tile may begin.
TEST_CASE("the factors of attention's dropout are those of dropout of ones") {
  constexpr int64_t kHeads = 3, kColumns = 75, kPositions = 37;
  constexpr int64_t kColumnGroups = (kColumns + 15) / 16, kKeyGroups = (kPositions + 3) / 4;
  constexpr RandomKey kKey{123, 4'000'000'000u, 0x1234567890ABCDEFull};
  constexpr double kRate = 0.3;
  std::vector<float> want(kHeads * kColumnGroups * kKeyGroups * 64, 1.0f);
  ThreadPool pool(1);
  dropout(pool, kKey, static_cast<int64_t>(want.size()), kRate, want.data(), want.data());
  int64_t seen = 0, dropped = 0;
  on_every_target([&] {
    const int64_t width = gemm_tile().cols;
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t column = 0; column < kColumns; column += width) {
        for (int64_t position = 0; position < kPositions; position += 4) {
          const int64_t first = head * kColumnGroups * kKeyGroups, keys = kPositions - position;
          std::vector<float> factors(static_cast<size_t>((keys + 3) / 4 * 4 * width) + 1, -77.0f);
          attention_tile::dropout_factors(kKey, dropout_rule(kRate),
                                          {first, kKeyGroups, column, position}, keys, width,
                                          factors.data());
          REQUIRE(factors.back() == -77);
          for (int64_t i = 0; i < std::min(width, kColumns - column); ++i) {
            for (int64_t k = 0; k < keys; ++k) {
              const int64_t c = column + i, p = position + k;
              const int64_t group = first + c / 16 * kKeyGroups + p / 4;
              const float got = factors[static_cast<size_t>(k * width + i)];
              REQUIRE(got == want[static_cast<size_t>(group * 64 + p % 4 * 16 + c % 16)]);
              ++seen;
              dropped += got == 0;
            }
          }
        }
      }
    }
  });
  CHECK(static_cast<double>(dropped) / static_cast<double>(seen) == Approx(kRate).margin(0.02));
}
