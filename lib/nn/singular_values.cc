#include "lib/nn/singular_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "lib/graph/views.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

using graph::Tensor;

constexpr int64_t kSpareVectors = 8;    // beside those that are asked for: what follows converges
constexpr int64_t kSubspaceRows = 192;  // a matrix of so many is decomposed in no time

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Array random_rows(int64_t count, int64_t dim, Philox& random) {
  Array rows = Array::zeros(DType::kF64, {count, dim});
  for (double& value : rows.as_mutable<double>()) value = random.normal();
  return rows;
}

// The eigenvalues of a symmetric matrix, falling, and its eigenvectors as rows: Jacobi's rotations,
// in cycles over all pairs.
struct Eigen {
  std::vector<double> values;
  Array vectors;  // float64
};

Eigen eigen(const Array& symmetric) {
  const int64_t n = symmetric.shape()[0];
  std::vector<double> a(symmetric.as<double>().begin(), symmetric.as<double>().end());
  std::vector<double> v(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i * n + i)] = 1;
  const auto at = [&](std::vector<double>& of, int64_t i, int64_t j) -> double& {
    return of[static_cast<size_t>(i * n + j)];
  };
  const auto rotate = [](double& x, double& y, double c, double s) {
    const double old = x;
    x = c * old - s * y;
    y = s * old + c * y;
  };
  constexpr int kMostCycles = 30;  // ten are enough
  for (int cycle = 0; cycle < kMostCycles; ++cycle) {
    bool rotated = false;
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        const double off = at(a, p, q), product = at(a, p, p) * at(a, q, q);
        if (!(off * off > 1e-32 * std::fabs(product)) || std::fabs(off) < 1e-300) continue;
        rotated = true;
        const double tau = (at(a, q, q) - at(a, p, p)) / (2 * off);
        const double t = (tau < 0 ? -1 : 1) / (std::fabs(tau) + std::sqrt(1 + tau * tau));
        const double c = 1 / std::sqrt(1 + t * t), s = t * c;
        for (int64_t k = 0; k < n; ++k) rotate(at(a, k, p), at(a, k, q), c, s);
        for (int64_t k = 0; k < n; ++k) rotate(at(a, p, k), at(a, q, k), c, s);
        for (int64_t k = 0; k < n; ++k) rotate(at(v, p, k), at(v, q, k), c, s);
      }
    }
    if (!rotated) break;
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t i, int64_t j) { return at(a, i, i) > at(a, j, j); });
  Eigen result = {{}, Array::zeros(DType::kF64, {n, n})};
  double* to = result.vectors.as_mutable<double>().data();
  for (const int64_t i : order) {
    result.values.push_back(std::max(0.0, at(a, i, i)));
    to = std::copy_n(&at(v, i, 0), n, to);
  }
  return result;
}

// Rows of `x` times W or Wᵀ.
Array times(const Array& x, const Tensor& w) {
  return ops::matmul(graph::constant(x), w).eval();
}

// The best approximations of the largest eigenvalues of Wᵀ W in one Krylov subspace.
struct Subspace {
  std::vector<double> values;  // σ²
  Array right, left;           // v [values, columns]; W v [values, rows]
  bool is_whole;               // exact: the subspace is all of it
};

// Of the one of `depth` powers that begins with `block`.
Subspace best_in_subspace(const Tensor& w, Array block, int64_t depth, Philox& random) {
  const int64_t dim = w.dim(1), width = block.shape()[0];
  Array basis = Array::zeros(DType::kF64, {0, dim});
  Tensor images;  // of the basis: W q
  for (int64_t power = 0; power < depth && basis.shape()[0] < dim; ++power) {
    const int64_t known = basis.shape()[0], added = std::min(width, dim - known);
    const Tensor parts[] = {graph::constant(basis),
                            graph::slice(graph::constant(block), 0, 0, added)};
    basis = ops::concat(parts, 0).eval();
    orthonormalize_rows(basis, known, random);
    const Array image = times(graph::slice(graph::constant(basis), 0, known, known + added).eval(),
                              graph::permute(w, {1, 0}));
    const Tensor all[] = {images, graph::constant(image)};
    images = graph::constant(power == 0 ? image : ops::concat(all, 0).eval());
    block = times(image, w);
  }
  const Eigen found = eigen(ops::matmul(images, graph::permute(images, {1, 0})).eval());
  const Array best = graph::slice(graph::constant(found.vectors), 0, 0, width).eval();
  return {{found.values.begin(), found.values.begin() + width},
          times(best, graph::constant(basis)),
          times(best, images),
          basis.shape()[0] == dim};
}

