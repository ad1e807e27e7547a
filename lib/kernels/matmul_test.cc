#include "lib/kernels/matmul.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/amx.h"
#include "lib/kernels/dot_rows.h"
#include "lib/kernels/dot_rows_vnni.h"
#include "lib/kernels/every_target.h"
#include "lib/kernels/int16_product.h"
#include "lib/kernels/panel_dot.h"
#include "lib/kernels/panel_dot_native.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/random_weights.h"
#include "lib/kernels/reference.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

// The result of one `linear` call on x [m, cols] (rows `x_stride` apart), m × Σ rows; checks that
// nothing around y is written and that the epilogue saw every element once.
std::vector<float> run_linear(int threads, const float* x, int64_t x_stride, int64_t m,
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
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) result.push_back(y[i * y_stride + j] - 1.0f);
    for (int64_t j = n; j < y_stride; ++j) CHECK(y[i * y_stride + j] == kUntouched);
  }
  CHECK(y.back() == kUntouched);
  return result;
}

}  // namespace

TEST_CASE("linear agrees with the naive loop for every type, few and many rows") {
  on_every_target([] {
    Philox random(1);
    for (DType dtype : kWeightTypes) {
      INFO(name(dtype));
      const int64_t cols = 512 + 256, rows = 37;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols}};
      for (int64_t m : {1, 2, 3, 4, 7, 9, 13, 25, 30}) {
        const int64_t x_stride = cols + 5;
        const auto x = random_floats(random, m * x_stride + 1);
        const auto actual = run_linear(1, x.data() + 1, x_stride, m, weights);
        INFO("m = " << m);
        CHECK(relative_error(actual, expected_linear(x.data() + 1, x_stride, m, weights)) < 2e-6);
      }
    }
  });
}

TEST_CASE("linear handles every number of rows and odd widths") {
  on_every_target([] {
    Philox random(2);
    for (int64_t cols : {1, 3, 31, 32, 33, 515, 600}) {
      const int64_t rows = 1 + cols % 35;
      const auto bytes = random_weights(random, DType::kF16, rows, cols);
      const std::vector<Weight> weights{{bytes.data(), DType::kF16, rows, cols}};
      for (int64_t m = 1; m <= 40; m += cols < 100 ? 1 : 7) {
        const auto x = random_floats(random, m * cols);
        const auto actual = run_linear(1, x.data(), cols, m, weights);
        INFO("cols = " << cols << ", m = " << m);
        CHECK(relative_error(actual, expected_linear(x.data(), cols, m, weights)) < 2e-6);
      }
    }
    for (int64_t cols : {32, 96, 544}) {  // an odd number of 32-blocks, and more than one k-block
      const auto bytes = random_weights(random, DType::kQ5_1, 33, cols);
      const std::vector<Weight> weights{{bytes.data(), DType::kQ5_1, 33, cols}};
      for (int64_t m : {1, 11, 29}) {
        const auto x = random_floats(random, m * cols);
        const auto actual = run_linear(1, x.data(), cols, m, weights);
        CHECK(relative_error(actual, expected_linear(x.data(), cols, m, weights)) < 2e-6);
      }
    }
  });
}

TEST_CASE("one row at a time gives what many rows at once give") {
  on_every_target([] {
    Philox random(3);
    for (DType dtype : kWeightTypes) {
      INFO(name(dtype));
      const int64_t cols = 1024, rows = 50, m = 33;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const std::vector<Weight> weights{{bytes.data(), dtype, rows, cols}};
      const auto x = random_floats(random, m * cols);
      const auto together = run_linear(1, x.data(), cols, m, weights);
      std::vector<double> apart;
      for (int64_t i = 0; i < m; ++i) {
        for (float v : run_linear(1, x.data() + i * cols, cols, 1, weights)) apart.push_back(v);
      }
      CHECK(relative_error(together, apart) < 1e-6);
      // With few rows the result does not depend on their number at all.
      for (int64_t few : {3, 8}) {
        const auto some = run_linear(1, x.data(), cols, few, weights);
        CHECK(std::equal(some.begin(), some.end(), apart.begin()));
      }
    }
  });
}

