#include "lib/kernels/select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

template <typename T>
TypedOperand operand(const std::vector<T>& x, DType dtype, Strides strides) {
  return {reinterpret_cast<const std::byte*>(x.data()), dtype, strides};
}

// Every element of `shape` and its place along `axis`: f(element, line, i), where `line` is the
// element at place 0.
template <typename F>
void for_each_element(const Shape& shape, int axis, const F& f) {
  int64_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
  for (int64_t element = 0; element < shape.elements(); ++element) {
    const int64_t i = element / inner % shape[axis];
    f(static_cast<size_t>(element), element - i * inner, i * inner);
  }
}

// Elements of `shape` by index along `axis`, of as many places, taken, put and added.
template <typename T, typename I>
void check_by_index(DType dtype, DType index_type, const Shape& shape, int axis) {
  INFO(name(dtype) << ", " << name(index_type) << ", " << to_string(shape) << ", axis " << axis);
  Philox random(9);
  const auto count = static_cast<size_t>(shape.elements());
  const int64_t length = shape[axis];
  const int64_t inner = contiguous_strides(shape)[static_cast<size_t>(axis)];
  std::vector<T> x(count), taken(count), put(count), added(count);
  std::vector<I> index(count);
  for (size_t i = 0; i < count; ++i) {
    x[i] = static_cast<T>(random.next_u32() % 100);
    index[i] = static_cast<I>(random.next_u32() % static_cast<uint32_t>(length));
  }
  for_each_element(shape, axis, [&](size_t at, int64_t line, int64_t) {
    const auto there = static_cast<size_t>(line + index[at] * inner);
    taken[at] = x[there];
    put[there] = x[at];
    added[there] = static_cast<T>(added[there] + x[at]);
  });
  const Strides strides = contiguous_strides(shape);
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<T> y(count);
    const auto bytes = [&] { return reinterpret_cast<std::byte*>(y.data()); };
    const TypedOperand from = operand(x, dtype, strides), by = operand(index, index_type, strides);
    take_along(pool, from, by, length, shape, axis, bytes());
    CHECK(y == taken);
    y.assign(count, T{});
    scatter(pool, by, from, shape, axis, false, shape, bytes());
    CHECK(y == put);
    y.assign(count, T{});
    scatter(pool, by, from, shape, axis, true, shape, bytes());
    CHECK(y == added);
  }
}

}  // namespace

TEST_CASE("elements by index along any axis, however many lines lie beside each other") {
  const Shape shapes[] = {{700},        {37, 1100}, {1100, 37}, {3, 90, 41},
                          {2, 3, 5, 7}, {1100, 1},  {600, 3},   {3, 400, 4}};
  for (const Shape& shape : shapes) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      check_by_index<float, int32_t>(DType::kF32, DType::kI32, shape, axis);
      check_by_index<double, int64_t>(DType::kF64, DType::kI64, shape, axis);
      check_by_index<uint8_t, int32_t>(DType::kU8, DType::kI32, shape, axis);
      check_by_index<int64_t, int64_t>(DType::kI64, DType::kI64, shape, axis);
    }
  }
}

TEST_CASE("added bools are or-ed") {
  const std::vector<uint8_t> src = {0, 1, 0, 1};
  const std::vector<int32_t> index = {0, 0, 1, 2};
  uint8_t y[] = {0, 0, 1};
  ThreadPool pool(1);
  scatter(pool, operand(index, DType::kI32, {1}), operand(src, DType::kBool, {1}), {4}, 0, true,
          {3}, reinterpret_cast<std::byte*>(y));
  CHECK(y[0] == 1);
  CHECK(y[1] == 0);
  CHECK(y[2] == 1);
}

TEST_CASE("the largest along any axis of contiguous and transposed arrays") {
  Philox random(10);
  const Shape shape = {300, 270};
  std::vector<float> x(static_cast<size_t>(shape.elements()));
  for (float& v : x) v = random.next_u32() % 997 == 0 ? NAN : float(random.next_u32() % 50);
  for (const Strides& strides : {Strides{270, 1}, Strides{1, 300}}) {
    for (int axis : {0, 1}) {
      const int64_t lines = shape[1 - axis];
      const int64_t stride = strides[static_cast<size_t>(axis)];
      const int64_t step = strides[static_cast<size_t>(1 - axis)];
      std::vector<int64_t> want, got(static_cast<size_t>(lines), -1);
      for (int64_t line = 0; line < lines; ++line) {
        int64_t best = 0;
        for (int64_t i = 0; i < shape[axis]; ++i) {
          const float v = x[static_cast<size_t>(line * step + i * stride)];
          const float largest = x[static_cast<size_t>(line * step + best * stride)];
          if (!std::isnan(largest) && !(v <= largest)) best = i;
        }
        want.push_back(best);
      }
      for (int threads : {1, 3}) {
        ThreadPool pool(threads);
        argmax_lines(pool, operand(x, DType::kF32, strides), shape, axis, false, got.data());
        CHECK(got == want);
      }
    }
  }
}

