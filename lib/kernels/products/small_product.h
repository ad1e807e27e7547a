// Products of few rows and columns as they lie, for one thread: packing them would take longer.
#pragma once

#include <cstdint>

namespace lumen::kernels {

// At most so many columns of a call.
inline constexpr int64_t kSmallCols = 32;

// c[i][j] = (go_on ? c[i][j] : 0) + Σ_k a[i · a_row_stride + k · a_col_stride] · b[k · b_stride +
// j] for i in [0, m), j in [0, n), k in [0, depth): every element is one chain of multiply-adds
// over k that starts with the first term, as multiply_panels makes. noexcept.
template <typename T>
struct SmallProduct {
  int64_t m, n, depth;
  const T* a;
  int64_t a_row_stride, a_col_stride;
  const T* b;
  int64_t b_stride;
  bool go_on;
  T* c;
  int64_t c_stride;
};
void small_product(const SmallProduct<float>& product);
void small_product(const SmallProduct<double>& product);

}  // namespace lumen::kernels
