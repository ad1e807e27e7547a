#include "lib/runtime/tool/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "lib/base/check.h"
#include "lib/base/error.h"

namespace lumen::runtime {
namespace {

constexpr int kWatched[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};

// Handlers can reach only globals, and run on any thread. The pipe wakes a poll() that began before
// the signal came; it is never closed, as a handler on another thread may be about to write to it.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
std::atomic<bool> g_stop = false;
std::atomic<int> g_interrupted = 0;
std::atomic<int> g_termination = 0;
std::atomic<int> g_resized = 0;
std::atomic<int> g_continued = 0;
std::atomic<int> g_wake[2] = {-1, -1};
bool g_watching = false;

void make_wake_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    fail(ErrorKind::kResource, "cannot create a pipe: ", std::strerror(errno));
  }
  g_wake[0] = ends[0];
  g_wake[1] = ends[1];
}

void on_signal(int number) {
  const int saved = errno;
  if (number == SIGWINCH) {
    g_resized = 1;
  } else if (number == SIGCONT) {
    g_continued = 1;
  } else {
    if (number == SIGINT) {
      g_interrupted = 1;
    } else {
      g_termination = number;
    }
    g_stop = true;
  }
  const char byte = 0;
  [[maybe_unused]] const ssize_t ignored = ::write(g_wake[1], &byte, 1);
  errno = saved;
}

void drain_wake_pipe() {
  char bytes[64];
  while (::read(g_wake[0], bytes, sizeof bytes) > 0) {
  }
}

}  // namespace

SignalWatch::SignalWatch() {
  LUMEN_CHECK(!g_watching);
  if (g_wake[0] < 0) make_wake_pipe();
  g_watching = true;
  g_stop = false;
  g_interrupted = 0;
  g_termination = 0;
  g_resized = 0;
  g_continued = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kWatched); ++i) {
    sigaction(kWatched[i], nullptr, &previous_[i]);
    const bool ignored = previous_[i].sa_handler == SIG_IGN;
    if (kWatched[i] == SIGHUP && ignored) continue;  // by nohup: to outlive the terminal
    sigaction(kWatched[i], &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  for (size_t i = 0; i < std::size(kWatched); ++i) sigaction(kWatched[i], &previous_[i], nullptr);
  g_watching = false;
}

const std::atomic<bool>* SignalWatch::stop_flag() const {
  return &g_stop;
}

bool SignalWatch::take_interrupt() {
  g_stop = false;  // first, so that no signal that comes meanwhile is lost
  const bool interrupted = g_interrupted.exchange(0) != 0;
  if (g_termination != 0) g_stop = true;
  return interrupted;
}

int SignalWatch::termination() const {
  return g_termination;
}

bool SignalWatch::hung_up() {
  if (g_termination == SIGHUP) return true;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    termios state;
    if (::tcgetattr(stream, &state) != 0 && errno == EIO) return true;  // not ENOTTY
  }
  return false;
}

SignalWatch::Wait SignalWatch::wait_readable(int descriptor) {
  for (;;) {
    if (g_stop) return Wait::kSignal;
    if (g_resized.exchange(0) != 0) return Wait::kResized;
    if (g_continued.exchange(0) != 0) return Wait::kContinued;
    pollfd waiting[2] = {{descriptor, POLLIN, 0}, {g_wake[0], POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) {
      fail(ErrorKind::kIo, "cannot wait for input: ", std::strerror(errno));
    }
    if (waiting[1].revents != 0) drain_wake_pipe();
    if (!g_stop && waiting[0].revents != 0) return Wait::kReadable;
  }
}

}  // namespace lumen::runtime
