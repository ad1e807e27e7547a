// lumen-train's verb in a child process of the test, with a stand-in for the task.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "lib/base/testing.h"
#include "lib/runtime/tool.h"
#include "lib/runtime/train.h"

namespace lumen::runtime::testing {

struct TrainOutcome {
  int exit_code = -1;  // or −1
  int signal = 0;      // that killed it, or 0
  std::string out, err;
};

struct TrainSetting {
  std::string kill_at = "";     // LUMEN_TEST_KILL_AT
  uint64_t file_limit = 0;      // no file may grow beyond so many bytes; 0: any
  std::string error_file = "";  // instead of a file of its own: a terminal
};

class TrainProcess {
 public:
  TrainProcess(const TrainOptions& options, const TaskFactory& make,
               const TrainSetting& setting = {})
      : directory_(lumen::testing::temporary_directory()) {
    process_ = ::fork();
    if (process_ != 0) return;
    redirect(directory_ + "/out", STDOUT_FILENO);
    redirect(setting.error_file.empty() ? directory_ + "/err" : setting.error_file, STDERR_FILENO);
    ::setenv("LUMEN_TEST_KILL_AT", setting.kill_at.c_str(), 1);
    if (setting.file_limit > 0) {
      const rlimit limit = {setting.file_limit, setting.file_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    _exit(run_tool("lumen-train", [&] { return train(options, make); }));
  }
  ~TrainProcess() {
    if (process_ > 0) finish();
  }
  TrainProcess(const TrainProcess&) = delete;
  TrainProcess& operator=(const TrainProcess&) = delete;

  pid_t id() const { return process_; }
  void send(int signal) { ::kill(process_, signal); }

  TrainOutcome finish() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    TrainOutcome outcome;
    if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    outcome.out = read(directory_ + "/out");
    outcome.err = read(directory_ + "/err");
    return outcome;
  }

  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  static void redirect(const std::string& path, int descriptor) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(fd, descriptor);
    ::close(fd);
  }

  std::string directory_;
  pid_t process_ = -1;
};

}  // namespace lumen::runtime::testing
