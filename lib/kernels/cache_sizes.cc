#include "lib/kernels/cache_sizes.h"

#include <unistd.h>

#include <algorithm>

namespace lumen::kernels {

int64_t first_cache_ways() {
#ifdef _SC_LEVEL1_DCACHE_ASSOC
  static const int64_t ways = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
  if (ways > 0) return ways;
#endif
  return 8;
}

int64_t second_cache_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const int64_t bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (bytes > 0) return bytes;
#endif
  return 512 << 10;
}

int64_t streaming_bytes() {
  constexpr int64_t kMost = 64 << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
  static const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return std::min(bytes / 5, kMost);
#endif
  return kMost;
}

}  // namespace lumen::kernels
