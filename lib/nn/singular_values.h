// Parts of a matrix that low-rank additions start with.
#pragma once

#include <cstdint>

#include "lib/base/random.h"
#include "lib/graph/tensor.h"

namespace lumen::nn {

// Two factors with left · right = the part of a matrix, float64 [rows, count] and [count, columns].
struct Factors {
  Array left, right;
};

// U √Σ and √Σ Vᵀ of the largest min(count, rows, columns) singular values Σ of `matrix` [rows,
// columns], a constant. By block Krylov subspaces of W Wᵀ or Wᵀ W, the smaller, each of which
// begins with the best of the one before (Musco & Musco 2015): `most` of them, or until
// ‖Wᵀ W v − σ² v‖ ≤ 1e-10 σ₁² for all. Computed in float64.
Factors largest_singular_values(const graph::Tensor& matrix, int64_t count, int64_t most,
                                Philox& random);

// The first min(count, rows, columns) columns of Q and rows of R in `matrix` = Q R, where Q is
// orthonormal and R upper triangular.
Factors first_of_qr(const graph::Tensor& matrix, int64_t count, Philox& random);

// Makes the rows from `first` on of float64 [rows, dim], rows ≤ dim, orthonormal to each other and
// to those before, which are. Each spans with those before what it spanned; those that depend on
// them become random.
void orthonormalize_rows(Array& rows, int64_t first, Philox& random);

}  // namespace lumen::nn
