// What this machine reaches at best, measured: the limits that benchmarks compare with.
#pragma once

#include <cstddef>
#include <string>

#include "lib/base/pool.h"

namespace lumen::runtime {

// A block that no cache holds.
constexpr size_t kBeyondCaches = size_t{256} << 20;

// How fast memory is read, and with a block of how many bytes that was measured.
struct ReadBandwidth {
  double bytes_per_second = 0;
  size_t block_bytes = kBeyondCaches;
};

// The speed at which the threads of `pool` together read memory in 2 MiB pages, each its part front
// to back: the best of several passes over kBeyondCaches bytes (which it allocates; takes a tenth
// of a second and more), or where these cannot be had over the half, the quarter, … of them, 8 MiB
// at least, which caches may hold. Throws Error(kResource) if there are not even those.
ReadBandwidth measure_read_bandwidth(ThreadPool& pool);

// What to tell of a measurement with less than kBeyondCaches, a line; else "".
std::string describe_shortage(const ReadBandwidth& measured);

// `measured`, or what a pass over `bytes` so often a second proves, if no cache holds them: a
// shared machine may have been slower while its bandwidth was measured.
double at_least_proven(double measured, double bytes, double times_per_second);

// Floating-point operations per second that the threads of `pool` together do in float32
// multiply-adds (two operations each) with the vectors of the chosen SIMD target, the best of
// several tries.
double measure_flops(ThreadPool& pool);

}  // namespace lumen::runtime