TEST_CASE("weights of several types share one call, and threads change no bit") {
  on_every_target([] {
    Philox random(4);
    const int64_t cols = 512;
    const auto a = random_weights(random, DType::kQ4_K, 70, cols);
    const auto b = random_weights(random, DType::kQ6_K, 5, cols);
    const auto c = random_weights(random, DType::kBF16, 130, cols);
    const auto d = random_weights(random, DType::kQ8_0, 33, cols);
    const std::vector<Weight> weights{{a.data(), DType::kQ4_K, 70, cols},
                                      {b.data(), DType::kQ6_K, 5, cols},
                                      {c.data(), DType::kBF16, 130, cols},
                                      {d.data(), DType::kQ8_0, 33, cols}};
    for (int64_t m : {1, 2, 5, 13, 25, 130}) {
      INFO("m = " << m);
      const auto x = random_floats(random, m * cols);
      const auto one = run_linear(1, x.data(), cols, m, weights);
      CHECK(relative_error(one, expected_linear(x.data(), cols, m, weights)) < 2e-6);
      CHECK(run_linear(2, x.data(), cols, m, weights) == one);
      CHECK(run_linear(3, x.data(), cols, m, weights) == one);
    }
  });
}

TEST_CASE("the VNNI kernel agrees with the portable one") {
  if (vnni_bits() != 512) return lumen::testing::skip("this CPU has no AVX512-VNNI");
  Philox random(8);
  for (DType dtype : kWeightTypes) {
    if (!is_quantized(dtype)) continue;
    INFO(name(dtype));
    // One, two, three and many blocks: pairs, fours and an odd rest.
    for (int64_t blocks : {1, 2, 3, 5, 8, 23}) {
      const int64_t cols = blocks * info(dtype).block_elements, rows = 9, m = 7;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const Weight w{bytes.data(), dtype, rows, cols};
      std::vector<std::byte> memory;
      const QuantizedRows x = quantize(random_floats(random, m * cols), m, cols, memory);
      std::vector<float> native(m * rows), portable(m * rows);
      dot_rows_vnni(w, 0, rows, x, m, native.data(), rows);
      dot_rows_portable(w, 0, rows, x, m, portable.data(), rows);
      CHECK(relative_error(native, {portable.begin(), portable.end()}) < 1e-6);
    }
  }
}

TEST_CASE("panels take the bytes of their rows and exist for the types that say so") {
  for (DType dtype : kWeightTypes) {
    INFO(name(dtype));
    CHECK(matrix_bytes(Layout::kPanels, dtype, 32, 512) == 32 * row_bytes(dtype, 512));
    CHECK(matrix_bytes(Layout::kPanels, dtype, 17, 512) == 32 * row_bytes(dtype, 512));
    CHECK(has_panels(dtype, 512));
    CHECK(!has_panels(dtype, 0));
  }
  CHECK(!has_panels(DType::kBF16, 7));
  CHECK(has_panels(DType::kF16, 7));
  CHECK(!has_panels(DType::kI8, 512));
}

// Of ‖y‖: halves in panels meet more than 24 rows of x, or more than eight if there are weights in
// rows beside them, as codes of 14 bits.
double error_bound(int64_t m, const std::vector<Weight>& weights) {
  const bool all_panels = std::all_of(weights.begin(), weights.end(),
                                      [](const Weight& w) { return w.layout == Layout::kPanels; });
  const auto bf16 = [](const Weight& w) {
    return w.dtype == DType::kBF16 && takes_int16_product(w);
  };
  // amx_product_test.cc checks that such products are those of the rounded numbers.
  if (m >= 32 && fast_bf16_dot() && std::any_of(weights.begin(), weights.end(), bf16)) return 2e-3;
  const bool rounded =
      m > (all_panels ? 24 : 8) && std::any_of(weights.begin(), weights.end(), takes_int16_product);
  return rounded ? 1.5e-4 : 2e-6;
}

