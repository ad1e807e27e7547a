#include "lib/nn/low_rank_start.h"

#include <cmath>

#include "lib/base/relative_error.h"
#include "lib/base/testing.h"
#include "lib/graph/views.h"
#include "lib/nn/singular_values.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

using graph::constant;

std::vector<double> numbers(const Tensor& x) {
  const Array array = graph::contiguous(x, DType::kF64).eval();
  return {array.as<double>().begin(), array.as<double>().end()};
}

double largest_of(const Tensor& x) {
  double largest = 0;
  for (const double value : numbers(x)) largest = std::max(largest, std::fabs(value));
  return largest;
}

Tensor transposed(const Tensor& x) {
  return graph::permute(x, {1, 0});
}

Tensor random_matrix(int64_t rows, int64_t columns, Philox& random) {
  Array matrix = Array::zeros(DType::kF64, {rows, columns});
  for (double& value : matrix.as_mutable<double>()) value = random.normal();
  return constant(matrix);
}

Tensor orthonormal(int64_t rows, int64_t dim, Philox& random) {
  Array basis = random_matrix(rows, dim, random).eval();
  orthonormalize_rows(basis, 0, random);
  return constant(basis);
}

// U Σ Vᵀ with Σ = 1, 0.9, 0.9, 0.5, …: one value twice, one 0.
TEST_CASE("the largest singular values of a matrix with known ones are found") {
  Philox random(3);
  for (const auto& [rows, columns] : {std::pair(40, 30), std::pair(30, 40), std::pair(300, 250)}) {
    std::vector<double> values = {1, 0.9, 0.9, 0.5};
    while (values.size() < 29) values.push_back(values.back() * 0.9);
    values.push_back(0);
    const Tensor u = orthonormal(30, rows, random), v = orthonormal(30, columns, random);
    const Tensor sigma = constant(Array::from<double>(values, {30, 1}));
    const Tensor matrix = constant(ops::matmul(transposed(u), ops::mul(v, sigma)).eval());
    for (const int64_t count : {1, 3, 5, 30, 100}) {
      const Factors found = largest_singular_values(matrix, count, 1000, random);
      const int64_t found_count = found.right.shape()[0];
      CHECK(found_count == std::min<int64_t>({count, rows, columns}));
      const int64_t used = std::min<int64_t>(found_count, 30);
      const Tensor part =
          ops::matmul(transposed(graph::slice(u, 0, 0, used)),
                      ops::mul(graph::slice(v, 0, 0, used), graph::slice(sigma, 0, 0, used)));
      const Tensor product = ops::matmul(constant(found.left), constant(found.right));
      CHECK(largest_of(ops::sub(product, part)) < 1e-7);
      // Both have √Σ: as much of one as of the other.
      const Tensor left = ops::matmul(transposed(constant(found.left)), constant(found.left));
      const Tensor right = ops::matmul(constant(found.right), transposed(constant(found.right)));
      for (int64_t i = 0; i < used; ++i) {
        const auto at = static_cast<size_t>(i * found_count + i);
        CHECK(numbers(right)[at] == Approx(values[static_cast<size_t>(i)]).margin(1e-7));
        CHECK(numbers(left)[at] == Approx(values[static_cast<size_t>(i)]).margin(1e-7));
      }
    }
  }
}

TEST_CASE("matrices of zeros, of one value and of no numbers are decomposed, too") {
  Philox random(4);
  const Tensor zeros = constant(Array::zeros(DType::kF64, {6, 20}));
  CHECK(largest_of(constant(largest_singular_values(zeros, 3, 1000, random).left)) == 0);
  const Factors same = largest_singular_values(orthonormal(50, 60, random), 4, 1000, random);
  const Tensor right = ops::matmul(constant(same.right), transposed(constant(same.right)));
  Array identity = Array::zeros(DType::kF64, {4, 4});
  for (size_t i = 0; i < 4; ++i) identity.as_mutable<double>()[5 * i] = 1;
  CHECK(largest_of(ops::sub(right, constant(identity))) < 1e-9);
  Array nothing = Array::zeros(DType::kF64, {40, 30});
  for (double& value : nothing.as_mutable<double>()) value = std::nan("");
  largest_singular_values(constant(nothing), 2, 1'000'000, random);  // ends
  first_of_qr(constant(nothing), 2, random);
}

TEST_CASE("the first rows of R and columns of Q are those of Q R") {
  Philox random(5);
  const Tensor matrix = random_matrix(9, 7, random);
  const Factors found = first_of_qr(matrix, 3, random);
  const Tensor q = constant(found.left), r = constant(found.right);
  const std::vector<double> lower = numbers(r);
  CHECK(std::fabs(lower[7]) + std::fabs(lower[14]) + std::fabs(lower[15]) < 1e-12);
  const Tensor rest = ops::sub(matrix, ops::matmul(q, r));
  CHECK(largest_of(graph::slice(rest, 1, 0, 3)) < 1e-12);
  CHECK(largest_of(ops::matmul(transposed(q), rest)) < 1e-12);
  // Columns that depend on others.
  const Tensor parts[] = {matrix, graph::slice(matrix, 1, 0, 2), graph::slice(matrix, 1, 0, 1)};
  const Tensor dependent = constant(ops::concat(parts, 1).eval());
  const Factors all = first_of_qr(dependent, 20, random);
  CHECK(all.left.shape() == Shape{9, 9});
  CHECK(largest_of(ops::sub(dependent, ops::matmul(constant(all.left), constant(all.right)))) <
        1e-12);
}

TEST_CASE("additions start as their kind says") {
  Philox random(6);
  const Tensor weight =
      constant(graph::contiguous(random_matrix(12, 10, random), DType::kF32).eval());
  const auto start = [&](LowRankInit init, int64_t rank, WeightOrder order) {
    const bool turned = order == WeightOrder::kInOut;
    const Tensor stored = turned ? constant(transposed(weight).eval()) : weight;
    const LowRankStart made = low_rank_start(init, stored, order, rank, 2, {}, random);
    CHECK(made.a.shape() == Shape{rank, 10});
    CHECK(made.b.shape() == Shape{12, rank});
    return made;
  };
  const auto product = [](const LowRankStart& of) {
    return ops::matmul(constant(of.b), constant(of.a));
  };
  for (const WeightOrder order : {WeightOrder::kOutIn, WeightOrder::kInOut}) {
    for (const LowRankInit init : {LowRankInit::kUniform, LowRankInit::kGaussian}) {
      CHECK(largest_of(product(start(init, 4, order))) == 0);
      CHECK(largest_of(constant(start(init, 4, order).a)) > 0);
    }
    const LowRankStart halves = start(LowRankInit::kOrthogonal, 4, order);
    CHECK(largest_of(product(halves)) < 1e-7);
    CHECK(largest_of(constant(halves.a)) > 0.05);
    CHECK(largest_of(constant(halves.b)) > 0.05);
    CHECK(largest_of(product(start(LowRankInit::kRandom, 4, order))) > 0.01);
    // All of the weight, and ranks that are left.
    for (const int64_t rank : {10, 15}) {
      const Tensor pissa = product(start(LowRankInit::kPissa, rank, order));
      CHECK(largest_of(ops::sub(ops::mul(pissa, 2.0), weight)) < 1e-5);
      const Tensor olora = product(start(LowRankInit::kOlora, rank, order));
      CHECK(largest_of(ops::sub(olora, weight)) < 1e-5);
    }
  }
  CHECK(is_part_of_weight(LowRankInit::kPissa));
  CHECK_FALSE(is_part_of_weight(LowRankInit::kOrthogonal));
}

}  // namespace
}  // namespace lumen::nn
