#include "lib/kernels/typed.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reduce.h"
#include "lib/kernels/testing/every_target.h"

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

TEST_CASE("casts are those of single elements on every target, whatever the length") {
  constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                              DType::kU8,  DType::kI32, DType::kI64, DType::kBool};
  const double numbers[] = {0,     -0.0, 0.4,  -1.9,   127.6, -129, 255,      256,
                            65519, -3e9, 1e10, 9.3e18, -1e19, NAN,  INFINITY, -INFINITY};
  constexpr int64_t kCount = 16;
  // The bytes that these numbers are in `dtype`, one cast each.
  auto stored = [&](DType dtype) {
    std::vector<std::byte> bytes(kCount * 8);
    for (int64_t i = 0; i < kCount; ++i) {
      store_typed(dtype, numbers + i, 1, bytes.data() + i * info(dtype).block_bytes);
    }
    return bytes;
  };
  on_every_target([&] {
    for (DType from : kTypes) {
      const int64_t size = info(from).block_bytes;
      const std::vector<std::byte> few = stored(from);
      for (DType to : kTypes) {
        const int64_t to_size = info(to).block_bytes;
        for (int64_t n : {0, 1, 15, 64, 777}) {
          INFO(name(from) << " to " << name(to) << ", " << n);
          std::vector<std::byte> x(static_cast<size_t>(n * size + 1)), y(n * to_size + 2), want = y;
          for (int64_t i = 0; i < n; ++i) {
            const std::byte* const one = few.data() + i % kCount * size;
            std::copy_n(one, size, x.data() + 1 + i * size);  // misaligned
            if (is_float(from)) {
              double value;
              load_typed(from, one, 1, 1, &value);
              store_typed(to, &value, 1, want.data() + 1 + i * to_size);
            } else {
              int64_t value;
              load_typed(from, one, 1, 1, &value);
              store_typed(to, &value, 1, want.data() + 1 + i * to_size);
            }
          }
          cast(from, x.data() + 1, to, y.data() + 1, n);
          REQUIRE(y == want);
        }
      }
    }
  });
}

namespace {

// All of one type: any bits, small numbers among them, of floats NaN and infinities too.
template <typename T>
std::vector<T> some_values(Philox& random, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      values[i] = i % 7 == 3    ? NAN
                  : i % 11 == 5 ? INFINITY
                                : static_cast<T>(random.uniform()) - 0.5;
    } else {
      const uint64_t bits = random.next_u64();
      values[i] = static_cast<T>(i % 3 == 0 ? bits % 5 : i % 7 == 0 ? bits >> 12 : bits);
    }
  }
  return values;
}

template <typename T>
struct Arithmetic {
  TypedOp op;
  T (*f)(const T*);
  int arguments;
};

template <typename T>
std::vector<Arithmetic<T>> arithmetic() {
  constexpr bool kReal = std::is_floating_point_v<T>;
  using S = std::conditional_t<kReal, double, int64_t>;
  return {
      {TypedOp::kAdd,
       [](const S* x) -> S {
         if constexpr (kReal) return x[0] + x[1];
         return wrap_add(x[0], x[1]);
       },
       2},
      {TypedOp::kSubtract,
       [](const S* x) -> S {
         if constexpr (kReal) return x[0] - x[1];
         return wrap_add(x[0], wrap_neg(x[1]));
       },
       2},
      {TypedOp::kMultiply,
       [](const S* x) -> S {
         if constexpr (kReal) return x[0] * x[1];
         return wrap_mul(x[0], x[1]);
       },
       2},
      {TypedOp::kNegate,
       [](const S* x) -> S {
         if constexpr (kReal) return -x[0];
         return wrap_neg(x[0]);
       },
       1},
      {TypedOp::kMagnitude,
       [](const S* x) -> S {
         if constexpr (kReal) return std::fabs(x[0]);
         return x[0] < 0 ? wrap_neg(x[0]) : x[0];
       },
       1},
      {TypedOp::kRelu, [](const S* x) -> S { return x[0] < 0 ? S{0} : x[0]; }, 1},
      {TypedOp::kMaximum,
       [](const S* x) -> S {
         return x[0] != x[0] || x[1] != x[1] ? x[0] + x[1] : std::max(x[0], x[1]);
       },
       2},
      {TypedOp::kMinimum,
       [](const S* x) -> S {
         return x[0] != x[0] || x[1] != x[1] ? x[0] + x[1] : std::min(x[0], x[1]);
       },
       2},
      {TypedOp::kLess, [](const S* x) -> S { return x[0] < x[1]; }, 2},
      {TypedOp::kEqual, [](const S* x) -> S { return x[0] == x[1]; }, 2},
      {TypedOp::kWhere, [](const S* x) -> S { return x[0] != 0 ? x[1] : x[2]; }, 3},
  };
}

