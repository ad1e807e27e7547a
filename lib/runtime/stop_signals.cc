#include "lib/runtime/stop_signals.h"

#include <unistd.h>

#include <iterator>

namespace lumen::runtime {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1};

// A handler can reach only globals.
volatile sig_atomic_t g_received = 0;
volatile sig_atomic_t g_save = 0;

void on_stop(int number) {
  if (g_received != 0) _exit(128 + number);
  g_received = number;
}

void on_save(int) {
  g_save = 1;
}

}  // namespace

StopSignals::StopSignals() {
  g_received = 0;
  g_save = 0;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action = {};
    const bool stops = kSignals[i] == SIGINT || kSignals[i] == SIGTERM;
    action.sa_handler = stops ? on_stop : kSignals[i] == SIGUSR1 ? on_save : SIG_IGN;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], &action, &previous_[i]);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
}

int StopSignals::received() const {
  return g_received;
}

bool StopSignals::take_save_request() const {
  const bool asked = g_save != 0;
  g_save = 0;
  return asked;
}

}  // namespace lumen::runtime
