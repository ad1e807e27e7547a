#include "lib/nn/low_rank_start.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/graph/views.h"
#include "lib/nn/init.h"
#include "lib/nn/singular_values.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

using graph::constant;

Array evaluated_f32(const Tensor& x) {
  return graph::contiguous(x, DType::kF32).eval();
}

// Half the rows of a random orthogonal matrix are mixed to A, the other half to B.
LowRankStart orthogonal(int64_t rank, int64_t in, int64_t out, Philox& random) {
  const auto normal = [&](const Shape& shape) {
    Array numbers = Array::zeros(DType::kF64, shape);
    for (double& value : numbers.as_mutable<double>()) value = random.normal();
    return numbers;
  };
  Array basis = normal({rank, rank});
  orthonormalize_rows(basis, 0, random);
  const Tensor pairs = graph::reshape(constant(basis), {rank / 2, 2, rank});
  const auto mixed = [&](int64_t half, int64_t width) {
    const Tensor rows = graph::reshape(graph::slice(pairs, 1, half, half + 1), {rank / 2, rank});
    return ops::mul(ops::matmul(constant(normal({width, rank / 2})), rows), 0.1);
  };
  const Array a = evaluated_f32(graph::permute(mixed(0, in), {1, 0}));
  return {a, evaluated_f32(mixed(1, out))};
}

// The first rows of A and columns of B replaced by these, each over √divisor.
LowRankStart with_factors(LowRankStart start, const Factors& of, double divisor) {
  const int64_t count = of.right.shape()[0], rank = start.a.shape()[0];
  const double factor = 1 / std::sqrt(divisor);
  const Tensor rows[] = {ops::mul(constant(of.right), factor),
                         graph::slice(constant(start.a), 0, count, rank)};
  const Tensor columns[] = {ops::mul(constant(of.left), factor),
                            graph::slice(constant(start.b), 1, count, rank)};
  return {evaluated_f32(ops::concat(rows, 0)), evaluated_f32(ops::concat(columns, 1))};
}

}  // namespace

LowRankStart low_rank_start(LowRankInit init, const Tensor& weight, WeightOrder order, int64_t rank,
                            double scale, const std::optional<int64_t>& iterations,
                            Philox& random) {
  const Tensor w = order == WeightOrder::kOutIn ? weight : graph::permute(weight, {1, 0});
  const int64_t in = w.dim(1), out = w.dim(0);
  if (init == LowRankInit::kOrthogonal) return orthogonal(rank, in, out, random);
  const Init of_a = init == LowRankInit::kGaussian ? Init::normal(1 / static_cast<double>(rank))
                                                   : Init::fan_in_uniform();
  const Init of_b = init == LowRankInit::kRandom ? Init::fan_in_uniform() : Init::zeros();
  LowRankStart start = {initialized(of_a, DType::kF32, {rank, in}, random), {}};
  start.b = initialized(of_b, DType::kF32, {out, rank}, random);
  if (!is_part_of_weight(init)) return start;
  const Tensor known = constant(evaluated_f32(w));
  if (init == LowRankInit::kOlora) return with_factors(start, first_of_qr(known, rank, random), 1);
  const int64_t most = iterations.value_or(std::numeric_limits<int64_t>::max());
  return with_factors(start, largest_singular_values(known, rank, most, random), scale);
}

}  // namespace lumen::nn
