// Matrix products. Weights stay in their stored format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/function_ref.h"
#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// A weight matrix [rows, cols]: rows one after another without padding, or in panels (panels.h), or
// rows that give the bits of panels.
struct Weight {
  const void* data;
  DType dtype;  // f32 f16 bf16 or any quantised type
  int64_t rows;
  int64_t cols;
  Layout layout = Layout::kRows;
};

// Called on the computing thread, once for every finished piece y[row][begin..end), while it is
// still in cache: where a bias, a residual or an activation is applied to it, in place. `piece`
// is y's, or holds what y will be when it is rounded or written past the caches.
template <typename T>
using EpilogueOf = FunctionRef<void(int64_t row, int64_t begin, int64_t end, T* piece)>;
using Epilogue = EpilogueOf<float>;

// Makes one element of two of the same place: out[i] from first[i] and second[i], i < n (a gated
// linear unit's gate and up). `out` may be `first`. Called on the computing threads.
using Combine = FunctionRef<void(const float* first, const float* second, int64_t n, float* out)>;

// One `linear` call: y[i][j] = Σ_k x[i][k] · w[j][k], with the rows of all weights one after the
// other as columns of y (q, k and v, or gate and up, in one sweep over one activation).
struct LinearArgs {
  const float* x;  // [m, cols], rows x_stride floats apart
  int64_t x_stride;
  int64_t m;
  std::span<const Weight> weights;  // all with the same cols
  float* y;                         // [m, Σ rows], rows y_stride floats apart; does not overlap x
  int64_t y_stride;
  std::byte* workspace;  // linear_workspace_bytes(...), 64-byte aligned
  const Epilogue* epilogue = nullptr;
  bool bf16 = false;  // as of GemmArgs; the weights are float32 or bfloat16, in rows
  // kBF16: x, or y, points at such numbers, where linear_takes_bf16, or linear_gives_bf16, is true.
  DType x_type = DType::kF32, y_type = DType::kF32;
  // Not null: of two weights with as many rows, y [m, rows] is what this makes of both products.
  // y_type is kF32 then, `epilogue` is null, and there are combine_bytes more of workspace.
  const Combine* combine = nullptr;
};

// Whether `linear` with `bf16` reads rows of x that are bfloat16 already, which changes nothing,
// and whether it rounds y to bfloat16: on a unit for bfloat16 (amx.h) that the calling thread may
// use.
bool linear_takes_bf16(int64_t m, int64_t cols);
bool linear_gives_bf16(int64_t m, int64_t cols);

// Bytes of workspace for m rows of `cols` on `threads` threads; never decreases with m.
// `as_panels`: with weights in Layout::kRowsAsPanels; `bf16`: as of LinearArgs.
size_t linear_workspace_bytes(int64_t m, int64_t cols, int threads, bool as_panels = false,
                              bool bf16 = false);
// What LinearArgs::combine needs besides, for m rows of x and `rows` of each weight.
size_t combine_bytes(int64_t m, int64_t rows);

// For quantised weights x is first rounded to int8 per 32 columns (scale = max|x|/127 in float32),
// so one row at a time gives what many rows at once give, up to float32 rounding; products
// accumulate in int32 per block and float32 across blocks. For float weights x stays float32 and
// accumulation is float32; but more than 24 rows of x with float16 or bfloat16 panels meet as
// codes of 16 bits per 128 columns where that is faster (int16_product.h), and 32 or more with
// bfloat16 panels are rounded to bfloat16 themselves where that is (bf16_unit). With AMX and 32
// rows or more, x is instead rounded to bfloat16 for bfloat16 and quantised weights, which become
// bfloat16 themselves; float16 panels and x become fixed-point numbers of 16 bits per 512 columns
// (an error of 7e-5 · ‖y‖ for normally distributed numbers, where rounding x to float16 has 2e-4;
// fixed_tiles.h says what outliers cost), and other float32 and float16 weights are multiplied as
// gemm says. The result does not depend on the number of threads. Does not allocate. noexcept.
void linear(ThreadPool& pool, const LinearArgs& args);

// General float32 product c = a · b with any strides (elements): a is [m, k], b is [k, n],
// c is [m, n] with contiguous rows c_stride apart and overlaps neither. `workspace` as
// gemm_workspace_bytes says.
// `accumulate`: c += a · b (the sums over either half of k one after the other, if both operands
// have columns that lie together). With AMX, products of a certain size are made of two bfloat16
// parts of each number: an error of 4e-6 · ‖c‖, where float32 has up to 1e-6; numbers below 1e-36
// lose more. `bf16`: a and b are rounded to bfloat16, their products added up in float32: faster
// with AMX, or AVX512-BF16 on AMD's CPUs, and slower elsewhere. `epilogue` sees pieces of c.
struct GemmArgs {
  int64_t m, n, k;
  const float* a;
  int64_t a_row_stride, a_col_stride;
  const float* b;
  int64_t b_row_stride, b_col_stride;
  float* c;
  int64_t c_stride;
  std::byte* workspace;
  bool accumulate = false;
  bool bf16 = false;
  const Epilogue* epilogue = nullptr;
  // kBF16: a, b or c points at such numbers, where gemm_takes_bf16, or gemm_gives_bf16, is true.
  DType a_type = DType::kF32, b_type = DType::kF32, c_type = DType::kF32;
};
// As linear_takes_bf16 and linear_gives_bf16; the latter without `accumulate`.
bool gemm_takes_bf16(int64_t m, int64_t n, int64_t k);
bool gemm_gives_bf16(int64_t m, int64_t n, int64_t k);
size_t gemm_workspace_bytes(int64_t m, int64_t n, int64_t k, int threads);
void gemm(ThreadPool& pool, const GemmArgs& args);

// c[i][j] = Σ_k a[i][k] · b[k][j] in the type of its numbers, as GemmArgs says.
template <typename T>
struct StridedProduct {
  int64_t m, n, k;
  const T* a;
  int64_t a_row_stride, a_col_stride;
  const T* b;
  int64_t b_row_stride, b_col_stride;
  T* c;
  int64_t c_stride;
  std::byte* workspace;  // of gemm_workspace_bytes or gemm_f64_workspace_bytes, 64-byte aligned
  bool accumulate = false;
  const EpilogueOf<T>* epilogue = nullptr;
  bool rounds = false;  // a and b to bfloat16; only float32
};

// The same product of float64. The result does not depend on the number of threads. noexcept.
size_t gemm_f64_workspace_bytes(int64_t m, int64_t k, int threads);
void gemm_f64(ThreadPool& pool, const StridedProduct<double>& product);

// While it lives, `gemm` and `linear` called on this thread compute in float32 (quantised weights:
// in int8), never in bfloat16, and convolutions multiply inputs and weights as they are. Scopes
// nest.
class ExactProductsScope {
 public:
  explicit ExactProductsScope(bool exact = true);  // false: nothing changes
  ~ExactProductsScope();
  ExactProductsScope(const ExactProductsScope&) = delete;

  static bool active();

 private:
  bool previous_;
};

}  // namespace lumen::kernels
