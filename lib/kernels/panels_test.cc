#include "lib/kernels/panels.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/testing/run_linear.h"
#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/weights/int16_product.h"
#include "lib/kernels/weights/panel_dot.h"
#include "lib/kernels/weights/panel_dot_native.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

// Of ‖y‖: halves in panels meet more than 24 rows of x, or more than eight if there are weights in
// rows beside them, as codes of 16 bits.
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

}  // namespace

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

TEST_CASE("linear on panels agrees with the naive loop and with itself whatever the rows") {
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
    on_every_target([&] {
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
    });
  }
}

TEST_CASE("rows as panels give the bits of panels, alone and beside others") {
  Philox random(10);
  const int64_t most = 33;
  const auto later = [](Weight w) {
    w.layout = Layout::kRowsAsPanels;
    return w;
  };
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
      const auto x = random_floats(random, most * cols);
      on_every_target([&] {
        for (int64_t m : {1, 2, 8, 9, 24, 25, 33}) {
          INFO("m = " << m);
          const auto run = [&](int threads, const std::vector<Weight>& weights) {
            return run_linear(threads, x.data(), cols, m, weights);
          };
          const auto want = run(1, {in_panels(a, panels_a), in_panels(b, panels_b)});
          const auto mixed = run(1, {in_panels(a, panels_a), rows, in_panels(b, panels_b)});
          for (int threads : {1, 2}) {
            CHECK(run(threads, {later(a), later(b)}) == want);
            CHECK(run(threads, {later(a), rows, later(b)}) == mixed);
          }
        }
      });
    }
  }
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
  result.scale = dtype == DType::kMXFP4 ? std::ldexp(1.0f, p[0] - 128)
                                        : half(dtype == DType::kQ6_K   ? 208
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
  } else if (dtype == DType::kIQ4_XS) {
    const int scale = (p[4 + i / 2] >> (i % 2 * 4) & 15) | (p[2 + i / 4] >> (i % 4 * 2) & 3) << 4;
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
    constexpr int kNonlinear[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
    if (dtype == DType::kIQ4_NL) code = kNonlinear[p[2 + e % 16] >> (e < 16 ? 0 : 4) & 15];
    if (dtype == DType::kIQ4_XS) {
      code = kNonlinear[p[8 + 16 * i + k % 16] >> (k < 16 ? 0 : 4) & 15];
    }
    constexpr int kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12};
    if (dtype == DType::kMXFP4) {
      const int bits = p[1 + e % 16] >> (e < 16 ? 0 : 4) & 15;
      code = bits < 8 ? kTwice[bits] : -kTwice[bits - 8];
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
