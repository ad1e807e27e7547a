#include "lib/kernels/typed.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/testing.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

template <typename From, typename To>
std::vector<To> cast_all(DType from, const std::vector<From>& x, DType to) {
  std::vector<To> y(x.size());
  cast(from, reinterpret_cast<const std::byte*>(x.data()), to,
       reinterpret_cast<std::byte*>(y.data()), static_cast<int64_t>(x.size()));
  return y;
}

template <typename T>
TypedOperand operand(const std::vector<T>& x, DType dtype, Strides strides) {
  return {reinterpret_cast<const std::byte*>(x.data()), dtype, strides};
}

}  // namespace

TEST_CASE("casts truncate floats, wrap integers and take anything but 0 as true") {
  const std::vector<double> reals = {-1.9, 1.9, 300, -300, NAN, INFINITY, 1e30};
  CHECK(cast_all<double, int32_t>(DType::kF64, reals, DType::kI32) ==
        std::vector<int32_t>{-1, 1, 300, -300, 0, std::numeric_limits<int32_t>::max(),
                             std::numeric_limits<int32_t>::max()});
  CHECK(cast_all<double, int8_t>(DType::kF64, reals, DType::kI8) ==
        std::vector<int8_t>{-1, 1, 127, -128, 0, 127, 127});
  CHECK(cast_all<int64_t, uint8_t>(DType::kI64, {256, -1, int64_t{1} << 40}, DType::kU8) ==
        std::vector<uint8_t>{0, 255, 0});
  CHECK(cast_all<double, uint8_t>(DType::kF64, {0.0, -0.0, 0.1, NAN}, DType::kBool) ==
        std::vector<uint8_t>{0, 0, 1, 1});
  const int64_t large = (int64_t{1} << 53) + 1;  // no double
  CHECK(cast_all<int64_t, int64_t>(DType::kI64, {large}, DType::kI64)[0] == large);
}

TEST_CASE("integer division never traps") {
  const int64_t lowest = std::numeric_limits<int64_t>::min();
  CHECK(floor_quotient(lowest, int64_t{-1}) == lowest);
  CHECK(floor_modulo(lowest, int64_t{-1}) == 0);
  CHECK(integer_remainder(lowest, -1) == 0);
  CHECK(floor_quotient(int64_t{5}, int64_t{0}) == 0);
  CHECK(floor_modulo(int64_t{5}, int64_t{0}) == 0);
  CHECK(floor_quotient(int64_t{-7}, int64_t{2}) == -4);
  CHECK(floor_modulo(int64_t{-7}, int64_t{2}) == 1);
  CHECK(static_cast<uint64_t>(integer_power(3, 40)) == 12157665459056928801ull);
  CHECK(integer_power(-1, -3) == -1);
  CHECK(integer_power(2, -1) == 0);
}

TEST_CASE("a scan carries double, whatever the number of threads") {
  const int64_t lines = 40, n = 700;
  std::vector<float> x(static_cast<size_t>(lines * n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1f * static_cast<float>(i % 13);
  const std::vector<float> one = {1};
  std::vector<float> results[2];
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<float>& y = results[threads > 1];
    y.resize(x.size());
    linear_scan(pool, operand(one, DType::kF32, {0, 0}), operand(x, DType::kF32, {n, 1}),
                {lines, n}, 1, DType::kF32, reinterpret_cast<std::byte*>(y.data()));
  }
  CHECK(results[0] == results[1]);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[static_cast<size_t>(i)];
  CHECK(results[0][static_cast<size_t>(n - 1)] == static_cast<float>(sum));
}
