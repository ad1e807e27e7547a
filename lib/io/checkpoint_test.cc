#include "lib/io/checkpoint.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

namespace fs = std::filesystem;
using lumen::testing::contains;
using lumen::testing::refusal;

Checkpoint example(int64_t step, float value = 1.5f) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  const std::vector<float> numbers = {value, 2, 3, 4, 5, 6};
  checkpoint.weights = {{"a", Array::from<float>(numbers, {2, 3})},
                        {"b.weight", Array::from<float>(numbers, {6})}};
  const std::vector<int64_t> count = {step};
  checkpoint.optimizer = {{"step", Array::from<int64_t>(count, {})}};
  checkpoint.state = {{"cursor", {{"epoch", 3}}}, {"x", 0.1}};
  checkpoint.about = {{"value", 0.25}};
  return checkpoint;
}

void check_equal(const Checkpoint& a, const Checkpoint& b) {
  CHECK(a.step == b.step);
  CHECK(a.state == b.state);
  CHECK(a.about == b.about);
  for (const auto& [left, right] :
       {std::pair(&a.weights, &b.weights), std::pair(&a.optimizer, &b.optimizer)}) {
    REQUIRE(left->size() == right->size());
    for (const auto& [name, array] : *left) {
      const Array& other = right->at(name);
      REQUIRE(other.shape() == array.shape());
      CHECK(std::equal(array.data(), array.data() + array.bytes(), other.data()));
    }
  }
}

TEST_CASE("a checkpoint reads back as it was written") {
  const std::string directory = lumen::testing::temporary_directory() + "/checkpoints";
  std::vector<std::string> points;
  const std::string path = write_checkpoint(
      directory, example(500), [&](std::string_view point) { points.emplace_back(point); });
  CHECK(path == directory + "/step-500");
  CHECK(points ==
        std::vector<std::string>(std::begin(kCommitPoints), std::begin(kCommitPoints) + 8));
  check_equal(read_checkpoint(path), example(500));
  CHECK(verify_checkpoint(path).empty());
  CHECK(read_manifest(path).about["value"] == 0.25);
  int files = 0;
  for ([[maybe_unused]] const auto& item : fs::recursive_directory_iterator(directory)) ++files;
  CHECK(files == 5);

  Checkpoint bare = example(7);  // an optimizer without state
  bare.optimizer.clear();
  check_equal(read_checkpoint(write_checkpoint(directory, bare)), bare);
  write_checkpoint(directory, example(7, 9));  // the same step again
  check_equal(read_checkpoint(directory + "/step-7"), example(7, 9));
}

TEST_CASE("checkpoints are listed newest first by number, and only whole names count") {
  const std::string directory = lumen::testing::temporary_directory();
  CHECK(list_checkpoints(directory + "/none").empty());
  for (const int64_t step : {9, 100, 20}) write_checkpoint(directory, example(step));
  for (const char* name : {"step-", "step-x", "step-007", "other", ".writing-step-3"}) {
    fs::create_directory(directory + "/" + name);
  }
  fs::create_directory(directory + "/step-300");
  std::vector<std::string> damaged;
  const auto entries = list_checkpoints(directory, &damaged);
  REQUIRE(entries.size() == 3);
  CHECK(entries[0].step == 100);
  CHECK(entries[2].step == 9);
  REQUIRE(damaged.size() == 1);
  CHECK(contains(damaged[0], "step-300"));
  clean_checkpoints(directory);
  CHECK_FALSE(fs::exists(directory + "/.writing-step-3"));
  CHECK(fs::exists(directory + "/other"));
  remove_checkpoint(directory + "/step-100");
  CHECK(list_checkpoints(directory).size() == 2);
}

TEST_CASE("what is no checkpoint any more is told from what may be good for somebody") {
  const std::string directory = lumen::testing::temporary_directory();
  const auto with_manifest = [&](int64_t step, const std::string& text) {
    std::ofstream(write_checkpoint(directory, example(step)) + "/manifest.json") << text;
  };
  const std::string good =
      read_file(write_checkpoint(directory, example(1)) + "/manifest.json", 1 << 20);
  with_manifest(2, "");
  with_manifest(3, std::string(good.size(), '\0'));
  with_manifest(4, good.substr(0, good.size() / 2));
  with_manifest(5, "[]");
  with_manifest(6, R"({"format": 1, "step": 6})");
  fs::remove(write_checkpoint(directory, example(7)) + "/manifest.json");
  fs::create_directory(directory + "/step-8");
  const std::vector<int64_t> broken = {2, 3, 4, 5, 6, 7, 8};
  with_manifest(10, good);                            // a copy of step 1
  with_manifest(11, R"({"format": 2, "step": 11})");  // of a version to come
  with_manifest(12, "");
  std::ofstream(directory + "/step-12/notes.txt") << "mine";
  with_manifest(13, "");
  fs::create_directory(directory + "/step-13/more");
  fs::create_directory_symlink(directory + "/step-2", directory + "/step-14");
  std::ofstream(directory + "/step-15") << "a file";
  write_checkpoint(directory, example(16));
  fs::remove(directory + "/step-16/manifest.json");
  fs::create_symlink(directory + "/none", directory + "/step-16/manifest.json");
  std::vector<int64_t> found;
  for (const BrokenCheckpoint& one : broken_checkpoints(directory)) {
    CHECK(contains(one.problem, str("step-", one.step, "/manifest.json")));
    found.push_back(one.step);
  }
  std::sort(found.begin(), found.end());
  CHECK(found == broken);
}