// Whether the first `count` are found to 1e-10 of the largest, or are not numbers.
bool has_converged(const Tensor& w, const Subspace& best, int64_t count) {
  const Array images = times(best.left, w);
  const int64_t dim = w.dim(1);
  double worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    double squares = 0;
    for (int64_t j = i * dim; j < (i + 1) * dim; ++j) {
      const auto at = static_cast<size_t>(j);
      const double rest = images.as<double>()[at] -
                          best.values[static_cast<size_t>(i)] * best.right.as<double>()[at];
      squares += rest * rest;
    }
    worst = std::max(worst, std::sqrt(squares));
  }
  return !(worst > 1e-10 * best.values[0]);
}

}  // namespace

void orthonormalize_rows(Array& rows, int64_t first, Philox& random) {
  const int64_t count = rows.shape()[0];
  const auto dim = static_cast<size_t>(rows.shape()[1]);
  const std::span<double> all = rows.as_mutable<double>();
  const auto row = [&](int64_t i) { return all.subspan(static_cast<size_t>(i) * dim, dim); };
  // What is left of the length of row i once it is orthogonal to those before.
  const auto reduce = [&](int64_t i) {
    for (int64_t j = 0; j < i; ++j) {
      const double part = dot(row(i), row(j));
      for (size_t k = 0; k < dim; ++k) row(i)[k] -= part * row(j)[k];
    }
    return std::sqrt(dot(row(i), row(i)));
  };
  for (int64_t i = first; i < count; ++i) {
    double before = std::sqrt(dot(row(i), row(i))), left = reduce(i);
    while (!(left > 1e-10 * before) && std::isfinite(left)) {
      for (double& value : row(i)) value = random.normal();
      before = std::sqrt(dot(row(i), row(i)));
      left = reduce(i);
    }
    left = reduce(i);  // the first time leaves what was rounded
    for (double& value : row(i)) value /= left;
  }
}

Factors largest_singular_values(const Tensor& matrix, int64_t count, int64_t most, Philox& random) {
  const bool is_wide = matrix.dim(1) > matrix.dim(0);
  const Tensor given = is_wide ? graph::permute(matrix, {1, 0}) : matrix;
  const Tensor w = graph::constant(graph::contiguous(given, DType::kF64).eval());
  const int64_t dim = w.dim(1), width = std::min(dim, count + kSpareVectors);
  count = std::min(count, dim);
  const int64_t depth = std::clamp<int64_t>(kSubspaceRows / width, 2, 6);
  Subspace best{{}, random_rows(width, dim, random), {}, false};
  for (int64_t i = 0; i < most; ++i) {
    best = best_in_subspace(w, best.right, depth, random);
    if (best.is_whole || has_converged(w, best, count)) break;
  }
  // √σ v, and W v / √σ = √σ u, which is 0 for σ = 0.
  std::vector<double> roots, inverse;
  for (int64_t i = 0; i < count; ++i) {
    roots.push_back(std::pow(best.values[static_cast<size_t>(i)], 0.25));
    inverse.push_back(roots.back() > std::numeric_limits<float>::min() ? 1 / roots.back() : 0);
  }
  const auto scaled = [&](const Array& rows, const std::vector<double>& by) {
    Array result = graph::slice(graph::constant(rows), 0, 0, count).eval();
    const size_t length = static_cast<size_t>(rows.shape()[1]);
    for (size_t i = 0; i < by.size(); ++i) {
      for (double& value : result.as_mutable<double>().subspan(i * length, length)) value *= by[i];
    }
    return result;
  };
  const Array of_columns = scaled(best.right, roots), of_rows = scaled(best.left, inverse);
  const auto turned = [](const Array& rows) {
    return graph::permute(graph::constant(rows), {1, 0}).eval();
  };
  return is_wide ? Factors{turned(of_columns), of_rows} : Factors{turned(of_rows), of_columns};
}

Factors first_of_qr(const Tensor& matrix, int64_t count, Philox& random) {
  const Tensor w = graph::constant(graph::contiguous(matrix, DType::kF64).eval());
  count = std::min({count, w.dim(0), w.dim(1)});
  Array rows = graph::permute(graph::slice(w, 1, 0, count), {1, 0}).eval();
  orthonormalize_rows(rows, 0, random);
  return {graph::permute(graph::constant(rows), {1, 0}).eval(), times(rows, w)};
}

}  // namespace lumen::nn
