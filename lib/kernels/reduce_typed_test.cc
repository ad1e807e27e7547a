#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reduce.h"
#include "lib/kernels/select.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/typed.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr DType kIntegers[] = {DType::kI8, DType::kU8, DType::kI32, DType::kI64, DType::kBool};

struct Extents {
  int64_t outer, axis, inner;
};

// Lines and columns, short, long, few and many.
std::vector<Extents> some_extents() {
  std::vector<Extents> all = {{1, 50'000, 1}, {1, 3, 4000},   {3, 70, 300}, {1, 5000, 3},
                              {2, 4001, 10},  {1, 20'000, 7}, {2, 300, 64}, {1, 1000, 257}};
  for (int64_t axis = 0; axis <= 70; ++axis) all.push_back({axis % 3 == 0 ? 300 : 5, axis, 1});
  for (int64_t axis : {1, 2, 8, 65, 500}) all.push_back({7, axis, 1}), all.push_back({2, axis, 5});
  return all;
}

// Elements that start one byte behind where they should, and what they are.
template <typename T>
struct Elements {
  Elements(Philox& random, DType dtype, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, double>) {
        const uint64_t kind = random.next_u32() % 50;
        values.push_back(kind == 0 ? -0.0 : kind == 1 ? 0.0 : std::floor(random.normal() * 8) / 8);
      } else {
        values.push_back(static_cast<T>(random.next_u64() >> (random.next_u32() % 64)));
      }
    }
    const int64_t size = info(dtype).block_bytes;
    bytes.resize(static_cast<size_t>(count * size + 1));
    store_typed(dtype, values.data(), count, bytes.data() + 1);
    load_typed(dtype, bytes.data() + 1, 1, count, values.data());
    // A truth is any byte that is not 0.
    for (int64_t i = 0; dtype == DType::kBool && i < count; ++i) {
      bytes[static_cast<size_t>(i + 1)] =
          std::byte(values[static_cast<size_t>(i)] != 0 ? i % 7 + 1 : 0);
    }
  }
  const std::byte* data() const { return bytes.data() + 1; }
  std::vector<std::byte> bytes;
  std::vector<T> values;
};

// What step(total, value) makes of each line, which starts with its first element.
template <typename T, class Step>
std::vector<T> folded(const std::vector<T>& x, const Extents& e, const Step& step) {
  std::vector<T> totals;
  for (int64_t o = 0; o < e.outer; ++o) {
    for (int64_t i = 0; i < e.inner; ++i) {
      T total = x[static_cast<size_t>(o * e.axis * e.inner + i)];
      for (int64_t k = 1; k < e.axis; ++k) {
        total = step(total, x[static_cast<size_t>((o * e.axis + k) * e.inner + i)]);
      }
      totals.push_back(total);
    }
  }
  return totals;
}

using Reduce = void (*)(ThreadPool&, DType, const std::byte*, int64_t, int64_t, int64_t, DType,
                        std::byte*);

// The result with one thread, as T; that of three must have the same bytes.
template <typename T>
std::vector<T> reduced(Reduce reduce, DType from, const std::byte* x, const Extents& e, DType to) {
  const auto count = static_cast<size_t>(e.outer * e.inner);
  std::vector<std::byte> y(count * 8), again(count * 8);
  ThreadPool one(1), three(3);
  reduce(one, from, x, e.outer, e.axis, e.inner, to, y.data());
  reduce(three, from, x, e.outer, e.axis, e.inner, to, again.data());
  REQUIRE(y == again);
  std::vector<T> values(count);
  load_typed(to, y.data(), 1, e.outer * e.inner, values.data());
  return values;
}

void square_sum(ThreadPool& pool, DType, const std::byte* x, int64_t outer, int64_t axis,
                int64_t inner, DType, std::byte* y) {
  square_sum_reduce_f64(pool, reinterpret_cast<const double*>(x), outer, axis, inner,
                        reinterpret_cast<double*>(y));
}
void largest(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
             int64_t inner, DType, std::byte* y) {
  max_typed(pool, from, x, outer, axis, inner, y);
}
void smallest(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
              int64_t inner, DType, std::byte* y) {
  min_typed(pool, from, x, outer, axis, inner, y);
}

}  // namespace