TEST_CASE("order is stable, NaN last, and a part of it is its beginning") {
  ThreadPool pool(2);
  const std::vector<float> x = {2, NAN, 1, 2, -INFINITY, 1, NAN, 0};
  const Shape shape = {8};
  std::vector<std::byte> workspace(argsort_workspace(8, 2));
  auto sorted = [&](int64_t count, bool descending) {
    std::vector<int64_t> y(static_cast<size_t>(count));
    argsort_lines(pool, operand(x, DType::kF32, {1}), shape, 0, count, descending, workspace.data(),
                  y.data());
    return y;
  };
  CHECK(sorted(8, false) == std::vector<int64_t>{4, 7, 2, 5, 0, 3, 1, 6});
  CHECK(sorted(8, true) == std::vector<int64_t>{1, 6, 0, 3, 2, 5, 7, 4});
  CHECK(sorted(3, false) == std::vector<int64_t>{4, 7, 2});
  int64_t largest = -1;
  argmax_lines(pool, operand(x, DType::kF32, {1}), shape, 0, false, &largest);
  CHECK(largest == 1);
}

TEST_CASE("the first of a long line are those of the whole order") {
  ThreadPool pool(2);
  const int64_t n = 2000;
  std::vector<float> x(n);
  for (size_t i = 0; i < x.size(); ++i) {  // many are equal
    x[i] = i % 97 == 0 ? NAN : static_cast<float>(i * 7919 % 150);
  }
  std::vector<std::byte> workspace(argsort_workspace(n, 2));
  for (bool descending : {false, true}) {
    auto first = [&](int64_t count) {
      std::vector<int64_t> y(static_cast<size_t>(count));
      argsort_lines(pool, operand(x, DType::kF32, {1}), {n}, 0, count, descending, workspace.data(),
                    y.data());
      return y;
    };
    const std::vector<int64_t> all = first(n);
    for (int64_t count : {0, 1, 5, 31, 32, 700, 1999}) {
      CHECK(first(count) == std::vector<int64_t>(all.begin(), all.begin() + count));
    }
  }
}

namespace {

// The order of x, as std::stable_sort has it.
template <typename T>
void check_order(DType dtype, const std::vector<T>& x, int64_t stride = 1) {
  const auto n = static_cast<int64_t>(x.size()) / stride;
  std::vector<double> values(static_cast<size_t>(n));
  std::vector<int64_t> integers(static_cast<size_t>(n));
  const auto* const bytes = reinterpret_cast<const std::byte*>(x.data());
  load_typed(dtype, bytes, stride, n, values.data());
  if (!is_float(dtype)) load_typed(dtype, bytes, stride, n, integers.data());
  ThreadPool pool(1);
  std::vector<std::byte> workspace(argsort_workspace(n, 1));
  for (const bool descending : {false, true}) {
    INFO(name(dtype) << " " << n << (descending ? " descending" : " ascending"));
    std::vector<int64_t> want(static_cast<size_t>(n)), got(want.size());
    std::iota(want.begin(), want.end(), 0);
    std::stable_sort(want.begin(), want.end(), [&](int64_t i, int64_t j) {
      const auto a = static_cast<size_t>(descending ? j : i);
      const auto b = static_cast<size_t>(descending ? i : j);
      if (!is_float(dtype)) return integers[a] < integers[b];
      return values[a] < values[b] || (std::isnan(values[b]) && !std::isnan(values[a]));
    });
    argsort_lines(pool, operand(x, dtype, {stride}), {n}, 0, n, descending, workspace.data(),
                  got.data());
    REQUIRE(got == want);
  }
}

}  // namespace

TEST_CASE("lines of every type are ordered as by a stable sort") {
  Philox random(11);
  for (const size_t n : {1, 7, 191, 192, 193, 1500}) {
    std::vector<float> floats(n);
    std::vector<double> doubles(n);
    std::vector<uint16_t> halves(n);
    std::vector<int64_t> near(n), far(n);
    std::vector<int32_t> integers(n);
    std::vector<uint8_t> bytes(n);
    constexpr float kSpecial[] = {NAN, -NAN, 0.0f, -0.0f, INFINITY, -INFINITY, 1e-42f, -1e-42f};
    for (size_t i = 0; i < n; ++i) {
      const uint64_t word = random.next_u64();
      floats[i] = word % 5 == 0 ? kSpecial[word / 8 % 8]
                                : static_cast<float>(random.uniform() * 2 - 1) * 1e3f;
      doubles[i] = word % 5 == 0 ? double{floats[i]} : random.uniform() * 2e-300 - 1e-300;
      halves[i] = static_cast<uint16_t>(word);
      near[i] = (int64_t{1} << 40) - static_cast<int64_t>(word % 1000);
      far[i] = static_cast<int64_t>(random.next_u64());
      integers[i] = static_cast<int32_t>(word);
      bytes[i] = static_cast<uint8_t>(word);
    }
    if (n > 4) far[1] = std::numeric_limits<int64_t>::min();
    if (n > 4) far[3] = std::numeric_limits<int64_t>::max();
    check_order(DType::kF32, floats);
    check_order(DType::kF64, doubles);
    check_order(DType::kF16, halves);
    check_order(DType::kBF16, halves);
    check_order(DType::kI64, near);
    check_order(DType::kI64, far);
    check_order(DType::kI64, far, 3);
    check_order(DType::kI32, integers);
    check_order(DType::kI8, bytes);
    check_order(DType::kU8, bytes);
    check_order(DType::kBool, bytes);
  }
}