TEST_CASE("linear on panels agrees with the naive loop and with itself whatever the rows") {
  on_every_target([] {
    Philox random(9);
    for (DType dtype : kWeightTypes) {
      if (!has_panels(dtype, 768)) continue;
      INFO(name(dtype));
      const int64_t cols = 768, rows = 91, most = 40;
      const auto bytes = random_weights(random, dtype, rows, cols);
      const Weight w{bytes.data(), dtype, rows, cols};
      const auto panels = pack(w);
      const std::vector<Weight> weights{in_panels(w, panels)};
      const auto x = random_floats(random, most * cols);
      const auto expected = expected_linear(x.data(), cols, most, {w});
      const auto all = run_linear(1, x.data(), cols, most, weights);
      CHECK(relative_error(all, expected) < error_bound(most, weights));
      const auto one = run_linear(1, x.data(), cols, 1, weights);
      for (int64_t m : {1, 2, 3, 4, 7, 8, 9, 17}) {
        INFO("m = " << m);
        for (int threads : {1, 2, 3}) {
          const auto y = run_linear(threads, x.data(), cols, m, weights);
          CHECK(std::equal(one.begin(), one.end(), y.begin()));
          if (is_quantized(dtype)) CHECK(std::equal(y.begin(), y.end(), all.begin()));
          CHECK(relative_error(y, {expected.begin(), expected.begin() + m * rows}) <
                error_bound(m, weights));
        }
      }
    }
  });
}

TEST_CASE("rows as panels give the bits of panels, alone and beside others") {
  on_every_target([] {
    Philox random(10);
    const int64_t most = 33;
    for (DType dtype : kWeightTypes) {
      const bool plain = !is_quantized(dtype);
      for (int64_t cols : {plain ? int64_t{38} : int64_t{256}, int64_t{768}}) {
        if (!has_panels(dtype, cols)) continue;
        INFO(name(dtype) << ", " << cols << " columns");
        const auto first = random_weights(random, dtype, 91, cols);
        const auto second = random_weights(random, dtype, 40, cols);
        const auto floats = random_weights(random, DType::kF32, 5, cols);
        const Weight a{first.data(), dtype, 91, cols}, b{second.data(), dtype, 40, cols};
        const Weight rows{floats.data(), DType::kF32, 5, cols};
        const auto panels_a = pack(a), panels_b = pack(b);
        const auto later = [](Weight w) {
          w.layout = Layout::kRowsAsPanels;
          return w;
        };
        const auto x = random_floats(random, most * cols);
        for (int64_t m : {1, 2, 8, 9, 24, 25, 33}) {
          INFO("m = " << m);
          for (int threads : {1, 2}) {
            const auto want =
                run_linear(1, x.data(), cols, m, {in_panels(a, panels_a), in_panels(b, panels_b)});
            CHECK(run_linear(threads, x.data(), cols, m, {later(a), later(b)}) == want);
            const auto mixed = run_linear(1, x.data(), cols, m,
                                          {in_panels(a, panels_a), rows, in_panels(b, panels_b)});
            CHECK(run_linear(threads, x.data(), cols, m, {later(a), rows, later(b)}) == mixed);
          }
        }
      }
    }
  });
}