TEST_CASE("integers are reduced as they are one by one, along lines and columns of any length") {
  Philox random(3);
  for (const Extents& e : some_extents()) {
    if (e.axis == 0) continue;
    for (DType dtype : kIntegers) {
      INFO(name(dtype) << " " << e.outer << " " << e.axis << " " << e.inner);
      const Elements<int64_t> x(random, dtype, e.outer * e.axis * e.inner);
      const auto check = [&](Reduce reduce, DType to, auto step) {
        const std::vector<int64_t> wanted = folded(x.values, e, step);
        on_every_target(
            [&] { REQUIRE(reduced<int64_t>(reduce, dtype, x.data(), e, to) == wanted); });
      };
      check(sum_typed, DType::kI64, wrap_add);
      check(prod_reduce, DType::kI64, wrap_mul);
      check(largest, dtype, [](int64_t a, int64_t b) { return std::max(a, b); });
      check(smallest, dtype, [](int64_t a, int64_t b) { return std::min(a, b); });
    }
  }
}

TEST_CASE("doubles are reduced as they are one by one, along lines and columns of any length") {
  Philox random(4);
  for (const Extents& e : some_extents()) {
    INFO(e.outer << " " << e.axis << " " << e.inner);
    if (e.axis == 0) {
      on_every_target([&] {
        CHECK(reduced<double>(sum_typed, DType::kF64, nullptr, e, DType::kF64)[0] == 0);
        CHECK(reduced<double>(prod_reduce, DType::kF64, nullptr, e, DType::kF64)[0] == 1);
        CHECK(reduced<double>(largest, DType::kF64, nullptr, e, DType::kF64)[0] == -INFINITY);
        CHECK(reduced<double>(smallest, DType::kF64, nullptr, e, DType::kF64)[0] == INFINITY);
      });
      continue;
    }
    Elements<double> x(random, DType::kF64, e.outer * e.axis * e.inner);
    const auto results = [&](Reduce reduce) {
      return reduced<double>(reduce, DType::kF64, x.data(), e, DType::kF64);
    };
    const auto store = [&] {
      store_typed(DType::kF64, x.values.data(), static_cast<int64_t>(x.values.size()),
                  x.bytes.data() + 1);
    };
    const auto add = [](double a, double b) { return a + b; };
    // Sums of eighths are exact in any order.
    std::vector<double> squares = x.values;
    for (double& v : squares) v *= v;
    const auto sums = folded(x.values, e, add), square_sums = folded(squares, e, add);
    const auto most = folded(x.values, e, [](double a, double b) { return std::max(a, b); });
    const auto least = folded(x.values, e, [](double a, double b) { return std::min(a, b); });
    on_every_target([&] {
      REQUIRE(results(sum_typed) == sums);
      REQUIRE(results(square_sum) == square_sums);
      REQUIRE(results(largest) == most);
      REQUIRE(results(smallest) == least);
    });
    for (size_t at = 0; at < x.values.size(); at += 97) x.values[at] = NAN;
    store();
    const auto has_nan = folded(x.values, e, add);
    on_every_target([&] {
      for (const auto& extremes : {results(largest), results(smallest)}) {
        for (size_t i = 0; i < has_nan.size(); ++i) {
          if (std::isnan(extremes[i]) != std::isnan(has_nan[i])) FAIL("a NaN in line " << i);
        }
      }
    });
    for (size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = 1 + 0.01 * (static_cast<double>(i % 19) - 9);
    }
    store();
    const auto wanted = folded(x.values, e, [](double a, double b) { return a * b; });
    on_every_target([&] {
      const auto products = results(prod_reduce);
      for (size_t i = 0; i < products.size(); ++i) {
        const double bound = 1e-16 * static_cast<double>(e.axis) * std::fabs(wanted[i]);
        if (!(std::fabs(products[i] - wanted[i]) <= bound)) REQUIRE(products[i] == wanted[i]);
      }
    });
  }
}

