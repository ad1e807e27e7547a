// LinearArgs::combine: what is made of two products has the bits of the products by themselves.
#include <algorithm>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/tiles/amx_emulation.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr float kUntouched = -12345.0f;

void combine_floats(const float* first, const float* second, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = first[i] * 3 - second[i];
}

// y [m, rows] and three numbers behind each row.
struct Problem {
  int64_t m;
  std::vector<Weight> weights;
  const float* x;
  int64_t x_stride;
  bool bf16 = false;

  std::vector<float> run(int threads, std::span<const Weight> with, const Combine* combine) const {
    ThreadPool pool(threads);
    const int64_t rows = with.front().rows, y_stride = rows + 3;
    std::vector<float> y(m * y_stride, kUntouched);
    const size_t bytes = linear_workspace_bytes(m, with.front().cols, threads, true, bf16) +
                         (combine ? combine_bytes(m, rows) : 0);
    std::vector<std::byte> workspace(bytes + 64);
    linear(pool, {.x = x,
                  .x_stride = x_stride,
                  .m = m,
                  .weights = with,
                  .y = y.data(),
                  .y_stride = y_stride,
                  .workspace = align_64(workspace),
                  .bf16 = bf16,
                  .combine = combine});
    return y;
  }

  // Whether a call for both gives what two calls give, with any number of threads.
  void check() const {
    const std::span<const Weight> both = weights;
    const auto first = run(1, both.first(1), nullptr), second = run(1, both.last(1), nullptr);
    const int64_t rows = weights.front().rows, y_stride = rows + 3;
    auto expected = first;
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = i * y_stride;
      combine_floats(first.data() + at, second.data() + at, rows, expected.data() + at);
    }
    const auto combine_both = [](const float* a, const float* b, int64_t n, float* out) {
      combine_floats(a, b, n, out);
    };
    const Combine combine = combine_both;
    for (int threads : {1, 3}) {
      INFO("m = " << m << ", " << threads << " threads");
      CHECK(run(threads, both, &combine) == expected);
    }
  }
};

// Rows of one type, as they are, in panels, and as panels.
struct Stored {
  std::vector<std::byte> bytes, packed;
  Weight rows;

  Stored(Philox& random, DType dtype, int64_t count, int64_t cols)
      : bytes(random_weights(random, dtype, count, cols)), rows{bytes.data(), dtype, count, cols} {
    if (has_panels(dtype, cols)) packed = pack(rows);
  }
  Weight panels() const { return packed.empty() ? rows : in_panels(rows, packed); }
  Weight later() const {
    Weight w = rows;
    if (!packed.empty()) w.layout = Layout::kRowsAsPanels;
    return w;
  }
};

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K};

void check_all(std::initializer_list<int64_t> heights) {
  Philox random(1);
  for (DType dtype : kTypes) {
    INFO(name(dtype));
    for (int64_t rows : {64, 40}) {  // whole strips of tiles, and not
      const int64_t cols = 256;
      const Stored a(random, dtype, rows, cols), b(random, dtype, rows, cols);
      for (int64_t m : heights) {
        const auto x = random_floats(random, m * (cols + 5));
        Problem{m, {a.rows, b.rows}, x.data(), cols + 5}.check();
        Problem{m, {a.panels(), b.panels()}, x.data(), cols + 5}.check();
        Problem{m, {a.later(), b.later()}, x.data(), cols + 5}.check();
      }
    }
  }
}

}  // namespace

TEST_CASE("two combined products have the bits of each alone, few rows and many") {
  on_every_target([] { check_all({1, 5, 25, 40}); });
}

TEST_CASE("two combined products on tiles have the bits of each alone") {
  on_every_tile_unit([] { check_all({33}); });
  check_all({8, 33, 530});  // on the best target, with int8 tiles if there are any
  // Blocks of columns, and more depth than is multiplied at once.
  Philox random(4);
  const Stored a(random, DType::kQ8_0, 608, 1056), b(random, DType::kQ8_0, 608, 1056);
  const auto x = random_floats(random, 50 * 1056);
  Problem{50, {a.panels(), b.panels()}, x.data(), 1056}.check();
}

TEST_CASE("two combined products of different types, layouts and places are computed in turn") {
  on_every_target([] {
    Philox random(2);
    const int64_t rows = 96, cols = 512;
    const Stored floats(random, DType::kF16, rows, cols), codes(random, DType::kQ8_0, rows, cols);
    const Stored fine(random, DType::kQ6_K, rows, cols);
    const auto x = random_floats(random, 70 * cols);
    for (int64_t m : {6, 12, 30, 70}) {
      for (const auto& [a, b] :
           {std::pair(floats.rows, codes.rows), std::pair(codes.panels(), floats.panels()),
            std::pair(codes.rows, fine.panels()), std::pair(fine.panels(), codes.panels())}) {
        Problem{m, {a, b}, x.data(), cols}.check();
      }
    }
  });
}

TEST_CASE("two combined products round to bfloat16 if asked to") {
  on_every_tile_unit([] {
    Philox random(3);
    const int64_t rows = 64, cols = 96;
    const Stored a(random, DType::kF32, rows, cols), b(random, DType::kF32, rows, cols);
    const auto x = random_floats(random, 70 * cols);
    for (int64_t m : {3, 32, 70}) Problem{m, {a.rows, b.rows}, x.data(), cols, true}.check();
  });
}
