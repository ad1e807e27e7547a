// What this machine reaches at best, measured: the limits that benchmarks compare with.
#pragma once

#include "lib/base/pool.h"

namespace lumen::runtime {

// Bytes per second at which the threads of `pool` together read memory in 2 MiB pages, each its
// part front to back: the best of several passes over a block that no cache holds (256 MiB, which
// it allocates; takes a tenth of a second and more).
double measure_read_bandwidth(ThreadPool& pool);

// Floating-point operations per second that the threads of `pool` together do in float32
// multiply-adds (two operations each) with the vectors of the chosen SIMD target, the best of
// several tries.
double measure_flops(ThreadPool& pool);

}  // namespace lumen::runtime
