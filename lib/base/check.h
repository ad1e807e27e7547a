// Checks for bugs: a broken invariant of our own code stops the program at once.
// Wrong input is never a bug: throw an Error (error.h) instead.
#pragma once

namespace lumen {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace lumen

// Aborts with file and line if `condition` is false. Always on; keep it out of inner loops.
#define LUMEN_CHECK(condition) \
  ((condition) ? void() : ::lumen::check_failed(#condition, __FILE__, __LINE__))
