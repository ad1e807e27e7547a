#include "lib/runtime/tool.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

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
#include "lib/runtime/signals.h"

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

void on_bus_error(int) {
  // Several threads may read the file: the first one speaks for all.
  while (g_bus_error.test_and_set()) ::pause();
  const char* farewell = g_farewell;
  if (farewell) put(STDOUT_FILENO, farewell);
  put_stderr(g_bus_message.c_str());
  if (farewell) ::tcsetattr(STDIN_FILENO, TCSANOW, &g_terminal);
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
}

TerminalScope::~TerminalScope() {
  g_farewell = nullptr;
}

int run_tool(const char* tool, FunctionRef<int()> body) {
  g_tool = tool;
  g_bus_message =
      str(tool, ": error: a file was cut short or became unreadable while it was in use\n");
  fill_standard_descriptors();
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
