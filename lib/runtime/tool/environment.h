// The machine and the process, for benchmarks and statistics.
#pragma once

#include <cstdint>
#include <string>

#include "lib/io/json.h"

namespace lumen::runtime {

// The largest resident memory this process has had.
uint64_t peak_memory_bytes();

// What a measurement depends on: CPU, cores, quota, governor, load, memory, huge pages, kernel,
// build.
io::Json environment_description();

}  // namespace lumen::runtime
