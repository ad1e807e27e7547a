#include "lib/kernels/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

std::vector<uint8_t> read_bytes(const std::string& path, size_t skip = 0) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  REQUIRE(bytes.size() > skip);
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(skip));
  return bytes;
}

// The float32 data of an .npy file of version 1 with a 128-byte header.
std::vector<float> read_npy(const std::string& path) {
  const auto bytes = read_bytes(path, 128);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

struct Vector {
  const char* name;
  DType dtype;
};

constexpr Vector kVectors[] = {
    {"f16", DType::kF16},       {"bf16", DType::kBF16},     {"q8_0", DType::kQ8_0},
    {"q4_0", DType::kQ4_0},     {"q4_1", DType::kQ4_1},     {"q5_0", DType::kQ5_0},
    {"q5_1", DType::kQ5_1},     {"q2_K", DType::kQ2_K},     {"q3_K", DType::kQ3_K},
    {"q4_K", DType::kQ4_K},     {"q5_K", DType::kQ5_K},     {"q6_K", DType::kQ6_K},
    {"iq4_nl", DType::kIQ4_NL}, {"iq4_xs", DType::kIQ4_XS},
};

}  // namespace

TEST_CASE("to_float gives ggml's values bit for bit") {
  LUMEN_SHARED_DATA(folder, "formats/quant-vectors");
  for (const Vector& vector : kVectors) {
    INFO(vector.name);
    const auto stored = read_bytes(folder + "/" + vector.name + ".q");
    const auto expected = read_npy(folder + "/" + vector.name + ".f32.npy");
    on_every_target([&] {
      // One byte in, so that nothing is aligned.
      std::vector<uint8_t> shifted(stored.size() + 1);
      std::memcpy(shifted.data() + 1, stored.data(), stored.size());
      std::vector<float> actual(expected.size());
      to_float(vector.dtype, shifted.data() + 1, actual.data(),
               static_cast<int64_t>(actual.size()));
      CHECK(same_bits(actual, expected));
    });
  }
}

TEST_CASE("from_float gives ggml's bytes for f16, bf16 and q8_0") {
  LUMEN_SHARED_DATA(folder, "formats/quant-vectors");
  const auto input = read_npy(folder + "/input.npy");
  for (const Vector& vector : {kVectors[0], kVectors[1], kVectors[2]}) {
    INFO(vector.name);
    const auto expected = read_bytes(folder + "/" + vector.name + ".q");
    on_every_target([&] {
      std::vector<uint8_t> actual(expected.size());
      from_float(vector.dtype, input.data(), actual.data(), static_cast<int64_t>(input.size()));
      CHECK(actual == expected);
    });
  }
}

TEST_CASE("mxfp4 stands for the numbers of its definition, exactly for every normal scale") {
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  on_every_target([&] {
    for (int exponent = 2; exponent < 255; ++exponent) {
      uint8_t block[17] = {static_cast<uint8_t>(exponent)};
      for (int i = 0; i < 16; ++i) block[1 + i] = static_cast<uint8_t>(i | (15 - i) << 4);
      float numbers[32];
      to_float(DType::kMXFP4, block, numbers, 32);
      for (int i = 0; i < 32; ++i) {
        const int bits = i < 16 ? i : 31 - i;
        const float number = (bits < 8 ? 1.0f : -1.0f) * kNumbers[bits % 8];
        CHECK(numbers[i] == std::ldexp(number, exponent - 127));
      }
      CHECK_FALSE(has_nonfinite(DType::kMXFP4, block, 32));
    }
    const uint8_t none[17] = {255};
    CHECK(has_nonfinite(DType::kMXFP4, none, 32));
  });
}

TEST_CASE("q8_0 rounds halves away from zero and keeps NaN visible") {
  on_every_target([] {
    std::vector<float> x(64);
    for (int i = 0; i < 32; ++i) x[i] = 0.5f * static_cast<float>(i - 16);
    x[0] = 127.0f;  // scale 1
    x[1] = 0.49999997f;
    x[32] = std::nanf("");
    uint8_t q[68];
    from_float(DType::kQ8_0, x.data(), q, 64);
    const auto* codes = reinterpret_cast<const int8_t*>(q + 2);
    CHECK(codes[1] == 0);
    for (int i = 2; i < 32; ++i) CHECK(codes[i] == static_cast<int>(std::round(x[i])));
    float back[64];
    to_float(DType::kQ8_0, q, back, 64);
    CHECK(std::isnan(back[40]));
    CHECK(has_nonfinite(DType::kQ8_0, q, 64));
  });
}

