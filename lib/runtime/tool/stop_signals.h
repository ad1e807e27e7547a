// Signals of a run that must not lose anything.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace lumen::runtime {

// While it lives, the first SIGINT or SIGTERM is only remembered, so that the run can save and end;
// the second ends the process at once with 128 + its number. A terminal or reader that goes away
// (SIGHUP, SIGPIPE) does not end the run, and SIGUSR1 asks for a checkpoint. One at a time per
// process.
class StopSignals {
 public:
  StopSignals();
  // Before something_to_save() the first SIGINT or SIGTERM ends the process, too, which removes the
  // files and empty directories `traces`, in this order.
  explicit StopSignals(std::vector<std::string> traces);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on the run saves before it ends, and has made more than its traces.
  void something_to_save();

  // SIGINT or SIGTERM if one came, else 0.
  int received() const;

  // Whether SIGUSR1 came since the last call.
  bool take_save_request() const;

 private:
  void watch();

  std::vector<std::string> traces_;
  struct sigaction previous_[5];
};

}  // namespace lumen::runtime