TEST_CASE("an index that all rows share, and rows added by it") {
  Philox random(10);
  const Shape shape = {9, 83};
  std::vector<float> x(9 * 83), taken(x.size()), added(x.size()), added_columns(x.size());
  std::vector<int64_t> columns(83), rows(9);
  for (float& v : x) v = static_cast<float>(random.next_u32() % 100);
  for (int64_t& j : columns) j = static_cast<int64_t>(random.next_u32() % 83);
  for (int64_t& j : rows) j = static_cast<int64_t>(random.next_u32() % 9);
  for (size_t r = 0; r < 9; ++r) {
    for (size_t c = 0; c < 83; ++c) {
      taken[r * 83 + c] = x[r * 83 + static_cast<size_t>(columns[c])];
      added[static_cast<size_t>(rows[r]) * 83 + c] += x[r * 83 + c];
      added_columns[r * 83 + static_cast<size_t>(columns[c])] += x[r * 83 + c];
    }
  }
  const TypedOperand from = operand(x, DType::kF32, {83, 1});
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::vector<float> y(x.size());
    auto* const bytes = reinterpret_cast<std::byte*>(y.data());
    CHECK(take_along(pool, from, operand(columns, DType::kI64, {0, 1}), 83, shape, 1, bytes));
    CHECK(y == taken);
    y.assign(y.size(), 0);
    CHECK(scatter(pool, operand(rows, DType::kI64, {1, 0}), from, shape, 0, true, shape, bytes));
    CHECK(y == added);
    y.assign(y.size(), 0);
    const TypedOperand of_columns = operand(columns, DType::kI64, {0, 1});
    CHECK(scatter(pool, of_columns, from, shape, 1, true, shape, bytes));
    CHECK(y == added_columns);
  }
  columns[82] = 83;
  ThreadPool pool(2);
  std::vector<float> y(x.size());
  CHECK(!scatter(pool, operand(columns, DType::kI64, {0, 1}), from, shape, 1, true, shape,
                 reinterpret_cast<std::byte*>(y.data())));
  CHECK(y == std::vector<float>(x.size()));
  CHECK(!take_along(pool, from, operand(columns, DType::kI64, {0, 1}), 83, shape, 1,
                    reinterpret_cast<std::byte*>(y.data())));
}

TEST_CASE("the first index out of range among short rows is named by its place") {
  ThreadPool pool(2);
  std::vector<int64_t> index(3 * 40 * 2, 1);
  int64_t bad = 0;
  const Shape shape = {3, 40, 2};
  const TypedOperand all = operand(index, DType::kI64, {80, 2, 1});
  CHECK(find_out_of_range(pool, all, shape, 2, bad) == -1);
  index[150] = -7;
  index[200] = 2;
  CHECK(find_out_of_range(pool, all, shape, 2, bad) == 150);
  CHECK(bad == -7);
  // Each row of a matrix [40, 2] repeated three times, and every other column.
  CHECK(find_out_of_range(pool, operand(index, DType::kI64, {0, 2, 1}), shape, 2, bad) == -1);
  index[50] = 9;
  CHECK(find_out_of_range(pool, operand(index, DType::kI64, {0, 2, 1}), shape, 2, bad) == 50);
  CHECK(find_out_of_range(pool, operand(index, DType::kI64, {80, 4, 2}), {3, 20, 2}, 2, bad) == 25);
  CHECK(bad == 9);
}

TEST_CASE("an index out of range is found") {
  ThreadPool pool(2);
  const std::vector<int32_t> index = {0, 3, 5, 1};
  int64_t bad = 0;
  CHECK(find_out_of_range(pool, operand(index, DType::kI32, {2, 1}), {2, 2}, 6, bad) == -1);
  CHECK(find_out_of_range(pool, operand(index, DType::kI32, {2, 1}), {2, 2}, 5, bad) == 2);
  // Repeated along the first and the last axis: the number among all elements.
  CHECK(find_out_of_range(pool, operand(index, DType::kI32, {0, 1, 0}), {3, 4, 2}, 5, bad) == 4);
  CHECK(bad == 5);
}