namespace {

// Scale, min and codes (less their offset) of sub-block `s` of a stored row, from ggml's layouts.
struct SubBlock {
  float scale = 0, min = 0;
  std::vector<int> codes;
};

int64_t sub_block(DType dtype) {
  return dtype == DType::kQ2_K || dtype == DType::kQ3_K || dtype == DType::kQ6_K ? 16 : 32;
}

SubBlock taken_apart(DType dtype, const std::byte* row, int64_t s) {
  const int64_t sub = sub_block(dtype);
  const int64_t per_block = info(dtype).block_elements / sub;
  const auto* p = reinterpret_cast<const uint8_t*>(row) + s / per_block * info(dtype).block_bytes;
  auto half = [&](int at) {
    f16 value;
    std::memcpy(&value, p + at, 2);
    return to_float(value);
  };
  const auto i = static_cast<int>(s % per_block);
  SubBlock result;
  result.scale = half(dtype == DType::kQ6_K   ? 208
                      : dtype == DType::kQ3_K ? 108
                      : dtype == DType::kQ2_K ? 80
                                              : 0);
  if (dtype == DType::kQ4_K || dtype == DType::kQ5_K) {
    const uint8_t* q = p + 4;  // six bits each: low ones in place, the upper two elsewhere
    const int scale = i < 4 ? q[i] & 63 : (q[i + 4] & 15) | (q[i - 4] >> 6) << 4;
    const int min = i < 4 ? q[i + 4] & 63 : q[i + 4] >> 4 | (q[i] >> 6) << 4;
    result.min = static_cast<float>(min) * -half(2);
    result.scale *= static_cast<float>(scale);
  } else if (dtype == DType::kQ6_K) {
    result.scale *= static_cast<float>(static_cast<int8_t>(p[192 + i]));
  } else if (dtype == DType::kQ2_K) {
    result.scale *= static_cast<float>(p[i] & 15);
    result.min = static_cast<float>(p[i] >> 4) * -half(82);
  } else if (dtype == DType::kQ3_K) {
    const uint8_t* q = p + 96;  // four bits of two scales, then two bits of four
    const int scale = (q[i % 8] >> (i / 8 * 4) & 15) | (q[8 + i % 4] >> (i / 4 * 2) & 3) << 4;
    result.scale *= static_cast<float>(scale - 32);
  } else if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1) {
    result.min = half(2);
  }
  for (int k = 0; k < sub; ++k) {
    const int e = static_cast<int>(i * sub) + k, l = e % 128;  // element of the block
    int code = 0;
    if (dtype == DType::kQ8_0) code = static_cast<int8_t>(p[2 + e]);
    if (dtype == DType::kQ4_0) code = (p[2 + e % 16] >> (e < 16 ? 0 : 4) & 15) - 8;
    if (dtype == DType::kQ5_0) {
      const int low = p[6 + e % 16] >> (e < 16 ? 0 : 4) & 15;
      code = (low | (p[2 + e / 8] >> (e % 8) & 1) << 4) - 16;
    }
    if (dtype == DType::kQ4_1) code = p[4 + e % 16] >> (e < 16 ? 0 : 4) & 15;
    if (dtype == DType::kQ5_1) {
      const int low = p[8 + e % 16] >> (e < 16 ? 0 : 4) & 15;
      code = low | (p[4 + e / 8] >> (e % 8) & 1) << 4;
    }
    const int pair = e / 128 * 32 + e % 32, pair_shift = l / 32 * 2;
    if (dtype == DType::kQ2_K) code = p[16 + pair] >> pair_shift & 3;
    if (dtype == DType::kQ3_K) {
      code = (p[32 + pair] >> pair_shift & 3) | (p[e % 32] >> (e / 32) & 1) << 2;
      code -= 4;
    }
    const int nibble = e / 64 * 32 + e % 32, shift = e / 32 % 2 * 4;
    if (dtype == DType::kQ4_K) code = p[16 + nibble] >> shift & 15;
    if (dtype == DType::kQ5_K) {
      code = (p[48 + nibble] >> shift & 15) | (p[16 + e % 32] >> (e / 32) & 1) << 4;
    }
    if (dtype == DType::kQ6_K) {
      const int low = p[e / 128 * 64 + l % 64] >> (l < 64 ? 0 : 4) & 15;
      code = (low | (p[128 + e / 128 * 32 + l % 32] >> (l / 32 * 2) & 3) << 4) - 32;
    }
    result.codes.push_back(code);
  }
  return result;
}

}  // namespace

