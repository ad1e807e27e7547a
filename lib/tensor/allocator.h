// Memory for tensors: aligned blocks with statistics.
#pragma once

#include <cstdint>

#include "lib/tensor/array.h"

namespace lumen {

// Counters of the whole process; reading them is thread-safe.
struct MemoryStats {
  int64_t live_bytes = 0;   // allocated and not yet released
  int64_t allocations = 0;  // calls of allocate
};

// A writable block of at least `bytes` (never null), aligned to 64 bytes, on 2 MiB pages where the
// kernel grants them for large blocks. Not initialised. Throws Error(kResource) naming the size.
// Thread-safe.
Buffer allocate(size_t bytes);

MemoryStats memory_stats();

// From now on allocate() throws where live_bytes would grow beyond `bytes`. The kernel promises
// more memory than there is, and kills the process that uses it. Thread-safe.
void limit_memory(int64_t bytes);

}  // namespace lumen
