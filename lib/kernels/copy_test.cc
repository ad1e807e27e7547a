#include "lib/kernels/copy.h"

#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr int64_t kElements = 20'000;

// `kElements` values of any plain type, each small integer exact in all of them.
std::vector<std::byte> numbers(DType dtype) {
  std::vector<float> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        dtype == DType::kBool ? static_cast<float>(i % 3 == 0) : static_cast<float>(i * 7 % 101);
  }
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(dtype, kElements)));
  if (dtype == DType::kF64) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double wide = values[i];
      std::memcpy(&bytes[i * 8], &wide, 8);
    }
  } else {
    from_float(dtype, values.data(), bytes.data(), kElements);
  }
  return bytes;
}

// The same, made once, and the floats that they are.
struct Numbers {
  std::vector<std::byte> stored;
  std::vector<float> floats;
};
const Numbers& numbers_of(DType dtype) {
  static std::map<DType, Numbers> made;
  const auto [at, is_new] = made.try_emplace(dtype);
  if (is_new) {
    at->second = {numbers(dtype), std::vector<float>(kElements)};
    to_float(dtype, at->second.stored.data(), at->second.floats.data(), kElements);
  }
  return at->second;
}

// Copies a view of `offset` and strides and compares element by element.
void check(DType from, DType to, const Shape& shape, const Strides& strides, int64_t offset = 0) {
  const auto& [x, source] = numbers_of(from);
  const int64_t n = shape.elements();
  std::vector<float> expected;
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i, at = offset;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at += rest % shape[axis] * strides[static_cast<size_t>(axis)];
      rest /= shape[axis];
    }
    const float value = source[static_cast<size_t>(at)];
    expected.push_back(to == DType::kBool ? static_cast<float>(value != 0) : value);
  }
  for (int threads : {1, 3}) {
    INFO(name(from) << " to " << name(to) << " " << to_string(shape) << ", " << threads);
    ThreadPool pool(threads);
    std::vector<std::byte> y(static_cast<size_t>(row_bytes(to, n)), std::byte{0x55});
    copy(pool, from, x.data() + row_bytes(from, offset), strides, shape, to, y.data());
    std::vector<float> got(static_cast<size_t>(n));
    to_float(to, y.data(), got.data(), n);
    REQUIRE(got == expected);
  }
}

constexpr DType kPlain[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
                            DType::kU8,  DType::kI32, DType::kI64,  DType::kBool};

}  // namespace

TEST_CASE("copy repeats elements and walks backwards, whatever their size") {
  for (DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kF64}) {
    for (int64_t times : {2, 3, 5}) {
      for (int64_t line : {2, 17, 6000}) {
        check(dtype, dtype, {line, times}, {1, 0});
        check(dtype, dtype, {3, line, times}, {line + 1, 1, 0});
      }
    }
    for (int64_t n : {1, 7, 64, 1001}) {
      check(dtype, dtype, {n}, {-1}, n - 1);
      check(dtype, dtype, {3, n}, {n, -1}, n - 1);
    }
  }
}

TEST_CASE("copy takes views of every kind") {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kI8, DType::kF64}) {
    check(dtype, dtype, {}, {});
    check(dtype, dtype, {0, 3}, {3, 1});
    check(dtype, dtype, {10'000}, {1});
    check(dtype, dtype, {700}, {7});
    check(dtype, dtype, {20, 30, 31}, {930, 31, 1});     // contiguous
    check(dtype, dtype, {13, 30, 29}, {930, 31, 1}, 3);  // a slice
    check(dtype, dtype, {97, 130}, {1, 97});             // transposed
    check(dtype, dtype, {3, 97, 50}, {97 * 50, 1, 97});  // batch of transposed
    check(dtype, dtype, {5, 6, 7, 8}, {336, 8, 48, 1});  // heads and tokens exchanged
    check(dtype, dtype, {5, 6, 7, 8}, {1, 280, 40, 5});  // last axis to the front
    check(dtype, dtype, {40, 50}, {0, 1});               // broadcast rows
    check(dtype, dtype, {40, 50}, {1, 0});               // broadcast columns
    check(dtype, dtype, {40, 50}, {0, 0}, 5);
    check(dtype, dtype, {1, 40, 1, 5}, {99, 5, 1234, 1});  // strides of unit axes are free
    check(dtype, dtype, {30, 20}, {-20, 1}, 29 * 20);      // reversed
    check(dtype, dtype, {30, 20}, {20, -1}, 19);
  }
}

TEST_CASE("short rows of any length are copied alone") {
  for (DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kF64}) {
    for (int64_t n : {1, 2, 3, 5, 9, 16, 17, 33, 63, 64, 65, 130}) {
      check(dtype, dtype, {3, 5, 9, n}, {45 * n, n, 5 * n, 1});  // heads and tokens exchanged
      check(dtype, dtype, {41, n}, {n + 3, 1}, 2);
    }
  }
}

TEST_CASE("bytes are copied alone, however many") {
  for (int64_t n = 0; n < 300; ++n) {
    std::vector<std::byte> x(static_cast<size_t>(n)), y(static_cast<size_t>(n + 2), std::byte{9});
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::byte>(i * 3);
    copy_bytes(x.data(), n, y.data() + 1);
    CHECK(std::equal(x.begin(), x.end(), y.begin() + 1));
    CHECK((y.front() == std::byte{9} && y.back() == std::byte{9}));
  }
}

TEST_CASE("short rows are reversed alone, whatever their size and that of the elements") {
  for (DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64}) {
    on_every_target([&] {
      for (int64_t n = 1; n < 70; ++n) check(dtype, dtype, {30, n}, {n + 1, -1}, n - 1);
    });
  }
}

