// Products of float32 and float64 with any strides: by vectors, of single columns, of blocks.
#include "lib/kernels/products/strided_product.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/products/blocked_product.h"
#include "lib/kernels/products/vector_product.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr int64_t kGap = 2;  // between rows of C

// Which operands lie in columns.
struct Lying {
  bool a_columns, b_columns;
};
constexpr Lying kLayouts[] = {{false, false}, {false, true}, {true, false}, {true, true}};

template <typename T>
std::vector<T> random_numbers(Philox& random, int64_t count) {
  const auto floats = random_floats(random, count), more = random_floats(random, count);
  std::vector<T> numbers;
  for (size_t i = 0; i < floats.size(); ++i) {
    numbers.push_back(static_cast<T>(floats[i]) + static_cast<T>(more[i]) * T{1e-9});
  }
  return numbers;
}

// Operands and what C holds before.
template <typename T>
struct Problem {
  int64_t m, n, k;
  Lying layout;
  std::vector<T> a, b, before;
  std::vector<long double> sums, sizes;  // Σ a b and Σ |a b| of every element, by sum_up

  Problem(Philox& random, int64_t rows, int64_t cols, int64_t depth, Lying lie, std::vector<T> c)
      : m(rows),
        n(cols),
        k(depth),
        layout(lie),
        a(random_numbers<T>(random, rows * depth)),
        b(random_numbers<T>(random, depth * cols)),
        before(std::move(c)) {}

  int64_t a_at(int64_t i, int64_t l) const { return layout.a_columns ? l * m + i : i * k + l; }
  int64_t b_at(int64_t l, int64_t j) const { return layout.b_columns ? j * k + l : l * n + j; }

  void sum_up() {
    sums.clear(), sizes.clear();
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        long double sum = 0, size = 0;
        for (int64_t l = 0; l < k; ++l) {
          const long double product = static_cast<long double>(a[a_at(i, l)]) * b[b_at(l, j)];
          sum += product;
          size += std::abs(product);
        }
        sums.push_back(sum), sizes.push_back(size);
      }
    }
  }

  std::vector<T> run(int threads, bool accumulate, bool doubles) const {
    ThreadPool pool(threads);
    const size_t bytes = std::is_same_v<T, float> ? blocked_product_bytes(m, k, threads)
                                                  : blocked_product_f64_bytes(m, k, threads);
    std::vector<std::byte> memory(bytes + 64);
    std::vector<T> c = before;
    auto twice = [](int64_t, int64_t begin, int64_t end, T* piece) {
      for (int64_t j = begin; j < end; ++j) piece[j - begin] *= 2;
    };
    const EpilogueOf<T> epilogue = twice;
    strided_product(pool, StridedProduct<T>{.m = m,
                                            .n = n,
                                            .k = k,
                                            .a = a.data(),
                                            .a_row_stride = layout.a_columns ? 1 : k,
                                            .a_col_stride = layout.a_columns ? m : 1,
                                            .b = b.data(),
                                            .b_row_stride = layout.b_columns ? 1 : n,
                                            .b_col_stride = layout.b_columns ? k : 1,
                                            .c = c.data(),
                                            .c_stride = n + kGap,
                                            .workspace = align_64(memory),
                                            .accumulate = accumulate,
                                            .epilogue = doubles ? &epilogue : nullptr});
    return c;
  }

  // As exact as a loop in order: |error| ≤ k ε Σ |a| |b|, here a fourth of that for long sums.
  void check(const std::vector<T>& c, bool accumulate, bool doubles) const {
    bool good = true, untouched = true;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n + kGap; ++j) {
        const T found = c[i * (n + kGap) + j], old = before[i * (n + kGap) + j];
        if (j >= n) {
          untouched &= found == old;
          continue;
        }
        const long double start = accumulate ? old : 0;
        const long double sum = start + sums[i * n + j];
        const long double size = std::abs(start) + sizes[i * n + j];
        const int factor = doubles ? 2 : 1;
        const long double terms = 4 + static_cast<long double>(k) / 4;
        good &= std::abs(found - factor * sum) <=
                factor * terms * std::numeric_limits<T>::epsilon() * size;
      }
    }
    CHECK(good);
    CHECK(untouched);
  }
};

