// What the system says about the caches of a core. Private to this room.
#pragma once

#include <cstdint>

namespace lumen::kernels {

// Lines of the first cache that share a set; 8 where the system does not say.
int64_t first_cache_ways();

// Bytes of the second cache; 512 KiB where the system does not say.
int64_t second_cache_bytes();

// Results of at least so many bytes are not in the last cache any more when the next operation
// reads them: a fifth of it, 64 MiB at most and where the system does not say. Measured in
// measurements/elementwise.md.
int64_t streaming_bytes();

}  // namespace lumen::kernels