TEST_CASE("zeros around single elements and rows of any length") {
  for (int64_t size : {1, 2, 4, 8}) {
    for (const auto& [shape, before, to] :
         std::vector<std::array<Shape, 3>>{{{{700, 1}, {0, 0}, {700, 2}}},
                                           {{{3, 700, 1}, {1, 2, 1}, {5, 703, 4}}},
                                           {{{5, 1}, {2, 9000}, {8, 20000}}},
                                           {{{40, 3}, {1, 1}, {41, 5}}},
                                           {{{6}, {3}, {11}}}}) {
      INFO(size << " bytes, " << to_string(shape) << " in " << to_string(to));
      std::vector<std::byte> x(static_cast<size_t>(shape.elements() * size));
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::byte>(i % 251 + 1);
      std::vector<std::byte> expected(static_cast<size_t>(to.elements() * size));
      for (int64_t i = 0; i < shape.elements(); ++i) {
        int64_t at = 0, step = 1, rest = i;
        for (int axis = shape.rank() - 1; axis >= 0; --axis) {
          at += (rest % shape[axis] + before[axis]) * step;
          rest /= shape[axis];
          step *= to[axis];
        }
        std::memcpy(&expected[static_cast<size_t>(at * size)], &x[static_cast<size_t>(i * size)],
                    static_cast<size_t>(size));
      }
      for (int threads : {1, 3}) {
        ThreadPool pool(threads);
        std::vector<std::byte> y(expected.size(), std::byte{0x55});
        pad(pool, size, x.data(), shape, before, to, y.data());
        REQUIRE(y == expected);
      }
    }
  }
}

TEST_CASE("matrices are turned on every target, whatever their size and that of the elements") {
  on_every_target([&] {
    for (DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kF64}) {
      for (int64_t rows : {1, 3, 8, 15, 16, 17, 31, 64, 65, 131}) {
        for (int64_t columns : {2, 4, 7, 16, 33, 64, 100}) {
          check(dtype, dtype, {rows, columns}, {1, rows});
          check(dtype, dtype, {rows, columns}, {1, rows + 3}, 2);
        }
      }
    }
    check(DType::kF16, DType::kF32, {67, 101}, {1, 67});
    check(DType::kI64, DType::kU8, {67, 101}, {1, 67});
  });
}

TEST_CASE("copy converts between all plain types") {
  for (DType from : kPlain) {
    for (DType to : kPlain) {
      check(from, to, {70, 90}, {90, 1});
      check(from, to, {9, 300}, {1, 9});
      check(from, to, {2, 97, 70}, {97 * 70, 1, 97});
    }
  }
}

TEST_CASE("copy keeps bytes of equal types and converts rows of quantised ones") {
  ThreadPool pool(2);
  Philox random(1);
  const std::vector<float> x = random_floats(random, 64 * 96);
  std::vector<std::byte> q(static_cast<size_t>(row_bytes(DType::kQ8_0, 64 * 96)));
  copy(pool, DType::kF32, reinterpret_cast<const std::byte*>(x.data()), {96, 1}, {64, 96},
       DType::kQ8_0, q.data());
  std::vector<std::byte> direct(q.size());
  from_float(DType::kQ8_0, x.data(), direct.data(), 64 * 96);
  CHECK(q == direct);

  // Every second row, as bytes and as half precision.
  std::vector<std::byte> rows(q.size() / 2), halves(32 * 96 * 2);
  copy(pool, DType::kQ8_0, q.data(), {192, 1}, {32, 96}, DType::kQ8_0, rows.data());
  copy(pool, DType::kQ8_0, q.data(), {192, 1}, {32, 96}, DType::kF16, halves.data());
  const auto bytes = static_cast<size_t>(row_bytes(DType::kQ8_0, 96));
  for (size_t row = 0; row < 32; ++row) {
    REQUIRE(std::memcmp(&rows[row * bytes], &q[2 * row * bytes], bytes) == 0);
    float values[96];
    std::byte expected[192];
    to_float(DType::kQ8_0, &q[2 * row * bytes], values, 96);
    from_float(DType::kF16, values, expected, 96);
    REQUIRE(std::memcmp(&halves[row * 192], expected, 192) == 0);
  }
}

TEST_CASE("gather_rows picks rows of every type") {
  ThreadPool pool(3);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    std::vector<float> values(50 * 96);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 113) / 8;
    std::vector<std::byte> table(static_cast<size_t>(row_bytes(dtype, 50 * 96)));
    from_float(dtype, values.data(), table.data(), 50 * 96);
    to_float(dtype, table.data(), values.data(), 50 * 96);
    std::vector<int32_t> ids;
    for (int i = 0; i < 700; ++i) ids.push_back(i * 17 % 50);
    std::vector<float> y(ids.size() * 96);
    gather_rows(pool, dtype, table.data(), 96, ids.data(), static_cast<int64_t>(ids.size()),
                DType::kF32, reinterpret_cast<std::byte*>(y.data()));
    std::vector<std::byte> stored(ids.size() * static_cast<size_t>(row_bytes(dtype, 96)));
    gather_rows(pool, dtype, table.data(), 96, ids.data(), static_cast<int64_t>(ids.size()), dtype,
                stored.data());
    std::vector<float> as_floats(y.size());
    to_float(dtype, stored.data(), as_floats.data(), static_cast<int64_t>(y.size()));
    CHECK(as_floats == y);
    for (size_t i = 0; i < ids.size(); ++i) {
      REQUIRE(std::memcmp(&y[i * 96], &values[static_cast<size_t>(ids[i]) * 96], 96 * 4) == 0);
    }
  }
}