TEST_CASE("sums on panels are the chain that panel_dot.h writes down, bit for bit") {
  on_every_target([] {
    Philox random(10);
    for (DType dtype : kWeightTypes) {
      if (!is_quantized(dtype)) continue;
      INFO(name(dtype));
      const int64_t cols = 512, rows = 16, sub = sub_block(dtype);
      const auto bytes = random_weights(random, dtype, rows, cols);
      const Weight w{bytes.data(), dtype, rows, cols};
      const auto panels = pack(w);
      std::vector<std::byte> memory;
      const std::vector<float> values = random_floats(random, cols);
      const QuantizedRows x = quantize(values, 1, cols, memory);
      std::vector<std::byte> room;
      const StripRows strips = quantize_strips(panel_strips, values, 1, cols, room);
      std::vector<float> y(rows);
      dot_panels_quantized(in_panels(w, panels), 0, rows, strips, y.data(), rows);
      const bool fused = chosen_simd_target() != "sse4" && chosen_simd_target() != "sse2";
      auto fma = [&](float a, float b, float c) { return fused ? std::fma(a, b, c) : a * b + c; };
      for (int64_t j = 0; j < rows; ++j) {
        float sum = 0;
        for (int64_t s = 0; s < cols / sub; ++s) {
          const auto [scale, min, codes] =
              taken_apart(dtype, bytes.data() + j * row_bytes(dtype, cols), s);
          const float xsum = sub == 16 ? x.sum_16[s] : x.sum_32[s];
          int32_t product = 0;
          for (int64_t i = 0; i < sub; ++i) product += codes[i] * x.codes[s * sub + i];
          const float xscale = sub == 16 ? x.scale_16[s] : x.scale_32[s];
          sum = fma(static_cast<float>(product), xscale * scale, sum);
          if (code_form(dtype).has_min) sum = fma(xsum, min, sum);
        }
        CHECK(y[j] == sum);
      }
    }
  });
}

