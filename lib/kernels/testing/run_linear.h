// One call of linear whose result is checked around the edges. For tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "lib/base/pool.h"
#include "lib/base/testing.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/testing/random_weights.h"

namespace lumen::kernels {

// The result of one `linear` call on x [m, cols] (rows `x_stride` apart), m × Σ rows; checks that
// nothing around y is written and that the epilogue saw every element once.
inline std::vector<float> run_linear(int threads, const float* x, int64_t x_stride, int64_t m,
                                     const std::vector<Weight>& weights) {
  constexpr float kUntouched = -12345.0f;
  ThreadPool pool(threads);
  int64_t n = 0;
  for (const Weight& w : weights) n += w.rows;
  const int64_t y_stride = n + 3;
  std::vector<float> y(m * y_stride + 1, kUntouched);
  const bool as_panels = std::ranges::any_of(
      weights, [](const Weight& w) { return w.layout == Layout::kRowsAsPanels; });
  const size_t workspace = linear_workspace_bytes(m, weights.front().cols, threads, as_panels);
  std::vector<std::byte> memory(workspace + 64);
  std::vector<int> seen(m * n);
  auto count = [&](int64_t row, int64_t begin, int64_t end, float*) {
    for (int64_t j = begin; j < end; ++j) {
      ++seen[row * n + j];
      y[row * y_stride + j] += 1.0f;  // only right if the element is finished and never rewritten
    }
  };
  const Epilogue epilogue = count;
  linear(pool, {.x = x,
                .x_stride = x_stride,
                .m = m,
                .weights = weights,
                .y = y.data(),
                .y_stride = y_stride,
                .workspace = align_64(memory),
                .epilogue = &epilogue});
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  std::vector<float> result;
  int64_t untouched = std::count(y.end() - 1, y.end(), kUntouched);
  for (int64_t i = 0; i < m; ++i) {
    const auto row = y.begin() + i * y_stride;
    std::transform(row, row + n, std::back_inserter(result), [](float v) { return v - 1.0f; });
    untouched += std::count(row + n, row + y_stride, kUntouched);
  }
  CHECK(untouched == 1 + 3 * m);
  return result;
}

}  // namespace lumen::kernels
