// What this machine can do at best, for benchmarks: the limits that kernels are compared with.
#pragma once

#include <cstddef>

#include "lib/base/pool.h"

namespace lumen::kernels {

// Does `rounds` of independent float32 multiply-adds on every thread of `pool`, in registers, with
// the vectors of the chosen SIMD target. Returns how many floating-point operations these were (a
// multiply-add is two).
double multiply_add(ThreadPool& pool, int64_t rounds);

// Reads [data, data + bytes) once, split over the threads of `pool`: the sum of its 64-bit words
// modulo 2^64. `bytes` must be a multiple of 64.
uint64_t read_memory(ThreadPool& pool, const std::byte* data, size_t bytes);

}  // namespace lumen::kernels