TEST_CASE("every half and bfloat16 converts as the scalar functions do, at every length") {
  on_every_target([] {
    std::vector<uint16_t> bits(65536);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
    std::vector<float> half(65536), bfloat(65536);
    to_float(DType::kF16, bits.data(), half.data(), 65536);
    to_float(DType::kBF16, bits.data(), bfloat.data(), 65536);
    std::vector<uint16_t> half_back(65536), bfloat_back(65536);
    from_float(DType::kF16, half.data(), half_back.data(), 65536);
    from_float(DType::kBF16, bfloat.data(), bfloat_back.data(), 65536);
    size_t wrong = 0;
    for (size_t i = 0; i < bits.size(); ++i) {
      const float expected = to_float(f16{bits[i]});
      wrong += std::isnan(expected) ? !std::isnan(half[i])
                                    : half[i] != expected || half_back[i] != bits[i];
      const float wide = to_float(bf16{bits[i]});
      wrong += std::isnan(wide) ? !std::isnan(bfloat[i])
                                : bfloat[i] != wide || bfloat_back[i] != bits[i];
    }
    CHECK(wrong == 0);

    for (int64_t n = 0; n <= 40; ++n) {
      std::vector<float> values(n + 1, -7.0f);
      to_float(DType::kF16, bits.data() + 0x3C01, values.data(), n);
      for (int64_t i = 0; i < n; ++i) CHECK(values[i] == to_float(f16{bits[0x3C01 + i]}));
      CHECK(values[n] == -7.0f);
      std::vector<uint16_t> narrow(n + 1, 0xABCD);
      from_float(DType::kBF16, values.data(), narrow.data(), n);
      for (int64_t i = 0; i < n; ++i) CHECK(narrow[i] == to_bf16(values[i]).bits);
      CHECK(narrow[n] == 0xABCD);
    }
  });
}

TEST_CASE("narrowing rounds to nearest even as the scalar functions do") {
  on_every_target([] {
    Philox random(7);
    std::vector<float> x(4096);
    for (float& v : x) {
      v = std::bit_cast<float>(random.next_u32());
      if (std::isnan(v)) v = 1.0f + 0x1p-11f;  // a tie of f16
    }
    std::vector<uint16_t> half(x.size()), bfloat(x.size());
    from_float(DType::kF16, x.data(), half.data(), static_cast<int64_t>(x.size()));
    from_float(DType::kBF16, x.data(), bfloat.data(), static_cast<int64_t>(x.size()));
    size_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      wrong += half[i] != to_f16(x[i]).bits;
      wrong += bfloat[i] != to_bf16(x[i]).bits;
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("values at odd addresses convert at every length") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                            DType::kU8, DType::kI32, DType::kI64}) {
    INFO(name(dtype));
    on_every_target([&] {
      for (int64_t n = 0; n <= 37; ++n) {
        std::vector<float> x(n), y(n);
        std::iota(x.begin(), x.end(), -3.0f);
        if (dtype == DType::kU8) std::iota(x.begin(), x.end(), 0.0f);
        std::vector<std::byte> stored(row_bytes(dtype, n) + 1);
        from_float(dtype, x.data(), stored.data() + 1, n);
        to_float(dtype, stored.data() + 1, y.data(), n);
        CHECK(y == x);
        CHECK_FALSE(has_nonfinite(dtype, stored.data() + 1, n));
      }
    });
  }
}

TEST_CASE("integers round to nearest even, saturate, and take NaN to zero") {
  const float x[] = {2.5f, 3.5f, -2.5f, 1e30f, -1e30f, std::numeric_limits<float>::quiet_NaN()};
  int8_t i8[6];
  from_float(DType::kI8, x, i8, 6);
  CHECK(std::vector<int>(i8, i8 + 6) == std::vector<int>{2, 4, -2, 127, -128, 0});
  uint8_t u8[6];
  from_float(DType::kU8, x, u8, 6);
  CHECK(std::vector<int>(u8, u8 + 6) == std::vector<int>{2, 4, 0, 255, 0, 0});
  int32_t i32[6];
  from_float(DType::kI32, x, i32, 6);
  CHECK(i32[3] == std::numeric_limits<int32_t>::max());
  CHECK(i32[4] == std::numeric_limits<int32_t>::min());
  int64_t i64[6];
  from_float(DType::kI64, x, i64, 6);
  CHECK(i64[3] == std::numeric_limits<int64_t>::max());
  CHECK(i64[4] == std::numeric_limits<int64_t>::min());
  bool flags[6];
  from_float(DType::kBool, x, flags, 6);
  CHECK(flags[0]);
  float back[6];
  to_float(DType::kI64, i64, back, 3);
  CHECK(back[1] == 4.0f);
  to_float(DType::kI8, i8, back, 6);
  CHECK(back[4] == -128.0f);
}

TEST_CASE("has_nonfinite finds one bad scale or element") {
  for (int index = 0; index < kDTypeCount; ++index) {
    const auto dtype = static_cast<DType>(index);
    if (!is_quantized(dtype) && !is_float(dtype)) continue;
    INFO(name(dtype));
    const int64_t n = 512;
    std::vector<uint8_t> row(row_bytes(dtype, n), 0x11);
    CHECK(!has_nonfinite(dtype, row.data(), n));
    // All ones in the last bytes of f16, q2_K, q3_K and q6_K, and the first of the other blocks.
    const int64_t block = info(dtype).block_bytes;
    const bool scale_last = !is_quantized(dtype) || dtype == DType::kQ2_K ||
                            dtype == DType::kQ3_K || dtype == DType::kQ6_K;
    const int64_t at = static_cast<int64_t>(row.size()) - block + (scale_last ? block - 2 : 0);
    row[at] = 0xFF, row[at + 1] = 0x7F;
    CHECK(has_nonfinite(dtype, row.data(), n));
  }
}
