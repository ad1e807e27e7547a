#include "lib/kernels/weights/int8_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/weights/int8_tile.h"
#include "lib/kernels/weights/int8_tile_native.h"
#include "lib/kernels/weights/quantize_rows.h"
#include "lib/kernels/weights/split_tile.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr DType kQuantized[] = {
    DType::kQ8_0,   DType::kQ4_0,   DType::kQ4_1,  DType::kQ5_0, DType::kQ5_1,
    DType::kQ2_K,   DType::kQ3_K,   DType::kQ4_K,  DType::kQ5_K, DType::kQ6_K,
    DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4,
};

std::vector<float> run(int threads, const std::vector<float>& x, int64_t m,
                       const std::vector<Weight>& weights) {
  return run_product({int8_product_bytes, int8_product}, threads, x, m, weights);
}

}  // namespace

TEST_CASE("int8 products agree with the naive loop and give every row the same bits") {
  std::vector<std::vector<float>> with_fma;  // per type and m, of the first target that fuses
  on_every_target([&] {
    Philox random(11);
    const std::string target = chosen_simd_target();
    const bool fused = target != "sse2" && target != "sse4" && target != "scalar";
    size_t at = 0;
    for (DType dtype : kQuantized) {
      const int64_t cols = 768, rows = 45;  // a block and a half deep, a tile and a half wide
      const auto bytes = random_weights(random, dtype, rows, cols);
      const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols}};
      const auto x = random_floats(random, 70 * cols);
      const auto all = run(1, x, 70, weights);
      CHECK(relative_error(all, expected_linear(x.data(), cols, 70, weights)) < 2e-6);
      for (int64_t m : {1, 2, 5, 6, 7, 12, 13, 33}) {
        INFO(name(dtype) << ", m = " << m);
        CHECK(same_bits(run(1, x, m, weights), {all.begin(), all.begin() + m * rows}));
      }
      if (!fused) continue;
      if (at == with_fma.size()) with_fma.push_back(all);
      CHECK(same_bits(all, with_fma[at++]));
    }
  });
}

TEST_CASE("int8 products: several types in one call, odd rows and widths, threads") {
  on_every_target([] {
    Philox random(12);
    for (int64_t cols : {256, 1280}) {
      const auto a = random_weights(random, DType::kQ4_K, 70, cols);
      const auto b = random_weights(random, DType::kQ6_K, 5, cols);
      const auto c = random_weights(random, DType::kQ8_0, 129, cols);
      const auto d = random_weights(random, DType::kQ5_0, 1, cols);
      const std::vector<Weight> weights{{a.data(), DType::kQ4_K, 70, cols},
                                        {b.data(), DType::kQ6_K, 5, cols},
                                        {c.data(), DType::kQ8_0, 129, cols},
                                        {d.data(), DType::kQ5_0, 1, cols}};
      for (int64_t m : {3, 70, 523}) {
        if (m > 100 && cols > 1000) continue;
        INFO("cols = " << cols << ", m = " << m);
        const auto x = random_floats(random, m * cols);
        const auto one = run(1, x, m, weights);
        CHECK(relative_error(one, expected_linear(x.data(), cols, m, weights)) < 2e-6);
        CHECK(same_bits(run(2, x, m, weights), one));
        CHECK(same_bits(run(3, x, m, weights), one));
      }
    }
    // More threads than tiles: rows are divided.
    const auto few = random_weights(random, DType::kQ4_0, 7, 96);
    const std::vector<Weight> weights{{few.data(), DType::kQ4_0, 7, 96}};
    const auto x = random_floats(random, 40 * 96);
    CHECK(same_bits(run(3, x, 40, weights), run(1, x, 40, weights)));
  });
}

// Where int16 sums would overflow if they could: all codes the largest or smallest, all activations
// ±127.
TEST_CASE("int8 products of extreme codes are exact") {
  on_every_target([] {
    for (DType dtype : kQuantized) {
      const int64_t cols = 256, rows = 16;
      for (int fill : {0x00, 0x80, 0x7F, 0xFF}) {
        std::vector<std::byte> bytes(row_bytes(dtype, cols) * rows, static_cast<std::byte>(fill));
        set_scales(dtype, bytes, [] { return 1.0f; });
        const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols}};
        for (float sign : {1.0f, -1.0f}) {
          INFO(name(dtype) << " filled with " << fill << ", x = " << sign);
          const std::vector<float> x(6 * cols, 127.0f * sign);
          CHECK(relative_error(run(1, x, 6, weights), expected_linear(x.data(), cols, 6, weights)) <
                1e-6);
        }
      }
    }
  });
}

