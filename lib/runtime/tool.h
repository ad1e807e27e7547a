// What every executable does around its verb: a safe start, the one catch, the exit code.
#pragma once

#include <csignal>

#include "lib/base/function_ref.h"

namespace lumen::runtime {

// Runs `body` and returns the process's exit code: what `body` returns, or, when an exception
// escapes, the exit code of its ErrorKind after one line "TOOL: error: …" on standard error
// (memory exhausted: kResource; any exception that is no Error: kInternal).
//
// Before: closed descriptors 0 to 2 are replaced, so that no data file becomes standard output (a
// write to a closed output still fails); SIGPIPE ends the process as it does for other filters; a
// write beyond the limit on file sizes (SIGXFSZ) fails like one to a full disk;
// the limit on the stack is raised to 8 MiB, or as far as the hard limit lets it;
// SIGBUS, which is a mapped file that shrank, prints one line and exits with kIo's code; LUMEN_SIMD
// restricts the instruction sets (kernels/simd.h). Call once, first in main.
int run_tool(const char* tool, FunctionRef<int()> body);

// For who edits lines. While it lives, a process that SIGBUS or SIGQUIT ends or SIGTSTP stops gives
// its terminal (standard input) the settings back that it has when this is made, and writes
// `farewell`, a literal, to it (standard output). Where it goes on after SIGTSTP, SIGCONT's handler
// has run. One at a time.
class TerminalScope {
 public:
  explicit TerminalScope(const char* farewell);
  ~TerminalScope();
  TerminalScope(const TerminalScope&) = delete;

 private:
  struct sigaction previous_[2];
};

}  // namespace lumen::runtime
