// Operands and results of products that are stored in bfloat16.
#include <algorithm>
#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/tiles/amx_emulation.h"
#include "lib/kernels/tiles/bf16_panels.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

std::vector<uint16_t> rounded(const std::vector<float>& x) {
  std::vector<uint16_t> y(x.size());
  round_row(x.data(), static_cast<int64_t>(x.size()), y.data());
  return y;
}

const float* in_place_of_floats(const std::vector<uint16_t>& x) {
  return reinterpret_cast<const float*>(x.data());
}

// Which of a, b and c, or of x and y, are bfloat16.
struct Stored {
  bool a, b, c;
};

constexpr uint16_t kUntouched = 0x4321;

// c as bfloat16, in rows of n + 5 numbers.
std::vector<uint16_t> run_gemm(GemmArgs args, const Stored& stored, int threads) {
  ThreadPool pool(threads);
  args.c_stride = args.n + 5;
  const auto size = static_cast<size_t>(args.m * args.c_stride);
  std::vector<float> c(size);
  std::vector<uint16_t> c_bf16(size, kUntouched);
  args.c = stored.c ? reinterpret_cast<float*>(c_bf16.data()) : c.data();
  args.a_type = stored.a ? DType::kBF16 : DType::kF32;
  args.b_type = stored.b ? DType::kBF16 : DType::kF32;
  args.c_type = stored.c ? DType::kBF16 : DType::kF32;
  std::vector<std::byte> memory(gemm_workspace_bytes(args.m, args.n, args.k, threads) + 64);
  args.workspace = align_64(memory);
  gemm(pool, args);
  for (int64_t i = 0; i < args.m; ++i) {
    uint16_t* const row = c_bf16.data() + i * args.c_stride;
    if (!stored.c) round_row(c.data() + i * args.c_stride, args.n, row);
    CHECK(
        std::all_of(row + args.n, row + args.c_stride, [](uint16_t v) { return v == kUntouched; }));
  }
  return c_bf16;
}

}  // namespace

TEST_CASE("a row is rounded to bfloat16, whatever its length and place") {
  on_every_target([] {
    Philox random(1);
    for (int64_t n = 0; n <= 100; ++n) {
      const auto x = random_floats(random, n + 1);
      std::vector<uint16_t> y(n + 2, kUntouched);
      round_row(x.data() + 1, n, y.data() + 1);
      bool right = y.front() == kUntouched && y.back() == kUntouched;
      for (int64_t i = 0; i < n; ++i) right &= y[i + 1] == to_bf16(x[i + 1]).bits;
      CHECK(right);
    }
  });
}

TEST_CASE("panels of bfloat16 numbers are those of the floats that were rounded") {
  on_every_target([] {
    Philox random(2);
    for (int64_t depth : {1, 2, 31, 32, 33, 96, 100}) {
      for (int64_t rows : {0, 1, 7, 16}) {
        const auto values = random_floats(random, 2 * (depth + 1) * 20 + 1);
        const auto numbers = rounded(values);
        for (auto [row_stride, col_stride] : {std::pair{depth + 1, int64_t{1}},
                                              {int64_t{1}, int64_t{20}},
                                              {int64_t{2}, int64_t{40}}}) {
          const PanelSource floats = {values.data() + 1, row_stride, col_stride};
          const PanelSource narrow = {in_place_of_floats(numbers), row_stride, col_stride, true};
          const PanelSource from = PanelSource(narrow.x, 1, 1, true).at(1, 0);
          for (PanelOrder order : {PanelOrder::kRows, PanelOrder::kPairs}) {
            std::vector<uint16_t> expected(16 * padded_depth(depth) + 1, kUntouched);
            auto panel = expected;
            pack_bf16_panel(floats, rows, depth, order, {expected.data(), nullptr});
            CHECK(pack_bf16_panel({from.x, row_stride, col_stride, true}, rows, depth, order,
                                  {panel.data(), nullptr}) == PanelContent::kOnePart);
            CHECK(panel == expected);
          }
        }
      }
    }
  });
}

