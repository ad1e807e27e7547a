// Products of matrices of which some are float16 or bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// `gemm` (matmul.h) where a_type, b_type and c_type are any of float32, float16 and bfloat16,
// without `accumulate` and `bf16`, with `epilogue` only of a float32 c: summed in float32 and
// rounded once. Two of bfloat16 are multiplied on the unit for it where gemm_takes_bf16, else what
// is narrow is widened as it is read. The result does not depend on the number of threads.
// noexcept.
struct NarrowTypes {
  DType a, b, c;
};
size_t gemm_narrow_workspace_bytes(const NarrowTypes& types, int64_t m, int64_t n, int64_t k,
                                   int threads);
void gemm_narrow(ThreadPool& pool, const GemmArgs& args);

}  // namespace lumen::kernels
