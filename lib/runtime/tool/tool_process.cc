#include "lib/runtime/tool/tool_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "lib/base/check.h"
#include "lib/base/clock.h"
#include "lib/base/testing.h"

namespace lumen::runtime::testing {
namespace {

constexpr int kPatienceSeconds = 20;
constexpr tcflag_t kNormal = ICANON | ECHO | ISIG;

[[noreturn]] void execute(const std::string& tool, const Arguments& arguments) {
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);  // tests send SIGQUIT
  std::vector<char*> argv = {const_cast<char*>(tool.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(tool_path(tool).c_str(), argv.data());
  _exit(127);
}

void read_available(int descriptor, std::string& text, bool& at_end) {
  char block[4096];
  const ssize_t count = ::read(descriptor, block, sizeof block);
  if (count > 0) text.append(block, static_cast<size_t>(count));
  at_end = count <= 0;
}

void decode_status(int status, Outcome& outcome) {
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
}

}  // namespace

std::string random_model() {
  return lumen::testing::source_path("testdata/models/random-spm.gguf");
}

std::string tool_path(const std::string& tool) {
  const char* build = std::getenv("LUMEN_BUILD_DIR");
  return std::string(build ? build : "build") + "/tools/" + tool;
}

Outcome run_tool_process(const std::string& tool, const Arguments& arguments,
                         const Streams& streams, const std::vector<std::string>& environment) {
  int in[2], out[2], err[2];
  LUMEN_CHECK(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0 &&
              ::pipe2(err, O_CLOEXEC) == 0);
  const pid_t process = ::fork();
  if (process == 0) {
    ::signal(SIGPIPE, SIG_IGN);  // as some parents leave it: the tool must not mind
    ::dup2(err[1], 2);
    streams.input ? ::dup2(in[0], 0) : ::close(0);
    if (streams.close_output) {
      ::close(1);
    } else if (!streams.output_file.empty()) {
      ::dup2(::open(streams.output_file.c_str(), O_WRONLY), 1);
    } else {
      ::dup2(out[1], 1);
    }
    for (const std::string& setting : environment) ::putenv(const_cast<char*>(setting.c_str()));
    execute(tool, arguments);
  }
  for (const int descriptor : {in[0], out[1], err[1]}) ::close(descriptor);
  const auto previous = ::signal(SIGPIPE, SIG_IGN);
  if (streams.input) {
    [[maybe_unused]] auto ignored = ::write(in[1], streams.input->data(), streams.input->size());
  }
  ::close(in[1]);
  ::signal(SIGPIPE, previous);

  Outcome outcome;
  bool out_ended = false, err_ended = false;
  const auto deadline = Clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (!(out_ended && err_ended)) {
    pollfd waiting[2] = {{out_ended ? -1 : out[0], POLLIN, 0},
                         {err_ended ? -1 : err[0], POLLIN, 0}};
    ::poll(waiting, 2, 100);
    if (waiting[0].revents) read_available(out[0], outcome.out, out_ended);
    if (waiting[1].revents) read_available(err[0], outcome.err, err_ended);
    if (streams.reader_leaves && !outcome.out.empty() && !out_ended) {
      out_ended = true;
      ::close(out[0]);
    }
    if (Clock::now() > deadline) {
      ::kill(process, SIGKILL);
      break;
    }
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  decode_status(status, outcome);
  if (!(streams.reader_leaves && out_ended)) ::close(out[0]);
  ::close(err[0]);
  return outcome;
}

void require_error(const Outcome& outcome, int exit_code, const std::string& tool) {
  CAPTURE(outcome.err, outcome.signal);
  REQUIRE(outcome.exit_code == exit_code);
  REQUIRE(outcome.out.empty());
  REQUIRE(outcome.err.ends_with('\n'));
  const size_t before = outcome.err.find_last_of('\n', outcome.err.size() - 2);
  const size_t line = before == std::string::npos ? 0 : before + 1;
  REQUIRE(outcome.err.compare(line, tool.size() + 9, tool + ": error: ") == 0);
  REQUIRE((line == 0 || outcome.err.starts_with("note: ")));
}

bool has_terminals() {
  int terminal = -1;
  int keeper = -1;
  if (::openpty(&terminal, &keeper, nullptr, nullptr, nullptr) != 0) {
    lumen::testing::skip("needs a pseudo-terminal (is /dev/pts mounted?)");
    return false;
  }
  ::close(keeper);
  ::close(terminal);
  return true;
}

TerminalProcess::TerminalProcess(const std::string& tool, const Arguments& arguments,
                                 const std::string& term) {
  winsize size = {24, 80, 0, 0};
  LUMEN_CHECK(::openpty(&terminal_, &keeper_, nullptr, nullptr, &size) == 0);
  ::fcntl(terminal_, F_SETFD, FD_CLOEXEC);
  process_ = ::fork();
  if (process_ == 0) {
    ::setenv("TERM", term.c_str(), 1);
    ::login_tty(keeper_);
    execute(tool, arguments);
  }
}

TerminalProcess::~TerminalProcess() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ::close(keeper_);
  ::close(terminal_);
}

void TerminalProcess::type(const std::string& keys) {
  LUMEN_CHECK(::write(terminal_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void TerminalProcess::send(int signal) {
  ::kill(process_, signal);
}

void TerminalProcess::resize(int rows, int columns) {
  const winsize size = {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0,
                        0};
  LUMEN_CHECK(::ioctl(terminal_, TIOCSWINSZ, &size) == 0);
}

void TerminalProcess::hang_up() {
  ::close(keeper_);
  ::close(terminal_);
  keeper_ = terminal_ = -1;
}

bool TerminalProcess::read_some(int timeout_milliseconds) {
  pollfd waiting = {terminal_, POLLIN, 0};
  if (::poll(&waiting, 1, timeout_milliseconds) <= 0) return false;
  bool at_end = false;
  read_available(terminal_, shown_, at_end);
  return !at_end;
}

bool TerminalProcess::wait_for(const std::string& text) {
  const auto deadline = Clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (Clock::now() < deadline) {
    const size_t found = shown_.find(text, waited_);
    if (found != std::string::npos) {
      waited_ = found + text.size();
      return true;
    }
    read_some(100);
  }
  return false;
}

Outcome TerminalProcess::finish() {
  Outcome outcome;
  int status = 0;
  const auto deadline = Clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (::waitpid(process_, &status, WNOHANG) == 0) {
    read_some(20);
    if (Clock::now() > deadline) ::kill(process_, SIGKILL);
  }
  process_ = -1;
  while (read_some(0)) {
  }
  decode_status(status, outcome);
  outcome.out = shown_;
  return outcome;
}

bool TerminalProcess::is_in_normal_state() const {
  termios state{};
  ::tcgetattr(keeper_, &state);
  return (state.c_lflag & kNormal) == kNormal && (state.c_iflag & ICRNL) && (state.c_oflag & OPOST);
}

void TerminalProcess::set_normal_state() {
  termios state{};
  ::tcgetattr(keeper_, &state);
  state.c_lflag |= kNormal;
  state.c_iflag |= ICRNL;
  ::tcsetattr(keeper_, TCSANOW, &state);
}

double TerminalProcess::cpu_seconds() const {
  std::ifstream file("/proc/" + std::to_string(process_) + "/stat");
  std::string word;
  for (int i = 0; i < 13; ++i) file >> word;  // the name has no spaces here
  double user = 0, system = 0;
  file >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace lumen::runtime::testing
