// Signals of a run that must not lose anything.
#pragma once

#include <csignal>

namespace lumen::runtime {

// While it lives, the first SIGINT or SIGTERM is only remembered, so that the run can save and end;
// the second ends the process at once with 128 + its number. A terminal or reader that goes away
// (SIGHUP, SIGPIPE) does not end the run, and SIGUSR1 asks for a checkpoint. One at a time per
// process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // SIGINT or SIGTERM if one came, else 0.
  int received() const;

  // Whether SIGUSR1 came since the last call.
  bool take_save_request() const;

 private:
  struct sigaction previous_[5];
};

}  // namespace lumen::runtime
