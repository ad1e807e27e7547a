// For tests: a recipe of a stand-in task, its runs, and how their results are compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "lib/base/testing.h"
#include "lib/io/checkpoint.h"
#include "lib/io/json.h"
#include "lib/runtime/training/fake_task.h"
#include "lib/runtime/training/train_process.h"

namespace lumen::runtime::testing {

// A fresh directory, in memory where the system has that: the tests wait for the disk otherwise.
class ShortLivedDirectory {
 public:
  ShortLivedDirectory() {
    std::string name = "/dev/shm/lumen-test-XXXXXX";
    path_ = ::mkdtemp(name.data()) != nullptr ? name : lumen::testing::temporary_directory();
  }
  ~ShortLivedDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ShortLivedDirectory(const ShortLivedDirectory&) = delete;
  ShortLivedDirectory& operator=(const ShortLivedDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A recipe in a fresh directory; the run's own is beside it.
struct Place {
  explicit Place(const std::string& more = "") : root(directory.path()) {
    std::ofstream(root + "/r.toml")
        << "[model]\ntype = \"mlp\"\n[[data.train]]\nformat = \"digits\"\n[optimizer]\nlr = 0.05\n"
        << "[schedule]\ntype = \"cosine\"\nwarmup = 3\n"
        << (more.empty() ? kUsual : more);
  }

  TrainOptions options(const std::string& resume = "") const {
    TrainOptions options;
    options.recipe = root + "/r.toml";
    options.out = root + "/out";
    if (!resume.empty()) options.resume = resume;
    return options;
  }
  TrainOutcome run(const std::string& resume = "", const FakeOptions& fake = {},
                   const std::string& kill_at = "") const {
    return TrainProcess(options(resume), fake_factory(fake), {.kill_at = kill_at}).finish();
  }
  TrainOutcome run_with(const std::vector<std::string>& overrides, const std::string& resume = "",
                        const FakeOptions& fake = {}) const {
    TrainOptions with = options(resume);
    with.overrides = overrides;
    return TrainProcess(with, fake_factory(fake)).finish();
  }
  std::string out(const std::string& name) const { return root + "/out/" + name; }
  std::string read(const std::string& name) const { return TrainProcess::read(out(name)); }
  std::vector<io::Json> metrics() const {
    std::vector<io::Json> rows;
    std::istringstream text(read("metrics.jsonl"));
    for (std::string line; std::getline(text, line);) rows.push_back(io::Json::parse(line));
    return rows;
  }
  std::vector<int64_t> checkpoints() const {
    std::vector<int64_t> steps;
    for (const auto& entry : io::list_checkpoints(out("checkpoints"))) steps.push_back(entry.step);
    return steps;
  }

  static constexpr const char* kShort =
      "[train]\nsteps = 16\n[eval]\nevery = 8\n[checkpoint]\nevery = 5\n";
  static constexpr const char* kUsual =
      "[train]\nsteps = 40\n[eval]\nevery = 10\n[checkpoint]\nevery = 7\n";
  ShortLivedDirectory directory;
  std::string root;
};

inline std::vector<io::Json> without_rates(std::vector<io::Json> rows) {
  for (io::Json& row : rows) row.erase("samples_per_second");
  return rows;
}

// The result of `place` is bit by bit that of a run that nothing happened to.
inline void check_same_result(const Place& place, const Place& undisturbed) {
  CHECK(place.read("model.safetensors") == undisturbed.read("model.safetensors"));
  CHECK(without_rates(place.metrics()) == without_rates(undisturbed.metrics()));
  const auto last = [](const Place& p) {
    return io::read_checkpoint(io::list_checkpoints(p.out("checkpoints")).at(0).path);
  };
  const io::Checkpoint a = last(place), b = last(undisturbed);
  CHECK(a.step == b.step);
  CHECK(a.state["task"] == b.state["task"]);
  CHECK(a.state["schedule"] == b.state["schedule"]);
  for (const auto& [name, array] : b.optimizer) {
    const Array& other = a.optimizer.at(name);
    CHECK(std::equal(array.data(), array.data() + array.bytes(), other.data()));
  }
}

inline const Place& undisturbed() {
  static const Place place;
  static const TrainOutcome outcome = place.run();
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return place;
}

inline void require_error(const TrainOutcome& outcome, int exit_code, const std::string& part) {
  CAPTURE(outcome.err, outcome.signal);
  REQUIRE(outcome.exit_code == exit_code);
  CHECK(outcome.out.empty());
  const size_t last = outcome.err.rfind("lumen-train: error: ");
  REQUIRE(last != std::string::npos);
  CHECK(outcome.err.find('\n', last) == outcome.err.size() - 1);
  CHECK(lumen::testing::contains(outcome.err.substr(last), part));
}

}  // namespace lumen::runtime::testing
