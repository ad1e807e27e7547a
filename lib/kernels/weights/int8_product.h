// The product behind `linear` with many rows and quantised weights: both sides as int8 codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// Whether split_product takes `w` and is faster than int8_product here: of codes of eight bits,
// with AVX2 alone.
bool takes_split_product(const Weight& w);

// Bytes of workspace of either for any weights; never decreases with m.
size_t int8_product_bytes(int64_t m, int64_t cols, int threads);

// The part of linear(pool, args) that `weights` make, all of them quantised and in rows; their
// first row is column `column` of y. args.workspace has int8_product_bytes(...). Every element is
// summed as int8_tile.h says, whatever m, the weights beside its own and the number of threads are.
// Does not allocate. noexcept.
void int8_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                  int64_t column);

// The same of weights with codes of eight bits, on split_tile.h: the same bits. Only where
// has_split_tile().
void split_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                   int64_t column);

}  // namespace lumen::kernels