TEST_CASE("a sum of negative zeros is zero, an extreme and a product of one number itself") {
  on_every_target([] {
    ThreadPool pool(1);
    for (int64_t axis : {1, 2, 64, 65, 200}) {
      const std::vector<double> x(static_cast<size_t>(axis), -0.0);
      const auto* const bytes = reinterpret_cast<const std::byte*>(x.data());
      double y = 1;
      auto* const to = reinterpret_cast<std::byte*>(&y);
      sum_typed(pool, DType::kF64, bytes, 1, axis, 1, DType::kF64, to);
      CHECK((y == 0 && !std::signbit(y)));
      max_typed(pool, DType::kF64, bytes, 1, axis, 1, to);
      CHECK((y == 0 && std::signbit(y)));
      prod_reduce(pool, DType::kF64, bytes, 1, axis, 1, DType::kF64, to);
      CHECK((y == 0 && std::signbit(y) == (axis == 1)));
    }
  });
}

TEST_CASE("the largest and the smallest of every type stand where a walk finds them first") {
  constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                              DType::kU8,  DType::kI32, DType::kI64, DType::kBool};
  Philox random(5);
  for (const Extents& e : some_extents()) {
    if (e.axis == 0) continue;
    const Shape shape = {e.outer, e.axis, e.inner}, turned = {e.axis, e.inner, e.outer};
    for (DType dtype : kTypes) {
      INFO(name(dtype) << " " << to_string(shape));
      Elements<double> x(random, DType::kF64, shape.elements());
      const bool has_nan = is_float(dtype) && e.axis % 2 == 0;
      for (double& v : x.values) {
        if (has_nan && random.next_u32() % 256 == 0) v = random.next_u32() % 2 ? NAN : -NAN;
      }
      std::vector<std::byte> bytes(x.values.size() * 8 + 1);
      store_typed(dtype, x.values.data(), shape.elements(), bytes.data() + 1);
      load_typed(dtype, bytes.data() + 1, 1, shape.elements(), x.values.data());
      const auto places = [&](bool least) {
        std::vector<int64_t> found;
        for (int64_t o = 0; o < e.outer; ++o) {
          for (int64_t i = 0; i < e.inner; ++i) {
            const double* const line = x.values.data() + o * e.axis * e.inner + i;
            int64_t best = 0;
            for (int64_t k = 1; k < e.axis; ++k) {
              const double a = line[best * e.inner], b = line[k * e.inner];
              if (a == a && (b != b || (least ? b < a : b > a))) best = k;
            }
            found.push_back(best);
          }
        }
        return found;
      };
      // The same elements where the axis is the first one, and the last.
      const Strides dense = contiguous_strides(shape);
      const TypedOperand as_is = {bytes.data() + 1, dtype, dense};
      const TypedOperand first = {bytes.data() + 1, dtype, {dense[1], dense[2], dense[0]}};
      for (const bool least : {false, true}) {
        const std::vector<int64_t> wanted = places(least);
        std::vector<int64_t> wanted_first(wanted.size());  // lines in order [inner, outer]
        for (int64_t o = 0; o < e.outer; ++o) {
          for (int64_t i = 0; i < e.inner; ++i) {
            wanted_first[static_cast<size_t>(i * e.outer + o)] =
                wanted[static_cast<size_t>(o * e.inner + i)];
          }
        }
        on_every_target([&] {
          for (int threads : {1, 3}) {
            ThreadPool pool(threads);
            std::vector<int64_t> y(wanted.size(), -1);
            argmax_lines(pool, as_is, shape, 1, least, y.data());
            REQUIRE(y == wanted);
            y.assign(y.size(), -1);
            argmax_lines(pool, first, turned, 0, least, y.data());
            REQUIRE(y == wanted_first);
            if (e.inner > 1) continue;
            y.assign(y.size(), -1);
            argmax_lines(pool, as_is, {e.outer, e.axis}, 1, least, y.data());
            REQUIRE(y == wanted);
          }
        });
      }
    }
  }
}