// Of integers alone.
std::vector<Arithmetic<int64_t>> divisions() {
  return {
      {TypedOp::kRest, [](const int64_t* x) { return integer_remainder(x[0], x[1]); }, 2},
      {TypedOp::kFloorRest, [](const int64_t* x) { return floor_modulo(x[0], x[1]); }, 2},
      {TypedOp::kFloorQuotient, [](const int64_t* x) { return floor_quotient(x[0], x[1]); }, 2},
  };
}

// Whether the vectors of `op` give the bytes of its function, which kNone calls.
template <typename T>
void check_arithmetic(DType dtype) {
  using S = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;
  Philox random(5);
  ThreadPool pool(3);
  auto all = arithmetic<S>();
  if constexpr (std::is_same_v<S, int64_t>) {
    for (const auto& division : divisions()) all.push_back(division);
  }
  for (const auto& [op, f, arguments] : all) {
    for (const Shape& shape :
         {Shape{}, Shape{0}, Shape{1}, Shape{33}, Shape{3, 5}, Shape{2, 9001}}) {
      const auto count = shape.elements();
      std::vector<std::vector<T>> values;
      std::vector<TypedOperand> operands;
      for (int i = 0; i < arguments; ++i) {
        values.push_back(some_values<T>(random, count + 1));
        operands.push_back({reinterpret_cast<const std::byte*>(values.back().data() + 1), dtype,
                            contiguous_strides(shape)});
      }
      const auto row = static_cast<size_t>(std::max(shape.rank() - 1, 0));
      for (bool broadcast : {false, true}) {
        if (broadcast) operands.back().strides = {};
        if (broadcast && shape.rank() == 2) operands.back().strides[row] = 1;
        for (DType to : {dtype, DType::kBool, DType::kF64}) {
          const auto bytes = static_cast<size_t>(count * info(to).block_bytes);
          std::vector<std::byte> y(bytes), want(bytes);
          TypedFunction function = {op};
          if constexpr (std::is_same_v<S, double>) {
            function.real = f;
          } else {
            function.integer = f;
          }
          map_typed(pool, function, operands, shape, to, y.data());
          function.op = TypedOp::kNone;
          map_typed(pool, function, operands, shape, to, want.data());
          INFO(static_cast<int>(op) << " of " << name(dtype) << to_string(shape) << name(to));
          if (is_float(to)) {  // NaNs differ in their bits
            for (size_t at = 0; at < bytes; at += 8) {
              double a, b;
              std::memcpy(&a, y.data() + at, 8);
              std::memcpy(&b, want.data() + at, 8);
              if (!(a == b || (a != a && b != b))) REQUIRE(a == b);
            }
          } else {
            REQUIRE(y == want);
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("arithmetic in vectors is that of its functions, on every target") {
  on_every_target([] {
    check_arithmetic<int8_t>(DType::kI8);
    check_arithmetic<uint8_t>(DType::kU8);
    check_arithmetic<int32_t>(DType::kI32);
    check_arithmetic<int64_t>(DType::kI64);
    check_arithmetic<uint8_t>(DType::kBool);
    check_arithmetic<double>(DType::kF64);
  });
}

TEST_CASE("truth values are any bytes, and results 0 or 1") {
  const TypedOp ops[] = {TypedOp::kAdd,     TypedOp::kSubtract, TypedOp::kMultiply,
                         TypedOp::kMaximum, TypedOp::kMinimum,  TypedOp::kLess,
                         TypedOp::kEqual,   TypedOp::kNegate,   TypedOp::kMagnitude};
  const auto expected = [](TypedOp op, bool a, bool b) {
    const int x = a, y = b;
    return op == TypedOp::kAdd        ? x + y != 0
           : op == TypedOp::kSubtract ? x - y != 0
           : op == TypedOp::kMultiply ? x * y != 0
           : op == TypedOp::kMaximum  ? std::max(x, y) != 0
           : op == TypedOp::kMinimum  ? std::min(x, y) != 0
           : op == TypedOp::kLess     ? x < y
           : op == TypedOp::kEqual    ? x == y
                                      : a;
  };
  on_every_target([&] {
    for (int64_t n : {1, 63, 64, 5001}) {
      std::vector<uint8_t> a(static_cast<size_t>(n)), b = a, c = a;
      for (size_t i = 0; i < a.size(); ++i) {
        a[i] = i % 3 == 0 ? 0 : static_cast<uint8_t>(i), b[i] = i % 2 == 0 ? 0 : 2, c[i] = i % 5;
      }
      const TypedOperand in[] = {operand(a, DType::kBool, {1}), operand(b, DType::kBool, {1}),
                                 operand(c, DType::kBool, {1})};
      ThreadPool pool(2);
      std::vector<uint8_t> y(a.size(), 0x55), want(a.size());
      auto* const out = reinterpret_cast<std::byte*>(y.data());
      for (TypedOp op : ops) {
        map_typed(pool, {.op = op}, std::span(in, 2), {n}, DType::kBool, out);
        INFO("operation " << static_cast<int>(op) << ", " << n);
        for (size_t i = 0; i < y.size(); ++i) want[i] = expected(op, a[i] != 0, b[i] != 0);
        REQUIRE(y == want);
      }
      map_typed(pool, {.op = TypedOp::kWhere}, in, {n}, DType::kBool, out);
      for (size_t i = 0; i < y.size(); ++i) want[i] = (a[i] != 0 ? b[i] : c[i]) != 0;
      REQUIRE(y == want);
    }
  });
}

TEST_CASE("a result may take the place of its operand") {
  ThreadPool pool(2);
  std::vector<int32_t> x(5000, 3);
  const TypedOperand operands[] = {operand(x, DType::kI32, {1}), operand(x, DType::kI32, {1})};
  map_typed(pool, {TypedOp::kMultiply}, operands, {5000}, DType::kI32,
            reinterpret_cast<std::byte*>(x.data()));
  CHECK(x == std::vector<int32_t>(5000, 9));
}

TEST_CASE("sums and maxima are the same on every target and with any number of threads") {
  const int64_t n = 70001;
  std::vector<double> reals(n);
  std::vector<int32_t> integers(n);
  Philox random(9);
  int64_t total = 0;
  int32_t most = integers[0], fewest = most;
  for (size_t i = 0; i < reals.size(); ++i) {
    reals[i] = random.uniform() - 0.5;
    integers[i] = static_cast<int32_t>(random.next_u32());
    total += integers[i];
    most = std::max(most, integers[i]);
    fewest = std::min(fewest, integers[i]);
  }
  auto bytes_of = [](const auto& x) { return reinterpret_cast<const std::byte*>(x.data()); };
  std::vector<double> sums;
  on_every_target([&] {
    for (int threads : {1, 3}) {
      ThreadPool pool(threads);
      for (int64_t inner : {1, 7}) {
        std::vector<double> sum(inner), largest(inner);
        auto* const out = reinterpret_cast<std::byte*>(sum.data());
        sum_typed(pool, DType::kF64, bytes_of(reals), 1, n / inner, inner, DType::kF64, out);
        sums.insert(sums.end(), sum.begin(), sum.end());
      }
      int64_t sum;
      int32_t largest;
      sum_typed(pool, DType::kI32, bytes_of(integers), 1, n, 1, DType::kI64,
                reinterpret_cast<std::byte*>(&sum));
      max_typed(pool, DType::kI32, bytes_of(integers), 1, n, 1,
                reinterpret_cast<std::byte*>(&largest));
      CHECK(sum == total);
      CHECK(largest == most);
      min_typed(pool, DType::kI32, bytes_of(integers), 1, n, 1,
                reinterpret_cast<std::byte*>(&largest));
      CHECK(largest == fewest);
    }
  });
  for (size_t i = 8; i < sums.size(); ++i) CHECK(sums[i] == sums[i % 8]);
  double plain = 0;
  for (double x : reals) plain += x;
  CHECK(sums[0] == Approx(plain).epsilon(1e-12));
  reals[n / 2] = NAN;
  ThreadPool pool(2);
  double largest;
  max_typed(pool, DType::kF64, bytes_of(reals), 1, n, 1, reinterpret_cast<std::byte*>(&largest));
  CHECK(std::isnan(largest));
  min_typed(pool, DType::kF64, bytes_of(reals), 1, n, 1, reinterpret_cast<std::byte*>(&largest));
  CHECK(std::isnan(largest));
  for (DType dtype : {DType::kI8, DType::kU8, DType::kI32, DType::kI64, DType::kF64}) {
    INFO(name(dtype));  // of nothing what no element exceeds
    double least, most_there;
    std::byte nothing[8];
    min_typed(pool, dtype, nullptr, 1, 0, 1, nothing);
    load_typed(dtype, nothing, 1, 1, &least);
    max_typed(pool, dtype, nullptr, 1, 0, 1, nothing);
    load_typed(dtype, nothing, 1, 1, &most_there);
    CHECK(most_there < least);
  }
}

TEST_CASE(
    "products of columns, integers and short lines are the last of the running ones, to the bit") {
  Philox random(8);
  auto check = [&](auto type, DType dtype, int64_t outer, int64_t axis, int64_t inner) {
    using T = decltype(type);
    INFO(name(dtype) << " " << outer << " " << axis << " " << inner);
    std::vector<T> x(static_cast<size_t>(outer * axis * inner)), running(x.size());
    for (T& v : x) {
      v = std::is_integral_v<T> ? static_cast<T>(random.next_u64() | 1)
                                : static_cast<T>(random.uniform() * 2 - 0.9);
    }
    std::vector<T> y(static_cast<size_t>(outer * inner)), start(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      start[i] = static_cast<int64_t>(i) / inner % axis == 0 ? x[i] : T{0};
    }
    const Shape shape = {outer, axis, inner};
    ThreadPool pool(2);
    linear_scan(pool, operand(x, dtype, contiguous_strides(shape)),
                operand(start, dtype, contiguous_strides(shape)), shape, 1, false, dtype,
                reinterpret_cast<std::byte*>(running.data()));
    prod_reduce(pool, dtype, reinterpret_cast<const std::byte*>(x.data()), outer, axis, inner,
                dtype, reinterpret_cast<std::byte*>(y.data()));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < inner; ++i) {
        REQUIRE(y[static_cast<size_t>(o * inner + i)] ==
                running[static_cast<size_t>((o * axis + axis - 1) * inner + i)]);
      }
    }
  };
  on_every_target([&] {
    for (int64_t axis : {1, 2, 16, 63, 64, 65, 200}) {
      for (int64_t inner : {1, 3, 300}) {
        if (inner > 1 || axis <= 64) {
          check(float{}, DType::kF32, 37, axis, inner);
          check(double{}, DType::kF64, 11, axis, inner);
          check(double{}, DType::kF64, 3, axis, inner);
        }
        check(int64_t{}, DType::kI64, 3, axis, inner);
      }
    }
  });
}

TEST_CASE(
    "products of long lines of short floats are those of every 32nd number, joined by halves") {
  Philox random(9);
  auto check = [&](DType dtype, int64_t outer, int64_t axis) {
    INFO(name(dtype) << " " << outer << " " << axis);
    const auto count = static_cast<size_t>(outer * axis);
    std::vector<double> numbers(count);
    for (double& v : numbers) v = random.uniform() * 2 - 0.9;
    if (axis > 40) {
      numbers[static_cast<size_t>(axis) - 1] = std::numeric_limits<double>::quiet_NaN();
      numbers[static_cast<size_t>(axis)] = std::numeric_limits<double>::infinity();
      numbers[static_cast<size_t>(2 * axis) + 3] = 0;
    }
    std::vector<std::byte> x(count * 4), y(static_cast<size_t>(outer) * 4), expected = y;
    store_typed(dtype, numbers.data(), outer * axis, x.data());
    load_typed(dtype, x.data(), 1, outer * axis, numbers.data());
    for (int64_t o = 0; o < outer; ++o) {
      double parts[32];
      std::fill_n(parts, 32, 1.0);
      for (int64_t i = 0; i < axis; ++i)
        parts[i % 32] *= numbers[static_cast<size_t>(o * axis + i)];
      for (int half = 16; half > 0; half /= 2) {
        for (int p = 0; p < half; ++p) parts[p] *= parts[p + half];
      }
      const double product = axis > 1 ? parts[0] + 0.0 : parts[0];
      store_typed(dtype, &product, 1, expected.data() + o * info(dtype).block_bytes);
    }
    for (int threads : {1, 2}) {
      ThreadPool pool(threads);
      prod_reduce(pool, dtype, x.data(), outer, axis, 1, dtype, y.data());
      for (int64_t o = 0; o < outer; ++o) {
        const int64_t at = o * info(dtype).block_bytes;
        double got, wanted;
        load_typed(dtype, y.data() + at, 1, 1, &got);
        load_typed(dtype, expected.data() + at, 1, 1, &wanted);
        REQUIRE((std::isnan(wanted) ? std::isnan(got) : got == wanted));
        REQUIRE((std::isnan(wanted) || std::signbit(got) == std::signbit(wanted)));
      }
    }
  };
  on_every_target([&] {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int64_t axis : {1, 65, 95, 96, 97, 200}) {
        for (int64_t outer : {3, 300}) check(dtype, outer, axis);
      }
    }
  });
}

TEST_CASE("products of columns of halves are those of the floats they stand for") {
  Philox random(10);
  on_every_target([&] {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      for (int64_t inner : {2, 3, 17, 300}) {
        const int64_t axis = 21, count = 2 * axis * inner;
        std::vector<double> numbers(static_cast<size_t>(count));
        for (double& v : numbers) v = random.uniform() * 2 - 0.9;
        std::vector<std::byte> x(numbers.size() * 2);
        store_typed(dtype, numbers.data(), count, x.data());
        load_typed(dtype, x.data(), 1, count, numbers.data());
        std::vector<std::byte> y(static_cast<size_t>(2 * inner) * 2);
        ThreadPool pool(2);
        prod_reduce(pool, dtype, x.data(), 2, axis, inner, dtype, y.data());
        for (int64_t i = 0; i < 2 * inner; ++i) {
          double product = 1;
          for (int64_t k = 0; k < axis; ++k) {
            product *= numbers[static_cast<size_t>((i / inner * axis + k) * inner + i % inner)];
          }
          std::byte expected[2];
          store_typed(dtype, &product, 1, expected);
          REQUIRE(std::equal(expected, expected + 2, y.data() + 2 * i));
        }
      }
    }
  });
}

TEST_CASE("floats become integers at the ends of their ranges as doubles do") {
  std::vector<float> x;
  for (float end : {-129.0f, -128.0f, 127.0f, 128.0f, 255.0f, 256.0f, 0.0f, 0x1p31f, 0x1p63f}) {
    for (float sign : {1.0f, -1.0f}) {
      const float at = sign * end;
      for (float v : {at, std::nextafter(at, INFINITY), std::nextafter(at, -INFINITY), at + 0.5f}) {
        x.push_back(v);
      }
    }
  }
  for (float v : {NAN, INFINITY, -INFINITY}) x.push_back(v);
  for (int i = -150; i < 290; ++i) x.push_back(static_cast<float>(i) * 0.9f);  // whole vectors
  const std::vector<double> wide(x.begin(), x.end());
  on_every_target([&] {
    CHECK(cast_all<float, int8_t>(DType::kF32, x, DType::kI8) ==
          cast_all<double, int8_t>(DType::kF64, wide, DType::kI8));
    CHECK(cast_all<float, uint8_t>(DType::kF32, x, DType::kU8) ==
          cast_all<double, uint8_t>(DType::kF64, wide, DType::kU8));
    CHECK(cast_all<float, int32_t>(DType::kF32, x, DType::kI32) ==
          cast_all<double, int32_t>(DType::kF64, wide, DType::kI32));
    CHECK(cast_all<float, int64_t>(DType::kF32, x, DType::kI64) ==
          cast_all<double, int64_t>(DType::kF64, wide, DType::kI64));
  });
}

TEST_CASE("doubles and floats become int64 as they do one by one, below and above 2^51") {
  std::vector<double> x;
  for (int i = 0; i < 70; ++i) x.push_back((i - 35) * 0.75);
  for (double v : {0x1p51, 0x1p51 - 0.5, 0x1p52 + 1, 0x1p62, 0x1p63, double{NAN}, -0.5, 3e18}) {
    for (double sign : {1.0, -1.0}) {
      x.push_back(sign * v);
      for (int i = 0; i < 13; ++i) x.push_back(sign * (i + 0.9));
    }
  }
  std::vector<float> narrow(x.begin(), x.end());
  const auto expected = [](double v) {
    return v != v        ? 0
           : v >= 0x1p63 ? std::numeric_limits<int64_t>::max()
           : v < -0x1p63 ? std::numeric_limits<int64_t>::min()
                         : static_cast<int64_t>(v);
  };
  on_every_target([&] {
    const auto y = cast_all<double, int64_t>(DType::kF64, x, DType::kI64);
    const auto z = cast_all<float, int64_t>(DType::kF32, narrow, DType::kI64);
    for (size_t i = 0; i < x.size(); ++i) {
      REQUIRE(y[i] == expected(x[i]));
      REQUIRE(z[i] == expected(double{narrow[i]}));
    }
  });
}

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

// In chunks of one kind each: small numbers, whose quotients are those of doubles, and large ones.
TEST_CASE("integers divide exactly on both sides of what double holds") {
  ThreadPool pool(1);
  Philox random(6);
  on_every_target([&] {
    for (int bits : {8, 31, 51, 52, 63}) {
      std::vector<int64_t> x(700), y(700), quotient(700), rest(700);
      for (size_t i = 0; i < x.size(); ++i) {
        const auto some = [&](int most) {
          const auto magnitude = static_cast<int64_t>(random.next_u64() >> (64 - most));
          return random.next_u64() % 2 == 0 ? magnitude : -magnitude - 1;
        };
        y[i] = some(1 + static_cast<int>(i % static_cast<size_t>(bits)));
        x[i] = i % 3 == 0 && y[i] != 0 ? some(bits) / y[i] * y[i] - static_cast<int64_t>(i % 2)
                                       : some(bits);
      }
      const TypedOperand in[] = {operand(x, DType::kI64, {1}), operand(y, DType::kI64, {1})};
      map_typed(pool, {.op = TypedOp::kFloorQuotient}, in, {700}, DType::kI64,
                reinterpret_cast<std::byte*>(quotient.data()));
      map_typed(pool, {.op = TypedOp::kFloorRest}, in, {700}, DType::kI64,
                reinterpret_cast<std::byte*>(rest.data()));
      for (size_t i = 0; i < x.size(); ++i) {
        INFO(x[i] << " and " << y[i]);
        REQUIRE(quotient[i] == floor_quotient(x[i], y[i]));
        REQUIRE(rest[i] == floor_modulo(x[i], y[i]));
      }
    }
  });
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
                {lines, n}, 1, false, DType::kF32, reinterpret_cast<std::byte*>(y.data()));
  }
  CHECK(results[0] == results[1]);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[static_cast<size_t>(i)];
  CHECK(results[0][static_cast<size_t>(n - 1)] == static_cast<float>(sum));
}

