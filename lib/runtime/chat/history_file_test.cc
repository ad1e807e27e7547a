#include "lib/runtime/chat/history_file.h"

#include <sys/stat.h>

#include <fstream>

#include "lib/base/testing.h"

namespace lumen::runtime {
namespace {

TEST_CASE("history is kept across sessions, for its owner only") {
  const std::string path = lumen::testing::temporary_directory() + "/state/lumen/history";
  const HistoryFile history(path);
  REQUIRE(history.load().empty());
  history.append("one");
  history.append("two\nlines \"\u20ac\"");
  REQUIRE(HistoryFile(path).load() == std::vector<std::string>{"one", "two\nlines \"\u20ac\""});
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  REQUIRE((status.st_mode & 0777) == 0600);
}

TEST_CASE("a long history is cut to its newest entries") {
  const std::string path = lumen::testing::temporary_directory() + "/history";
  {
    std::ofstream file(path);
    for (int i = 0; i < 3000; ++i) file << "\"" << i << "\"\n";
  }
  for (int round = 0; round < 2; ++round) {
    const auto entries = HistoryFile(path).load();
    REQUIRE(entries.size() == HistoryFile::kEntries);
    REQUIRE(entries.back() == "2999");
  }
  std::ifstream file(path);
  REQUIRE(std::count(std::istreambuf_iterator<char>(file), {}, '\n') == HistoryFile::kEntries);
}

TEST_CASE("a damaged or unwritable history does no harm") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/history") << "garbage\n\"good\"\n{\n";
  REQUIRE(HistoryFile(directory + "/history").load() == std::vector<std::string>{"good"});
  const HistoryFile nowhere("/proc/no/such/history");
  nowhere.append("x");
  REQUIRE(nowhere.load().empty());
  HistoryFile("").append("x");
  const std::string fifo = directory + "/fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  HistoryFile(fifo).append("x");  // and does not wait for a reader
  REQUIRE(HistoryFile(fifo).load().empty());
}

}  // namespace
}  // namespace lumen::runtime
