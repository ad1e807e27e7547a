// Signals as values: what Ctrl-C and the end of the session mean while a verb runs.
#pragma once

#include <csignal>

namespace lumen::runtime {

// While it lives, SIGINT, SIGTERM and SIGHUP no longer end the process but are remembered, and
// waiting for input ends when one arrives. One at a time per process.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Becomes true with any of the three; polled by the token loop and by prefill.
  const volatile bool* stop_flag() const;

  // Whether SIGINT came since the last call.
  bool take_interrupt();

  // SIGTERM or SIGHUP if one came, else 0. The verb should end, exiting with 128 + this.
  int termination() const;

  // Whether the terminal was closed (SIGHUP) since the last watch began, also after its end: it
  // takes no output any more. To be asked after an error of output; waits a moment for a signal
  // that comes with it.
  static bool hung_up();

  enum class Wait { kReadable, kSignal, kResized };
  // Waits, without using CPU, until `descriptor` has input (or is at its end) or a signal came.
  Wait wait_readable(int descriptor);

 private:
  struct sigaction previous_[4];
};

}  // namespace lumen::runtime
