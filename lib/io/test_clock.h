// Times for the tests of this room.
#pragma once

#include <time.h>

#include <algorithm>

namespace lumen::io {

// Whether figures mean anything: false in unoptimised builds and under sanitizers.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LUMEN_IO_SANITIZED
#endif
#endif
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(LUMEN_IO_SANITIZED)
inline constexpr bool kMeasured = true;
#else
inline constexpr bool kMeasured = false;
#endif

// Processor time of this thread: unlike the clock on the wall, not disturbed by other processes.
inline double thread_milliseconds() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// Milliseconds that `body` takes: the best of three runs.
template <typename Body>
double milliseconds(Body&& body) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double start = thread_milliseconds();
    body();
    best = std::min(best, thread_milliseconds() - start);
  }
  return best;
}

}  // namespace lumen::io