TEST_CASE("damage of any byte, a shorter file and a missing file are noticed") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::string path = write_checkpoint(directory, example(5));
  for (const char* name :
       {"weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    CAPTURE(name);
    const std::string file = path + "/" + name;
    const std::string content = read_file(file, 1 << 20);
    const auto broken = [&](const std::string& other) {
      std::ofstream(file, std::ios::binary | std::ios::trunc) << other;
      return !verify_checkpoint(path).empty();
    };
    int unnoticed = 0;
    for (size_t i = 0; i < content.size(); i += 3) {
      std::string other = content;
      other[i] = static_cast<char>(other[i] ^ 0x41);
      if (!broken(other)) ++unnoticed;
    }
    // In the manifest "about" and the space between tokens have no hash of their own.
    CHECK(unnoticed <= (std::string(name) == "manifest.json" ? 20 : 0));
    CHECK(broken(content.substr(0, content.size() - 10)));
    CHECK(broken(content + "x"));
    fs::remove(file);
    CHECK_FALSE(verify_checkpoint(path).empty());
    CHECK_THROWS_AS(read_checkpoint(path), Error);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    CHECK(verify_checkpoint(path).empty());
  }
  fs::rename(path, directory + "/step-6");
  CHECK(contains(verify_checkpoint(directory + "/step-6"), "it says step 5"));
}

TEST_CASE("a process killed at any point of the protocol leaves only whole checkpoints") {
  for (const std::string_view at : kCommitPoints) {
    CAPTURE(at);
    const std::string directory = lumen::testing::temporary_directory() + "/c";
    write_checkpoint(directory, example(1));
    const pid_t process = ::fork();
    if (process == 0) {
      const auto kill_at = [&](std::string_view point) {
        if (point == at) ::raise(SIGKILL);
      };
      write_checkpoint(directory, example(2), kill_at);
      remove_checkpoint(directory + "/step-1", kill_at);
      _exit(0);
    }
    int status = 0;
    ::waitpid(process, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    std::vector<std::string> damaged;
    const auto entries = list_checkpoints(directory, &damaged);
    CHECK(damaged.empty());
    REQUIRE(entries.size() >= 1);
    for (const auto& entry : entries) {
      check_equal(read_checkpoint(entry.path), example(entry.step));
    }
    const bool announced = at == "committed" || at == "prune-hidden" || at == "pruned";
    if (announced || at == "renamed") CHECK(entries[0].step == 2);
    clean_checkpoints(directory);
    for (const auto& item : fs::directory_iterator(directory)) {
      CHECK(item.path().filename().string().starts_with("step-"));
    }
    check_equal(read_checkpoint(write_checkpoint(directory, example(2))), example(2));
  }
}

TEST_CASE("a process killed while it replaces a checkpoint leaves the one or the other") {
  for (const std::string_view at : {"directory", "replaced", "renamed", "committed"}) {
    CAPTURE(at);
    const std::string directory = lumen::testing::temporary_directory() + "/c";
    write_checkpoint(directory, example(1));
    const pid_t process = ::fork();
    if (process == 0) {
      write_checkpoint(directory, example(1, 9), [&](std::string_view point) {
        if (point == at) ::raise(SIGKILL);
      });
      _exit(0);
    }
    int status = 0;
    ::waitpid(process, &status, 0);
    REQUIRE(WIFSIGNALED(status));
    clean_checkpoints(directory);
    const bool is_new = at == "renamed" || at == "committed";
    check_equal(read_checkpoint(directory + "/step-1"), example(1, is_new ? 9 : 1.5f));
    CHECK(std::distance(fs::directory_iterator(directory), fs::directory_iterator()) == 1);
  }
}

TEST_CASE("a directory that cannot be written is said so, and nothing is left behind") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/file") << "x";
  refusal(ErrorKind::kCannotCreate, [&] { write_checkpoint(directory + "/file", example(1)); });
  refusal(ErrorKind::kCannotCreate, [&] { write_checkpoint(directory + "/a/b", example(1)); });
  write_checkpoint(directory, example(1));
  Checkpoint bad = example(2);
  bad.weights["q"] = Array::zeros(DType::kQ8_0, {32});  // safetensors has no such type
  CHECK_THROWS_AS(write_checkpoint(directory, bad), Error);
  CHECK(list_checkpoints(directory).size() == 1);
  CHECK_FALSE(fs::exists(directory + "/.writing-step-2"));
}

}  // namespace
}  // namespace lumen::io