TEST_CASE("no product reads panels beyond the last") {
  constexpr size_t kPage = 4096;
  for (DType dtype : kWeightTypes) {
    for (const int64_t height : {int64_t{16}, int64_t{70}}) {
      if (!has_panels(dtype, 256)) continue;
      INFO(name(dtype) << ", " << height << " rows");
      Philox random(12);
      const auto bytes = random_weights(random, dtype, height, 256);
      const Weight w{bytes.data(), dtype, height, 256};
      const auto panels = pack(w);
      // They end where a page begins that cannot be read.
      const size_t readable = (panels.size() + kPage - 1) / kPage * kPage;
      void* memory = ::mmap(nullptr, readable + kPage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      REQUIRE(memory != MAP_FAILED);
      auto* const place = static_cast<std::byte*>(memory) + readable - panels.size();
      std::copy(panels.begin(), panels.end(), place);
      REQUIRE(::mprotect(static_cast<std::byte*>(memory) + readable, kPage, PROT_NONE) == 0);
      on_every_target([&] {
        for (const int64_t m : {1, 3, 8, 40}) {
          const auto x = random_floats(random, m * 256);
          const std::vector<Weight> weights{{place, dtype, height, 256, Layout::kPanels}};
          const auto y = run_linear(1, x.data(), 256, m, weights);
          CHECK(relative_error(y, expected_linear(x.data(), 256, m, {w})) <
                error_bound(m, weights));
        }
      });
      ::munmap(memory, readable + kPage);
    }
  }
}

TEST_CASE("panels of several types and odd heights share one call with rows") {
  on_every_target([] {
    Philox random(11);
    const int64_t cols = 512;
    std::vector<std::vector<std::byte>> memory;
    std::vector<Weight> rows, weights;
    for (const auto& [dtype, height] : {std::pair<DType, int64_t>{DType::kQ4_K, 70},
                                        {DType::kQ6_K, 5},
                                        {DType::kBF16, 130},
                                        {DType::kF16, 3},
                                        {DType::kF32, 18},
                                        {DType::kQ8_0, 33}}) {
      memory.push_back(random_weights(random, dtype, height, cols));
      rows.push_back({memory.back().data(), dtype, height, cols});
      memory.push_back(pack(rows.back()));
      weights.push_back(dtype == DType::kQ6_K ? rows.back()
                                              : in_panels(rows.back(), memory.back()));
    }
    for (int64_t m : {1, 2, 5, 13, 25, 130, 530}) {
      INFO("m = " << m);
      const auto x = random_floats(random, m * cols);
      const auto one = run_linear(1, x.data(), cols, m, weights);
      CHECK(relative_error(one, expected_linear(x.data(), cols, m, rows)) <
            error_bound(m, weights));
      CHECK(run_linear(2, x.data(), cols, m, weights) == one);
      CHECK(run_linear(3, x.data(), cols, m, weights) == one);
    }
  });
}

TEST_CASE("panels of float weights have any number of columns") {
  on_every_target([] {
    Philox random(12);
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      INFO(name(dtype));
      for (int64_t cols : {2, 6, 34, 130, 518}) {
        for (int64_t rows : {1, 15, 17, 40}) {
          const auto bytes = random_weights(random, dtype, rows, cols);
          const Weight w{bytes.data(), dtype, rows, cols};
          const auto panels = pack(w);
          for (int64_t m : {1, 5, 20}) {
            INFO(rows << " x " << cols << ", m = " << m);
            const auto x = random_floats(random, m * cols);
            const auto y = run_linear(1, x.data(), cols, m, {in_panels(w, panels)});
            // Few numbers, in which one that is nearly zero can be most of the error.
            CHECK(relative_error(y, expected_linear(x.data(), cols, m, {w})) < 1e-5);
          }
        }
      }
    }
  });
}

TEST_CASE("the native kernel of panels gives the bits of the portable one") {
  on_every_native_target([] {
    Philox random(13);
    for (DType dtype : kWeightTypes) {
      if (!is_quantized(dtype) || !has_panels(dtype, 256)) continue;
      INFO(name(dtype));
      for (int64_t blocks : {1, 2, 5, 11}) {
        const int64_t cols = blocks * info(dtype).block_elements, rows = 21, m = 15;
        const auto bytes = random_weights(random, dtype, rows, cols);
        const Weight w{bytes.data(), dtype, rows, cols};
        const auto panels = pack(w);
        const std::vector<float> values = random_floats(random, m * cols);
        std::vector<std::byte> memory, other_memory;
        const StripRows x = quantize_strips(native_panel_strips, values, m, cols, memory);
        const StripRows same =
            quantize_strips(portable_panel_strips, values, m, cols, other_memory);
        std::vector<float> native(m * rows), portable(m * rows);
        dot_panels_native(in_panels(w, panels), 0, rows, x, native.data(), rows);
        dot_panels_portable(in_panels(w, panels), 0, rows, same, portable.data(), rows);
        CHECK(native == portable);
        // A range that begins and ends inside panels.
        std::vector<float> part(m * 10);
        dot_panels_native(in_panels(w, panels), 9, 19, x, part.data(), 10);
        for (int64_t r = 0; r < m; ++r) {
          CHECK(std::equal(part.begin() + r * 10, part.begin() + (r + 1) * 10,
                           native.begin() + r * rows + 9));
        }
      }
    }
  });
}

