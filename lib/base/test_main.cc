// The main of every test program: runs Catch2 and closes with "room: N passed, N failed, N
// skipped".
#define CATCH_CONFIG_RUNNER
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "lib/base/testing.h"

// In place of the C library's: no file of a test program has to outlast a power cut, and waiting
// for the disk would take most of the time of rooms that write models. The tools that tests start
// have the real one.
extern "C" int fsync(int fd) {
  return ::fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

namespace lumen::testing {
namespace {

struct Tally {
  int passed = 0, failed = 0;
  std::string current;
  std::map<std::string, std::string> skipped;  // test name → why
};
Tally tally;

std::filesystem::path temporary_root() {
  return std::filesystem::temp_directory_path() / ("lumen-test-" + std::to_string(getpid()));
}

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

class Listener : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo& info) override { tally.current = info.name; }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    const bool ok = stats.totals.assertions.allOk() && stats.totals.testCases.failed == 0;
    const bool skipped = tally.skipped.count(tally.current) > 0;
    if (!ok) ++tally.failed;
    if (ok && !skipped) ++tally.passed;
  }
};

}  // namespace

std::string source_path(const std::string& relative) {
  const char* root = std::getenv("LUMEN_SOURCE_DIR");
  return (std::filesystem::path(root ? root : ".") / relative).string();
}

std::string shared_data(const std::string& relative) {
  const char* root = std::getenv("LUMEN_SHARED");
  const std::filesystem::path path =
      (root ? std::filesystem::path(root) : std::filesystem::path(source_path("../shared/data"))) /
      relative;
  if (std::filesystem::exists(path)) return path.string();
  skip("needs shared data " + relative);
  return "";
}

void skip(const std::string& why) {
  tally.skipped[tally.current] = why;
}

std::string temporary_directory() {
  static int number = 0;
  auto path = temporary_root() / std::to_string(number++);
  std::filesystem::create_directories(path);
  return path.string();
}

}  // namespace lumen::testing

using lumen::testing::Listener;
CATCH_REGISTER_LISTENER(Listener)

int main(int argc, char** argv) {
  using lumen::testing::tally;
  const int result = Catch::Session().run(argc, argv);
  std::error_code ignored;
  std::filesystem::remove_all(lumen::testing::temporary_root(), ignored);
  for (const auto& [name, why] : tally.skipped) {
    std::cout << "skipped: " << name << ": " << why << "\n";
  }
  std::cout << std::filesystem::path(argv[0]).filename().string() << ": " << tally.passed
            << " passed, " << tally.failed << " failed, " << tally.skipped.size() << " skipped\n";
  return result;
}
