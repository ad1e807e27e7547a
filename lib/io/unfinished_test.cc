#include "lib/io/unfinished.h"

#include <filesystem>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/file_lock.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {

TEST_CASE("what is unfinished when a process ends is removed, and nothing else") {
  const std::string place = testing::temporary_directory(), tree = place + "/tree";
  std::filesystem::create_directories(tree + "/deep");
  std::ofstream(tree + "/deep/file") << "x";
  std::filesystem::create_directory(place + "/empty");
  std::filesystem::create_directory(place + "/filled");
  std::ofstream(place + "/filled/file") << "x";
  const Unfinished of_tree(tree, Unfinished::Kind::kTree);
  const Unfinished of_empty(place + "/empty", Unfinished::Kind::kEmptyDirectory);
  const Unfinished of_filled(place + "/filled", Unfinished::Kind::kEmptyDirectory);
  AtomicFile half(place + "/half"), whole(place + "/whole");
  whole.commit();
  FileLock lock(place + "/lock", "", "", ""), staying(place + "/staying", "", "", "");
  lock.remove_at_end();
  CHECK(names_in(place).size() == 7);
  remove_unfinished();
  CHECK(names_in(place) == std::vector<std::string>{"filled", "staying", "whole"});
  remove_unfinished();  // what is gone is no error
}

}  // namespace lumen::io
