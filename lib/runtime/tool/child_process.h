// Running another program to its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {

// How a program ended.
struct ChildOutcome {
  bool stopped = false;  // because `signals` caught something: the rest says nothing
  int exit_code = 0;     // 128 + signal if one killed it
  std::string out, err;
};

// Runs the executable file `program`, no shell, with an empty standard input, and collects what it
// writes. When `signals` catches something the program gets SIGTERM, and SIGKILL at the next.
// Throws Error: kMissing if it cannot be started (kResource if no process is left), kMalformed if
// it writes more than `max_output` bytes to standard output, kResource, kIo.
ChildOutcome run_child(const std::string& program, const std::vector<std::string>& arguments,
                       uint64_t max_output, SignalWatch& signals);

// Runs it with this process's own standard streams, at the terminal, and returns its exit code, 128
// + signal if one killed it. SIGINT, which the terminal sends to both, is its own; it gets SIGTERM
// where `signals` catches that. Throws Error: kMissing if it cannot be started, kResource.
int run_at_terminal(const std::string& program, const std::vector<std::string>& arguments,
                    SignalWatch& signals);

}  // namespace lumen::runtime
