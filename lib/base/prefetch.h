// Fetching what is read soon.
#pragma once

#include <cstdint>

namespace lumen {

// Has the lines of `bytes` bytes from `data` on brought into the second cache, where the processor
// does not foresee that they are read. It is a hint: places behind an array may be named. Always
// inline: GCC 12 removes calls of a function that does nothing but prefetch. noexcept.
[[gnu::always_inline]] inline void prefetch(const void* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<const char*>(data) + at, 0, 2);
  }
}

// The same of what is written soon: a store to a line that is in no cache of this core waits for
// it.
[[gnu::always_inline]] inline void prefetch_written(const void* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<const char*>(data) + at, 1);
  }
}

}  // namespace lumen
