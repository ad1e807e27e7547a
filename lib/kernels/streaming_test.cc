#include "lib/kernels/streaming.h"

#include <vector>

#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;
using namespace lumen::kernels;

TEST_CASE("streamed numbers arrive, wherever they begin and end, and nothing else changes") {
  on_every_target([] {
    std::vector<float> x(200), y(300);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
    for (int64_t begin = 0; begin < 20; ++begin) {
      for (int64_t n : {0, 1, 15, 16, 17, 64, 199}) {
        std::fill(y.begin(), y.end(), -1.0f);
        stream(x.data() + 1, n, y.data() + begin);
        finish_streams();
        for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
          const bool inside = i >= begin && i < begin + n;
          REQUIRE(y[static_cast<size_t>(i)] ==
                  (inside ? static_cast<float>(i - begin + 2) : -1.0f));
        }
      }
    }
  });
}

TEST_CASE("rows of a result are the same, streamed or not") {
  constexpr int64_t kDim = 100;
  const int64_t many = streaming_bytes() / (kDim * 4) + 1;
  std::vector<float> y(3 * kDim);
  for (const auto& [rows, in_place] : {std::pair{many, false}, {many, true}, {int64_t{3}, false}}) {
    std::fill(y.begin(), y.end(), 0.0f);
    {
      RowWriter writer(rows, kDim, DType::kF32, in_place);
      for (int64_t row = 0; row < 3; ++row) {
        writer.write(y.data() + row * kDim, [&](void* to) {
          auto* const row_of = static_cast<float*>(to);
          for (int64_t i = 0; i < kDim; ++i) row_of[i] = static_cast<float>(row * kDim + i);
        });
      }
    }
    for (int64_t i = 0; i < 3 * kDim; ++i) {
      REQUIRE(y[static_cast<size_t>(i)] == static_cast<float>(i));
    }
  }
}
