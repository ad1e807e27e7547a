#include "lib/runtime/tool/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <iterator>
#include <utility>

namespace lumen::runtime {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1};

// A handler can reach only globals, and runs on any thread.
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> g_received = 0;
std::atomic<int> g_save = 0;

// What is removed while there is nothing to save, else null.
static_assert(std::atomic<const std::vector<std::string>*>::is_always_lock_free);
std::atomic<const std::vector<std::string>*> g_traces = nullptr;

void on_stop(int number) {
  if (const auto* traces = g_traces.exchange(nullptr)) {
    for (const std::string& path : *traces) {
      if (::unlink(path.c_str()) != 0) ::rmdir(path.c_str());
    }
    _exit(128 + number);
  }
  int none = 0;
  if (!g_received.compare_exchange_strong(none, number)) _exit(128 + number);
}

void on_save(int) {
  g_save = 1;
}

}  // namespace

StopSignals::StopSignals(std::vector<std::string> traces) : traces_(std::move(traces)) {
  g_traces = &traces_;
  watch();
}

StopSignals::StopSignals() {
  watch();
}

void StopSignals::watch() {
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
  g_traces = nullptr;
}

void StopSignals::something_to_save() {
  g_traces = nullptr;
}

int StopSignals::received() const {
  return g_received;
}

bool StopSignals::take_save_request() const {
  return g_save.exchange(0) != 0;
}

}  // namespace lumen::runtime
