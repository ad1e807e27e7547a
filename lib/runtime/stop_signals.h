// Signals of a run that must not lose anything.
#pragma once

#include <csignal>

namespace lumen::runtime {

// While it lives, the first SIGINT or SIGTERM is only remembered, so that the run can save and end;
// the second ends the process at once with 128 + its number. A terminal or reader that goes away
// (SIGHUP, SIGPIPE) does not end the run. One at a time per process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // SIGINT or SIGTERM if one came, else 0.
  int received() const;

 private:
  struct sigaction previous_[4];
};

}  // namespace lumen::runtime