template <typename T>
void check_sizes(const std::vector<std::vector<int64_t>>& sizes) {
  Philox random(12);
  for (const auto& size : sizes) {
    auto before = random_numbers<T>(random, size[0] * (size[1] + kGap));
    Problem<T> problem(random, size[0], size[1], size[2], {}, std::move(before));
    for (Lying layout : kLayouts) {
      problem.layout = layout;
      problem.sum_up();
      on_every_target([&] {
        for (int mode = 0; mode < 3; ++mode) {
          const bool accumulate = mode == 1, doubles = mode == 2;
          INFO(size[0] << " x " << size[1] << " x " << size[2] << ", columns " << layout.a_columns
                       << layout.b_columns << ", mode " << mode);
          const auto one = problem.run(1, accumulate, doubles);
          problem.check(one, accumulate, doubles);
          for (int threads : {2, 3}) CHECK(problem.run(threads, accumulate, doubles) == one);
        }
      });
    }
  }
}

}  // namespace

TEST_CASE("products with vectors are as exact as sums in order, whatever the threads") {
  std::vector<std::vector<int64_t>> sizes;
  for (int64_t count : {1, 2, 3, 9, 70, 1100}) {
    for (int64_t depth : {1, 2, 17, 255, 513}) {
      sizes.push_back({count, 1, depth});
      sizes.push_back({1, count, depth});
    }
  }
  for (int64_t depth : {8191, 8193, 40000}) {
    for (int64_t count : {1, 3, 30}) {
      sizes.push_back({count, 1, depth});
      sizes.push_back({1, count, depth});
    }
  }
  check_sizes<float>(sizes);
  check_sizes<double>(sizes);
}

TEST_CASE("products of matrices are as exact as sums in order, whatever the threads") {
  const std::vector<std::vector<int64_t>> sizes = {
      {1, 1, 0},   {3, 4, 0},     {2, 3, 1},    {70, 300, 1},  {2, 3, 5},    {12, 16, 64},
      {13, 33, 9}, {40, 10, 600}, {5, 70, 257}, {6, 16, 1100}, {8, 8, 9000}, {31, 30, 4200},
      {4, 4, 4},   {31, 32, 32},  {520, 3, 7},  {61, 130, 256}};
  check_sizes<float>(sizes);
  check_sizes<double>(sizes);
}

TEST_CASE("results past the caches are those in them") {
  Philox random(3);
  for (int64_t n : {1, 5}) {
    const int64_t rows = 3000, cols = 1500 * n;
    const Problem<double> problem(random, rows, cols, 1, {},
                                  std::vector<double>(rows * (cols + kGap), 0.3));
    const auto one = problem.run(1, false, false);
    bool good = true;
    for (int64_t i = 0; i < problem.m; ++i) {
      for (int64_t j = 0; j < problem.n; ++j) {
        good &= one[i * (problem.n + kGap) + j] == problem.a[i] * problem.b[j];
      }
    }
    CHECK(good);
    CHECK(problem.run(2, false, false) == one);
  }
}

TEST_CASE("rows of 16-bit numbers times a vector are to the bit those of the floats they are") {
  constexpr int64_t kRows = 37, kStride = 150;
  Philox random(3);
  const std::vector<float> x = random_floats(random, kStride);
  const std::vector<float> a = random_floats(random, kRows * kStride);
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> narrow(a.size());
    std::vector<float> wide(a.size());
    from_float(dtype, a.data(), narrow.data(), static_cast<int64_t>(a.size()));
    to_float(dtype, narrow.data(), wide.data(), static_cast<int64_t>(a.size()));
    on_every_target([&] {
      for (int64_t n : {1, 2, 7, 16, 17, 63, 64, 65, 129, 150}) {
        INFO(name(dtype) << ", " << n);
        std::vector<float> got(kRows, -7), want = got;
        dot_rows_with(dtype, narrow.data(), kStride, kRows, x.data(), n, got.data());
        dot_rows_with(wide.data(), kStride, kRows, x.data(), n, want.data());
        REQUIRE(got == want);
        for (bool add : {false, true}) {
          for (int64_t depth : {1, 8, 37}) {
            got.assign(kStride, 0.25f), want = got;
            sum_rows_times(dtype, narrow.data(), kStride, n, x.data(), depth, add, got.data());
            sum_rows_times(wide.data(), kStride, n, x.data(), 1, depth, add, want.data());
            REQUIRE(got == want);
          }
        }
      }
    });
  }
}