namespace {

// The recurrence of every line of [outer, n, inner], step by step; without a all factors are 1.
template <typename T>
std::vector<T> stepped(const T* a, const T* b, int64_t outer, int64_t n, int64_t inner,
                       bool reverse) {
  using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
  std::vector<T> y(static_cast<size_t>(outer * n * inner));
  for (int64_t line = 0; line < outer * inner; ++line) {
    const int64_t start = line / inner * n * inner + line % inner;
    Wide carry = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = reverse ? n - 1 - k : k, at = start + i * inner;
      const T factor = a == nullptr ? T{1} : k == 0 ? T{0} : a[reverse ? at + inner : at];
      const Wide term = static_cast<Wide>(b[at]);
      carry = k == 0 ? term : static_cast<Wide>(factor) * carry + term;
      y[static_cast<size_t>(at)] = static_cast<T>(carry);
    }
  }
  return y;
}

template <typename T>
void check_scans(DType dtype, int64_t outer, int64_t n, int64_t inner) {
  INFO(name(dtype) << " " << outer << " " << n << " " << inner);
  Philox random(9);
  const Shape shape = inner > 1 ? Shape{outer, n, inner} : Shape{outer, n};
  const auto numbers = [&] {
    std::vector<T> x(static_cast<size_t>(shape.elements()) + 1);  // and one that shifts the others
    for (T& v : x) v = static_cast<T>(random.uniform() * 2.5 - 1.2);
    return x;
  };
  const std::vector<T> a = numbers(), b = numbers(), one = {1};
  std::vector<T> starts(b.size() - 1);  // of products: the first factor, then nothing is added
  for (size_t i = 0; i < starts.size(); ++i) {
    if (static_cast<int64_t>(i) / inner % n == 0) starts[i] = b[i + 1];
  }
  const std::vector<T> products =
      stepped(b.data() + 1, starts.data(), outer, n, inner, /*reverse=*/false);
  std::vector<T> scans[2][2];  // by reverse, is_sum
  for (const bool reverse : {false, true}) {
    for (const bool is_sum : {false, true}) {
      scans[reverse][is_sum] =
          stepped(is_sum ? nullptr : a.data(), b.data() + 1, outer, n, inner, reverse);
    }
  }
  const Strides dense = contiguous_strides(shape);
  const TypedOperand shifted = {reinterpret_cast<const std::byte*>(b.data() + 1), dtype, dense};
  on_every_target([&] {
    ThreadPool pool(2);
    std::vector<T> y(starts.size());
    for (const bool reverse : {false, true}) {
      for (const bool is_sum : {false, true}) {
        std::fill(y.begin(), y.end(), T{77});
        linear_scan(pool, is_sum ? operand(one, dtype, {0, 0, 0}) : operand(a, dtype, dense),
                    shifted, shape, 1, reverse, dtype, reinterpret_cast<std::byte*>(y.data()));
        REQUIRE(y == scans[reverse][is_sum]);
      }
    }
    std::fill(y.begin(), y.end(), T{77});
    product_scan(pool, shifted, shape, 1, reinterpret_cast<std::byte*>(y.data()));
    REQUIRE(y == products);
  });
}

}  // namespace

