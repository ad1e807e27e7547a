// The product behind `linear` with many rows and float16 or bfloat16 weights in panels: both sides
// as codes of 16 bits. Rounding to them costs 1.1e-4 of
// ‖y‖ (bfloat16 weights 6e-5) for normally distributed numbers; rounding x to float16 would cost
// 2.1e-4, to bfloat16 1.7e-3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// Whether int16_product takes `w` and is faster than float32 here; never under an
// ExactProductsScope.
bool takes_int16_product(const Weight& w);

// Bytes of workspace; never decreases with m.
size_t int16_product_bytes(int64_t m, int64_t cols, int threads);

// The part of linear(pool, args) that `weights` make; their first row is column `column` of y.
// args.workspace has int16_product_bytes(...). Every element is summed as int16_tile.h says,
// whatever m, the weights beside its own and the number of threads are. Does not allocate.
// noexcept.
void int16_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                   int64_t column);

}  // namespace lumen::kernels
