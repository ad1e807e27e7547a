// Signals as values: what Ctrl-C and the end of the session mean while a verb runs.
#pragma once

#include <atomic>
#include <csignal>

namespace lumen::runtime {

// While it lives, SIGINT, SIGTERM and SIGHUP no longer end the process but are remembered, and
// waiting for input ends when one arrives. A SIGHUP that is ignored when it begins, as under nohup,
// stays ignored. One at a time per process.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Becomes true with any of the three; polled by the token loop and by prefill.
  const std::atomic<bool>* stop_flag() const;

  // Whether SIGINT came since the last call.
  bool take_interrupt();

  // SIGTERM or SIGHUP if one came, else 0. The verb should end, exiting with 128 + this.
  int termination() const;

  // Whether the terminal was closed: SIGHUP came since the last watch began, also after its end, or
  // one of the standard streams is a terminal that is gone, which the kernel may show before it
  // sends the signal. To be asked after an error of output.
  static bool hung_up();

  // kContinued: the process was stopped meanwhile (SIGSTOP, SIGTSTP), and whoever had the terminal
  // may have changed its state.
  enum class Wait { kReadable, kSignal, kResized, kContinued };
  // Waits, without using CPU, until `descriptor` has input (or is at its end) or a signal came.
  Wait wait_readable(int descriptor);

 private:
  struct sigaction previous_[5];
};

}  // namespace lumen::runtime