TEST_CASE("scans are their steps to the bit, from either end, whatever the lines") {
  for (int64_t outer : {1, 5, 8, 19, 300}) {
    for (int64_t n : {1, 2, 10, 15, 16, 33, 64, 65, 130}) {
      for (int64_t inner : {1, 3, 37, 260}) {
        if (outer * inner > 4000) continue;
        check_scans<float>(DType::kF32, outer, n, inner);
        check_scans<double>(DType::kF64, outer, n, inner);
        check_scans<int64_t>(DType::kI64, outer, n, inner);
      }
    }
  }
}

TEST_CASE("the gradient of a product joins what is before and behind each factor") {
  on_every_target([&] {
    for (int64_t outer : {1, 9, 16}) {
      for (int64_t n : {1, 2, 16, 45}) {
        for (int64_t inner : {1, 37}) {
          INFO(outer << " " << n << " " << inner);
          Philox random(10);
          std::vector<float> x(static_cast<size_t>(outer * n * inner)), y(x.size());
          std::vector<float> dy(static_cast<size_t>(outer * inner));
          for (float& v : x) v = static_cast<float>(random.uniform() * 2 - 0.9);
          for (float& v : dy) v = static_cast<float>(random.uniform() - 0.5);
          ThreadPool pool(2);
          product_gradient(pool, x.data(), dy.data(), outer, n, inner, y.data());
          for (int64_t o = 0; o < outer; ++o) {
            for (int64_t i = 0; i < inner; ++i) {
              const auto at = [&](int64_t k) {
                return static_cast<size_t>((o * n + k) * inner + i);
              };
              std::vector<double> before(static_cast<size_t>(n), 1);
              for (int64_t k = 1; k < n; ++k) {
                before[static_cast<size_t>(k)] = before[static_cast<size_t>(k - 1)] * x[at(k - 1)];
              }
              double behind = dy[static_cast<size_t>(o * inner + i)];
              for (int64_t k = n - 1; k >= 0; --k) {
                const float expected =
                    static_cast<float>(before[static_cast<size_t>(k)]) * static_cast<float>(behind);
                REQUIRE(y[at(k)] == expected);
                behind *= x[at(k)];
              }
            }
          }
        }
      }
    }
  });
}
