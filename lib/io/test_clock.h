// Times for the tests of this room.
#pragma once

#include <time.h>

#include <algorithm>

namespace lumen::io {

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
