#include "lib/nn/low_rank.h"

#include <cmath>
#include <limits>

#include "lib/autograd/autograd.h"
#include "lib/graph/views.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

Tensor float32(const Tensor& x) {
  return graph::contiguous(x, DType::kF32);
}

// m / length, where a row of zeros, which has no direction, stays one.
Tensor factors(const Tensor& m, const Tensor& squares) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  return ops::div(m, ops::sqrt(ops::maximum(squares, graph::scalar(kLeast))));
}

Tensor squares_of(const Tensor& weight, WeightOrder order, bool keepdim) {
  return ops::sum(ops::mul(weight, weight), {order == WeightOrder::kOutIn ? 1 : 0}, keepdim);
}

// m / ‖W + s B A‖. With P = A Wᵀ [rank, out] the squares are ‖W‖² + s Σ Bᵀ (2 P + s A Aᵀ Bᵀ),
// which never makes a matrix as large as W of the sum.
Tensor factors(const LowRank& addition) {
  const Magnitudes& own = *addition.magnitudes;
  const graph::AutocastScope precision(DType::kF32);
  // Products with stored types round A.
  const Tensor weight = own.weight.dtype() == DType::kF32 ? own.weight : float32(own.weight);
  const Tensor product = own.order == WeightOrder::kOutIn ? ops::linear(addition.a, weight)
                                                          : ops::matmul(addition.a, weight);
  const Tensor turned = graph::permute(addition.b, {1, 0});
  const Tensor of_addition = ops::matmul(ops::linear(addition.a, addition.a), turned);
  const Tensor terms =
      ops::mul(turned, ops::add(ops::mul(product, 2.0), ops::mul(of_addition, addition.scale)));
  const Tensor change = ops::mul(ops::sum(terms, {0}, false), addition.scale);
  return factors(own.m, autograd::detach(ops::add(own.squares, change)));
}

Tensor low(const LowRank& addition, const Tensor& x) {
  const Tensor product = ops::linear(ops::linear(x, addition.a), addition.b);
  return ops::mul(product, graph::scalar(static_cast<float>(addition.scale)));
}

}  // namespace

double lora_scale(double alpha, int64_t rank, bool rank_stabilized) {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

Magnitudes magnitudes_of(const Tensor& m, const Tensor& weight, WeightOrder order) {
  return {m, weight, graph::constant(squares_of(float32(weight), order, false).eval()), order};
}

Array row_lengths(const Tensor& weight, WeightOrder order) {
  const Array squares = squares_of(float32(weight), order, false).eval();
  return ops::sqrt(graph::constant(squares)).eval();
}

Tensor with_addition(Product product, const Tensor& bias, const Tensor& x,
                     const std::optional<LowRank>& addition) {
  if (!addition) return product(x, bias);
  const Tensor given = dropout(x, addition->dropout);
  if (!addition->magnitudes) return ops::add(product(x, bias), low(*addition, given));
  const Tensor f = factors(*addition), added = low(*addition, given);
  if (given.node() != x.node()) {
    const Tensor changed = ops::mul(product(given, {}), ops::sub(f, graph::scalar(1.0f)));
    return ops::add(product(x, bias), ops::add(changed, ops::mul(added, f)));
  }
  const Tensor y = ops::mul(ops::add(product(x, {}), added), f);
  return bias.defined() ? ops::add(y, bias) : y;
}

Tensor worked_in(const Tensor& weight, const LowRank& addition, WeightOrder order) {
  const graph::AutocastScope precision(DType::kF32);
  Tensor product = ops::matmul(addition.b, addition.a);
  if (order == WeightOrder::kInOut) product = graph::permute(product, {1, 0});
  const Tensor sum = ops::add(float32(weight), ops::mul(product, addition.scale));
  if (!addition.magnitudes) return sum;
  const Tensor squares = squares_of(sum, order, true);
  const Tensor f = factors(graph::reshape(addition.magnitudes->m, squares.shape()), squares);
  return ops::mul(sum, f);
}

}  // namespace lumen::nn