TEST_CASE("products of bfloat16 operands have the bits of products that round them") {
  on_every_tile_unit([] {
    Philox random(3);
    struct Size {
      int64_t m, n, k;
    };
    for (Size s : {Size{32, 16, 32}, {47, 31, 65}, {65, 300, 257}, {530, 33, 35}, {35, 16, 8300}}) {
      INFO(s.m << " x " << s.n << " x " << s.k);
      CHECK(gemm_takes_bf16(s.m, s.n, s.k));
      CHECK(gemm_gives_bf16(s.m, s.n, s.k) == (s.k <= 8192));
      const auto a = random_floats(random, s.m * s.k), b = random_floats(random, s.k * s.n);
      const auto a_bf16 = rounded(a), b_bf16 = rounded(b);
      for (bool turned : {false, true}) {
        auto add = [](int64_t row, int64_t begin, int64_t end, float* piece) {
          for (int64_t j = begin; j < end; ++j) piece[j - begin] += 0.1f * float(row + 2 * j);
        };
        const Epilogue epilogue = add;
        GemmArgs args{.m = s.m,
                      .n = s.n,
                      .k = s.k,
                      .a = a.data(),
                      .a_row_stride = turned ? 1 : s.k,
                      .a_col_stride = turned ? s.m : 1,
                      .b = b.data(),
                      .b_row_stride = turned ? 1 : s.n,
                      .b_col_stride = turned ? s.k : 1,
                      .c = nullptr,
                      .c_stride = s.n,
                      .workspace = nullptr,
                      .bf16 = true,
                      .epilogue = s.m == 47 || s.m == 65 ? &epilogue : nullptr};
        const auto expected = run_gemm(args, {false, false, false}, 1);
        for (const Stored& stored :
             {Stored{true, false, false}, {false, true, false}, {true, true, true}}) {
          if (stored.c && s.k > 8192) continue;
          args.a = stored.a ? in_place_of_floats(a_bf16) : a.data();
          args.b = stored.b ? in_place_of_floats(b_bf16) : b.data();
          for (int threads : {1, 2, 3}) CHECK(run_gemm(args, stored, threads) == expected);
        }
      }
    }
  });
}

TEST_CASE("linear takes and gives bfloat16 rows where it multiplies them on a unit") {
  CHECK_FALSE(gemm_takes_bf16(31, 16, 32));
  on_every_tile_unit([] {
    CHECK_FALSE(linear_takes_bf16(31, 64));
    CHECK_FALSE(linear_gives_bf16(64, 8193));
    Philox random(4);
    ThreadPool pool(2);
    for (int64_t m : {32, 70}) {
      for (int64_t cols : {40, 300}) {
        REQUIRE(linear_gives_bf16(m, cols));
        const auto x = random_floats(random, m * cols), w = random_floats(random, 90 * cols);
        const auto x_bf16 = rounded(x);
        const Weight weights[] = {{w.data(), DType::kF32, 50, cols},
                                  {w.data() + 50 * cols, DType::kF32, 40, cols}};
        std::vector<std::byte> memory(linear_workspace_bytes(m, cols, 2, false, true) + 64);
        std::vector<float> y(m * 90);
        LinearArgs args{.x = x.data(),
                        .x_stride = cols,
                        .m = m,
                        .weights = weights,
                        .y = y.data(),
                        .y_stride = 90,
                        .workspace = align_64(memory),
                        .bf16 = true};
        linear(pool, args);
        std::vector<uint16_t> y_bf16(y.size());
        args.x = in_place_of_floats(x_bf16);
        args.x_type = args.y_type = DType::kBF16;
        args.y = reinterpret_cast<float*>(y_bf16.data());
        linear(pool, args);
        CHECK(y_bf16 == rounded(y));
      }
    }
  });
}

TEST_CASE("without a unit for bfloat16 products neither take nor give it") {
  const ExactProductsScope exact;
  CHECK_FALSE(gemm_takes_bf16(64, 64, 64));
  CHECK_FALSE(gemm_gives_bf16(64, 64, 64));
  CHECK_FALSE(linear_takes_bf16(64, 64));
  CHECK_FALSE(linear_gives_bf16(64, 64));
}