TEST_CASE("int8 products show a NaN or infinity in its own row only") {
  on_every_target([] {
    Philox random(13);
    for (DType dtype : {DType::kQ8_0, DType::kQ4_1, DType::kQ6_K}) {
      const auto bytes = random_weights(random, dtype, 40, 256);
      const std::vector<Weight> weights{{bytes.data(), dtype, 40, 256}};
      for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
        auto x = random_floats(random, 13 * 256);
        x[7 * 256 + 77] = bad;
        const auto y = run(1, x, 13, weights);
        for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i / 40 == 7));
      }
    }
  });
}

TEST_CASE("split products give the bits of int8 products") {
  on_targets_that(has_split_tile, "this CPU has no AVX2", [] {
    Philox random(15);
    for (DType dtype : {DType::kQ8_0, DType::kIQ4_NL, DType::kIQ4_XS}) {
      const int64_t cols = 768, rows = 45;  // three blocks deep, a tile and a half wide
      for (float sign : {0.0f, 1.0f, -1.0f}) {
        const bool extreme = sign != 0;
        INFO(name(dtype) << (extreme ? ", the smallest codes, x of sign " : ", ") << sign);
        auto bytes = random_weights(random, dtype, rows, cols);
        if (extreme) {
          std::fill(bytes.begin(), bytes.end(), std::byte{0x80});
          set_scales(dtype, bytes, [] { return 1.0f; });
        }
        const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols},
                                          {bytes.data(), dtype, 1, cols}};
        auto x = random_floats(random, 70 * cols);
        if (extreme) std::fill(x.begin(), x.end(), 127.0f * sign);
        x[7 * cols + 77] = INFINITY;
        const auto packed = pack(weights[0]), packed_one = pack(weights[1]);
        const std::vector<Weight> panels{in_panels(weights[0], packed),
                                         in_panels(weights[1], packed_one)};
        for (int64_t m : {1, 2, 3, 4, 5, 6, 9, 70}) {
          for (int threads : {1, 2}) {
            const auto expected = run(threads, x, m, weights);
            for (const auto& layout : {weights, panels}) {
              CHECK(
                  same_bits(run_product({int8_product_bytes, split_product}, threads, x, m, layout),
                            expected));
            }
          }
        }
      }
    }
  });
}

TEST_CASE("the native tile gives the bits of the portable one") {
  on_every_native_target([] {
    Philox random(14);
    const Int8Tile portable = portable_int8_tile();
    const Int8Tile native = native_int8_tile();
    for (DType dtype : kQuantized) {
      INFO(name(dtype));
      const int64_t cols = 512;
      const CodeForm form = code_form(dtype);
      const auto bytes = random_weights(random, dtype, 32, cols);
      const Weight w{bytes.data(), dtype, 32, cols};
      const auto values = random_floats(random, 6 * cols);
      for (int64_t rows = 1; rows <= portable.strip_rows; ++rows) {
        std::vector<std::byte> x_memory(rows * cols / 32 * (kStripBlockBytes + kStripHalfBytes) +
                                        64);
        std::byte* at = align_64(x_memory);
        const CodeStrip x{at, at + rows * cols / 32 * kStripBlockBytes, rows};
        quantize_strip(values.data(), cols, x.rows, cols / 32, x);
        std::vector<float> results[2];
        for (bool is_native : {false, true}) {
          std::vector<std::byte> memory(2 * (16 * cols + 8 * 16 * cols / 16) + 64);
          std::byte* p = align_64(memory);
          CodePanel panels[2];
          for (int i = 0; i < 2; ++i) {
            auto* floats = reinterpret_cast<float*>(p + 32 * cols) + 2 * i * cols;
            panels[i] = {reinterpret_cast<uint8_t*>(p) + 16 * cols * i, floats, floats + cols};
            expand_codes(w, 16 * i, 16, 0, cols,
                         added_to_codes(is_native ? native : portable, form), panels[i]);
          }
          const CodeMultiplier multiply =
              is_native ? native_code_multiplier(form) : portable_code_multiplier(form);
          for (int64_t width : {1, 15, 16, 17, 32}) {
            std::vector<float> y(rows * 33, 0.5f);
            multiply(panels, x, cols / 32, true, y.data(), 33, width);
            results[is_native].insert(results[is_native].end(), y.begin(), y.end());
          }
        }
        CHECK(same_bits(results[0], results[1]));
      }
    }
  });
}
