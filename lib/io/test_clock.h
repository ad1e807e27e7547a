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

// How many times longer parsing `large` takes than parsing `small`.
template <typename Input, typename Parse>
double growth(const Input& small, const Input& large, Parse&& parse) {
  const double time = milliseconds([&] { parse(small); });
  return milliseconds([&] { parse(large); }) / time;
}

// Above it the time of input sixteen times as long is not linear: that would be 16, and more where
// caches no longer hold it; quadratic is 256.
inline constexpr double kLinearGrowth = 64;

}  // namespace lumen::io
