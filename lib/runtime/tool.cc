#include "lib/runtime/tool.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/unfinished.h"
#include "lib/kernels/simd.h"
#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {
namespace {

const char* g_tool = "lumen";

// For the SIGBUS handler. The message is one write: other threads may be writing too.
std::string g_bus_message;
std::atomic_flag g_bus_error;
termios g_terminal;
std::atomic<const char*> g_farewell = nullptr;  // to a terminal whose settings are in g_terminal

void put(int descriptor, const char* text) {
  [[maybe_unused]] const ssize_t ignored = ::write(descriptor, text, std::strlen(text));
}

void put_stderr(const char* text) {
  put(STDERR_FILENO, text);
}

void restore_terminal() {
  const char* farewell = g_farewell;
  if (!farewell) return;
  put(STDOUT_FILENO, farewell);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &g_terminal);
}

// The signals of the keys Ctrl-\ and Ctrl-Z.
constexpr int kLeaving[] = {SIGQUIT, SIGTSTP};

// Lets the signal do what it does, with the terminal in order.
void on_leave(int number) {
  const int saved = errno;
  restore_terminal();
  struct sigaction usual = {}, own;
  usual.sa_handler = SIG_DFL;
  sigaction(number, &usual, &own);
  sigset_t set, previous;
  sigemptyset(&set);
  sigaddset(&set, number);
  ::raise(number);
  pthread_sigmask(SIG_UNBLOCK, &set, &previous);  // ends or stops here
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  sigaction(number, &own, nullptr);
  // A process that no shell could let go on is not stopped, and gets no SIGCONT.
  ::raise(SIGCONT);
  errno = saved;
}

void on_bus_error(int) {
  // Several threads may read the file: the first one speaks for all.
  while (g_bus_error.test_and_set()) ::pause();
  restore_terminal();
  put_stderr(g_bus_message.c_str());
  io::remove_unfinished();
  _exit(static_cast<int>(ErrorKind::kIo));
}

// open() gives the lowest free number, so a gap below 3 is filled by the first call. A closed
// output is replaced by something unwritable: results must not vanish silently.
void fill_standard_descriptors() {
  for (int descriptor = 0; descriptor < 3; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    ::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// A shell may allow a stack (ulimit -s) less deep than what limits.h lets files nest needs.
void raise_stack_limit() {
  constexpr rlim_t kBytes = 8 << 20;
  rlimit limit;
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kBytes) return;
  limit.rlim_cur = std::min(limit.rlim_max, kBytes);
  ::setrlimit(RLIMIT_STACK, &limit);
}

void set_signal(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

// Messages are one line by contract; a library's may not be.
int report(const std::string& message, ErrorKind kind) {
  std::string line = str(g_tool, ": error: ", message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  line += '\n';
  put_stderr(line.c_str());
  return static_cast<int>(kind);
}

}  // namespace

TerminalScope::TerminalScope(const char* farewell) {
  if (::tcgetattr(STDIN_FILENO, &g_terminal) == 0) g_farewell = farewell;
  struct sigaction action = {};
  action.sa_handler = on_leave;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kLeaving); ++i) {
    sigaction(kLeaving[i], nullptr, &previous_[i]);
    if (previous_[i].sa_handler != SIG_IGN) sigaction(kLeaving[i], &action, nullptr);
  }
}

TerminalScope::~TerminalScope() {
  for (size_t i = 0; i < std::size(kLeaving); ++i) sigaction(kLeaving[i], &previous_[i], nullptr);
  g_farewell = nullptr;
}

int run_tool(const char* tool, FunctionRef<int()> body) {
  g_tool = tool;
  g_bus_message =
      str(tool, ": error: a file was cut short or became unreadable while it was in use\n");
  fill_standard_descriptors();
  raise_stack_limit();
  set_signal(SIGPIPE, SIG_DFL);
  set_signal(SIGXFSZ, SIG_IGN);
  set_signal(SIGBUS, on_bus_error);
  try {
    if (const char* target = std::getenv("LUMEN_SIMD"); target && *target) {
      with_context("LUMEN_SIMD", [&] { kernels::force_simd_target(target); });
    }
    return body();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kIo && SignalWatch::hung_up()) return 128 + SIGHUP;
    return report(error.what(), error.kind());
  } catch (const std::bad_alloc&) {
    put_stderr(tool);
    put_stderr(": error: out of memory\n");
    return static_cast<int>(ErrorKind::kResource);
  } catch (const std::exception& error) {
    return report(str("internal error: ", error.what(), "; please report this"),
                  ErrorKind::kInternal);
  }
}

}  // namespace lumen::runtime
