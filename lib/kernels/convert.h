// Rows of any stored type to and from float.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// y[i] = float(x[i]) for i in [0, n). `x` is `n` consecutive elements of `dtype` starting at a
// block boundary; for quantised types n is a multiple of the block size (formats: ggml's
// quants.c / gguf spec; the values equal the reference dequantisation bit for bit). Integers and
// bool convert exactly where float can. Unaligned pointers are fine. noexcept.
void to_float(DType dtype, const void* x, float* y, int64_t n);

// The same for rows of n float16 or bfloat16 elements, so many elements apart. noexcept.
void to_float_rows(DType dtype, const void* x, int64_t x_stride, int64_t rows, int64_t n, float* y,
                   int64_t y_stride);

// The inverse for f32 f64 f16 bf16 i8 u8 i32 i64 bool (round to nearest even; integers saturate,
// NaN to 0) and q8_0 (scale = max|x| / 127 per block of 32, codes rounded half away from zero, byte
// for byte ggml's; a block that holds a NaN or an infinity gets a NaN scale), and for those that
// can_quantize (quantize_blocks.h). noexcept.
void from_float(DType dtype, const float* x, void* y, int64_t n);
// The same on all threads of the pool.
void from_float(ThreadPool& pool, DType dtype, const float* x, void* y, int64_t n);

// True if a block scale of a quantised row, or an element of a float row, is NaN or infinite; false
// for integers. `n` as in to_float. noexcept.
bool has_nonfinite(DType dtype, const void* x, int64_t n);

}  // namespace lumen::kernels
