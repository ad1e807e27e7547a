#include "lib/runtime/tool/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>

#include "lib/base/error.h"
#include "lib/base/function_ref.h"
#include "lib/base/strings.h"

extern char** environ;

namespace lumen::runtime {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using ScratchFile = std::unique_ptr<std::FILE, CloseFile>;

// A file without a name: what is written to it needs nobody to read it meanwhile.
ScratchFile make_scratch_file() {
  ScratchFile file(std::tmpfile());
  if (!file)
    fail(ErrorKind::kCannotCreate, "cannot create a temporary file: ", std::strerror(errno));
  return file;
}

std::string read_back(std::FILE* file) {
  std::string text;
  char block[4096];
  std::rewind(file);
  while (const size_t count = std::fread(block, 1, sizeof block, file)) text.append(block, count);
  return text;
}

// A started program, killed and waited for if nobody did.
class Child {
 public:
  // With an empty standard input, a pipe as output and the descriptor `err`.
  Child(const std::string& program, const std::vector<std::string>& arguments, int err) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) {
      fail(ErrorKind::kResource, "cannot create a pipe: ", std::strerror(errno));
    }
    output_ = pipe[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    const int error = start(program, arguments, &actions);
    posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    if (error != 0) ::close(output_);
    require_start(error);
  }
  // With the streams of this process.
  Child(const std::string& program, const std::vector<std::string>& arguments) {
    require_start(start(program, arguments, nullptr));
  }
  ~Child() {
    if (output_ >= 0) ::close(output_);
    if (process_ < 0) return;
    send(SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int output() const { return output_; }
  void send(int signal) { ::kill(process_, signal); }

  // Waits for the end; where a signal comes meanwhile `interrupted` is called.
  int wait(FunctionRef<void()> interrupted) {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0) {
      if (errno != EINTR) fail(ErrorKind::kResource, "cannot wait for it: ", std::strerror(errno));
      interrupted();
    }
    process_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  // Returns 0 or an error.
  int start(const std::string& program, const std::vector<std::string>& arguments,
            const posix_spawn_file_actions_t* actions) {
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& text : arguments) argv.push_back(const_cast<char*>(text.c_str()));
    argv.push_back(nullptr);
    return ::posix_spawn(&process_, program.c_str(), actions, nullptr, argv.data(), environ);
  }
  static void require_start(int error) {
    if (error == 0) return;
    const bool is_missing =
        error != EAGAIN && error != ENOMEM && error != EMFILE && error != ENFILE;
    fail(is_missing ? ErrorKind::kMissing : ErrorKind::kResource,
         "cannot start it: ", std::strerror(error));
  }

  pid_t process_ = -1;
  int output_ = -1;
};

// Reads until the program closes its output; false if a signal came first.
bool collect_output(const Child& child, uint64_t max_output, SignalWatch& signals,
                    std::string& out) {
  char block[16384];
  for (;;) {
    const SignalWatch::Wait wait = signals.wait_readable(child.output());
    if (wait == SignalWatch::Wait::kSignal) return false;
    if (wait == SignalWatch::Wait::kResized) continue;
    const ssize_t count = ::read(child.output(), block, sizeof block);
    if (count == 0) return true;
    if (count < 0) {
      if (errno == EINTR) continue;
      fail(ErrorKind::kIo, "cannot read its output: ", std::strerror(errno));
    }
    out.append(block, static_cast<size_t>(count));
    if (out.size() > max_output) {
      fail(ErrorKind::kMalformed, "its output is longer than ", max_output, " bytes");
    }
  }
}

}  // namespace

ChildOutcome run_child(const std::string& program, const std::vector<std::string>& arguments,
                       uint64_t max_output, SignalWatch& signals) {
  const ScratchFile err = make_scratch_file();
  return with_context(quoted(program), [&] {
    Child child(program, arguments, ::fileno(err.get()));
    ChildOutcome outcome;
    if (!collect_output(child, max_output, signals, outcome.out)) child.send(SIGTERM);
    outcome.exit_code = child.wait([&] {
      if (*signals.stop_flag()) child.send(SIGKILL);
    });
    outcome.stopped = *signals.stop_flag();
    outcome.err = read_back(err.get());
    return outcome;
  });
}

int run_at_terminal(const std::string& program, const std::vector<std::string>& arguments,
                    SignalWatch& signals) {
  return with_context(quoted(program), [&] {
    Child child(program, arguments);
    const int exit_code = child.wait([&] {
      if (signals.termination() != 0) child.send(SIGTERM);
    });
    signals.take_interrupt();
    return exit_code;
  });
}

}  // namespace lumen::runtime
