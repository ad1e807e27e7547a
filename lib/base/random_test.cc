#include "lib/base/random.h"

#include "lib/base/testing.h"

using lumen::Philox;

TEST_CASE("Philox4x32-10 gives the known answers of its authors' kat_vectors") {
  CHECK(Philox(0, 0).block(0) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox(~0ull, ~0ull).block(~0ull) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("Philox resumes at any offset") {
  Philox a(42), b(42);
  for (int i = 0; i < 13; ++i) a.next_u32();
  b.set_offset(13);
  CHECK(a.next_u64() == b.next_u64());
}

TEST_CASE("uniform, normal and below have the right moments") {
  Philox random(7);
  double sum = 0, sum_squares = 0, uniform_sum = 0;
  int histogram[5] = {};
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal();
    sum += x, sum_squares += x * x;
    uniform_sum += random.uniform();
    ++histogram[random.below(5)];
  }
  CHECK(sum / kCount == Approx(0).margin(0.015));
  CHECK(sum_squares / kCount == Approx(1).margin(0.02));
  CHECK(uniform_sum / kCount == Approx(0.5).margin(0.005));
  for (int count : histogram) CHECK(count == Approx(kCount / 5).margin(600));
}
