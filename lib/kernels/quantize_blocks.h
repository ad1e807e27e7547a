// Weights rounded to the block formats of GGUF, with as little squared error as they allow.
#pragma once

#include <cstdint>

#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// Whether quantize_blocks writes blocks of `dtype`: q4_0 q4_1 q5_0 q5_1, q2_k to q6_k, iq4_nl
// iq4_xs, mxfp4.
bool can_quantize(DType dtype);

// y = n elements of `dtype` whose values (to_float) are near x: per block, the scale, the min where
// the format has one, and the codes are chosen together for a small Σ (x − value)². n is a multiple
// of the block size; unaligned pointers are fine.
//
// Scales start where the largest element takes a code near the last one, on a grid around it, and
// each is improved by Lloyd's iteration (Lloyd 1982: the nearest codes for a scale, the scale of
// least squares for codes) while the best is kept. In blocks of 256, whose scales and mins have 4
// to 8 bits themselves, these are chosen in the same way around that fit, with the error measured
// as the file will be read, and the two factors that they share are least squares' again.
//
// Values of least squares are shorter than x by the share of the error; the scales are then made
// longer by it (up to 2 %), so that products with rows of values are not too small: that costs at
// most 2 % of the error, and models lose less by it. (Not those of q4_1 and q5_1, whose min they
// meet.)
//
// Of mxfp4, whose scales are powers of two, that of the OCP specification, 2^(⌊log2 max |x|⌋ − 2),
// and its two neighbours are tried; numbers take the nearest value, ties the even code.
//
// A block of 32 has at most the error of the plain quantiser of its format (scale = largest / −8 or
// −16, (max − min) / 15 or 31, the specification's), up to these 2 %. The bytes depend on x alone,
// not on the SIMD target. A block that holds a NaN, an infinity or numbers beyond half-precision
// scales gets infinite ones (mxfp4: kMxfp4None), which has_nonfinite tells (convert.h). noexcept.
//
// With `weights`, n numbers that are not negative, the error is Σ w (x − v)²: of a matrix's rows
// that of its products, where w is the mean square of what a column is multiplied with. Only their
// ratios within a block matter; each counts at least 2⁻¹⁰ of their mean. A block whose weights are
// all 0, or one of them negative or not finite, is rounded as without any.
void quantize_blocks(DType dtype, const float* x, void* y, int64_t n,
                     const float* weights = nullptr);

}  // namespace lumen::kernels
