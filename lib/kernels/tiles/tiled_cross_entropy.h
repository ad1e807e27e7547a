// linear_cross_entropy (cross_entropy.h) on tiles (amx.h): logits never leave the second cache,
// only their exponentials as bfloat16 numbers do. Private to this room.
#pragma once

#include <cstddef>

#include "lib/kernels/cross_entropy.h"
#include "lib/kernels/tiles/amx.h"

namespace lumen::kernels {

// Whether it is faster than products of whole matrices.
bool is_worth_tiled_loss(int64_t rows, int64_t dim, int64_t classes);

// Bytes of workspace, whatever the unit is.
size_t tiled_loss_bytes(int64_t rows, int64_t dim, int64_t classes, int threads, bool bf16);

// The gradients that args asks for, and losses[i] of each row, which has not been multiplied by its
// weight. False if an operand that has two parts holds an infinity or a NaN: nothing is valid then.
// Likewise if a loss is beyond 62: exponentials count from the logit of the row's target. The
// result does not depend on the number of threads. Does not allocate. noexcept.
bool tiled_linear_cross_entropy(ThreadPool& pool, const TileUnit& unit,
                                const LinearCrossEntropy& args, std::byte* workspace,
                                float* losses);

}  // namespace lumen::kernels
