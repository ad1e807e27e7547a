#include "lib/base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace lumen {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "lumen: internal error: %s:%d: %s does not hold; please report this\n", file,
               line, condition);
  std::fflush(stderr);
  _exit(70);  // the documented exit code of an internal bug; no destructor may run now
}

}  // namespace lumen
