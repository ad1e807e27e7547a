#include "lib/tensor/dtype.h"

#include <cmath>

#include "lib/base/testing.h"

using namespace lumen;

TEST_CASE("every type is found by its name") {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(dtype_named(name(dtype)) == dtype);
  }
  CHECK_FALSE(dtype_named("F32"));
  CHECK_FALSE(dtype_named(""));
}

TEST_CASE("f16 round-trips over all its bit patterns") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      CHECK(std::isnan(to_float(to_f16(value))));
    } else {
      REQUIRE(to_f16(value).bits == bits);
    }
  }
}

TEST_CASE("f16 and bf16 round to nearest even") {
  CHECK(to_float(to_f16(2049.0f)) == 2048.0f);  // halfway, to even
  CHECK(to_float(to_f16(2051.0f)) == 2052.0f);
  CHECK(std::isinf(to_float(to_f16(65520.0f))));
  CHECK(to_float(to_f16(65519.0f)) == 65504.0f);
  CHECK(to_float(to_f16(0x1p-25f)) == 0.0f);  // halfway to the smallest subnormal
  CHECK(to_float(to_f16(0x1.8p-25f)) == 0x1p-24f);
  CHECK(to_float(to_bf16(1.00390625f)) == 1.0f);  // 1 + 2^-8: halfway, to even
  CHECK(std::isnan(to_float(to_bf16(NAN))));
}
