// Codes and scales laid into the blocks that quant_blocks-inl.h takes apart.
#pragma once

#include <cstdint>

#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// One block of 32, of q4_0, q4_1, q5_0, q5_1 or iq4_nl. `codes` count from 0 and lie in element
// order; `min` is for q4_1 and q5_1 only. noexcept.
void pack_block(DType dtype, const uint8_t* codes, float scale, float min, uint8_t* block);

// One block of mxfp4: of the scale 2^(exponent − 127), and the codes of its numbers. noexcept.
void pack_mxfp4(const uint8_t* codes, int exponent, uint8_t* block);

// The scales of a block of 256: scale[i] = d · s[i] and, of q2_k, q4_k and q5_k, min[i] = −e ·
// m[i], of its 8 sub-blocks (q2_k, q3_k, q6_k: 16). d and e are rounded to halves; s and m are
// integers that fit.
struct SuperScales {
  float d, e;
  const float *s, *m;
};

// One block of 256, of q2_k to q6_k or iq4_xs. noexcept.
void pack_super_block(DType dtype, const uint8_t* codes, const SuperScales& scales, uint8_t* block);

}  // namespace lumen::kernels