TEST_CASE("a NaN or infinity in the activations is never hidden by their rounding") {
  on_every_target([] {
    Philox random(5);
    const auto bytes = random_weights(random, DType::kQ4_1, 8, 64);
    const std::vector<Weight> weights{{bytes.data(), DType::kQ4_1, 8, 64}};
    for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      for (int64_t m : {1, 12, 30}) {
        auto x = random_floats(random, m * 64);
        x[40] = bad;
        const auto y = run_linear(1, x.data(), 64, m, weights);
        for (int64_t j = 0; j < 8; ++j) CHECK(std::isnan(y[j]));
        for (size_t j = 8; j < y.size(); ++j) CHECK(std::isfinite(y[j]));
      }
    }
    const std::vector<float> tiny(64, 1e-40f);
    for (float y : run_linear(1, tiny.data(), 64, 1, weights)) CHECK(y == 0.0f);
  });
}

TEST_CASE("empty products are zero and empty inputs do nothing") {
  ThreadPool pool(2);
  const Weight none{nullptr, DType::kF32, 5, 0};
  for (int64_t m : {1, 20}) {
    std::vector<float> y(m * 5, 7.0f);
    std::vector<std::byte> memory(linear_workspace_bytes(m, 0, 2) + 64);
    linear(pool, {.x = y.data(),
                  .x_stride = 0,
                  .m = m,
                  .weights = {&none, 1},
                  .y = y.data(),
                  .y_stride = 5,
                  .workspace = align_64(memory)});
    CHECK(std::all_of(y.begin(), y.end(), [](float v) { return v == 0.0f; }));
  }
  linear(pool, {.x = nullptr,
                .x_stride = 0,
                .m = 0,
                .weights = {&none, 1},
                .y = nullptr,
                .y_stride = 0,
                .workspace = nullptr});
}

TEST_CASE("linear_workspace_bytes never decreases with the number of rows") {
  for (int64_t cols : {32, 2048, 5632}) {
    size_t before = 0;
    for (int64_t m = 1; m < 1200; ++m) {
      const size_t bytes = linear_workspace_bytes(m, cols, 2);
      CHECK(bytes >= before);
      before = bytes;
    }
  }
}

TEST_CASE("gemm agrees with the naive loop for all layouts and shapes") {
  on_every_target([] {
    Philox random(6);
    struct Size {
      int64_t m, n, k;
    };
    for (Size s : {Size{1, 1, 1},
                   {2, 3, 5},
                   {13, 33, 31},
                   {12, 32, 64},
                   {40, 10, 600},
                   {5, 70, 9},
                   {6, 16, 1100},
                   {520, 3, 7},
                   {3, 4, 0}}) {
      const auto a = random_floats(random, s.m * s.k), b = random_floats(random, s.k * s.n);
      for (bool a_transposed : {false, true}) {
        for (bool b_transposed : {false, true}) {
          GemmArgs args{};
          args.m = s.m, args.n = s.n, args.k = s.k;
          args.a = a.data(), args.b = b.data();
          args.a_row_stride = a_transposed ? 1 : s.k;
          args.a_col_stride = a_transposed ? s.m : 1;
          args.b_row_stride = b_transposed ? 1 : s.n;
          args.b_col_stride = b_transposed ? s.k : 1;
          args.c_stride = s.n + 1;
          const auto expected = reference::gemm(args);
          std::vector<float> first;
          for (int threads : {1, 2, 3}) {
            ThreadPool pool(threads);
            std::vector<float> c(s.m * args.c_stride, -3.0f);
            std::vector<std::byte> memory(gemm_workspace_bytes(s.m, s.n, s.k, threads) + 64);
            args.c = c.data();
            args.workspace = align_64(memory);
            gemm(pool, args);
            std::vector<float> actual;
            for (int64_t i = 0; i < s.m; ++i) {
              for (int64_t j = 0; j < s.n; ++j) actual.push_back(c[i * args.c_stride + j]);
              CHECK(c[i * args.c_stride + s.n] == -3.0f);
            }
            INFO(s.m << " x " << s.n << " x " << s.k << ", threads " << threads);
            CHECK(relative_error(actual, expected) < 2e-6);
            if (threads == 1) first = actual;
            CHECK(actual == first);
          }
        }
      }
    }
  });
}
