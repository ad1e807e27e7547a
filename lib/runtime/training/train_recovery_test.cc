// Training runs that are killed, get signals, diverge, or find their checkpoints damaged or the
// disk full: what is saved stays good, and they go on to the same bits.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "lib/io/checkpoint.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/training/fake_task.h"
#include "lib/runtime/training/train_place.h"
#include "lib/runtime/training/train_process.h"

namespace lumen::runtime {
namespace {

namespace fs = std::filesystem;
using io::Json;
using lumen::testing::contains;
using testing::check_same_result;
using testing::fake_factory;
using testing::FakeOptions;
using testing::Place;
using testing::require_error;
using testing::TrainOutcome;
using testing::TrainProcess;
using testing::undisturbed;

TEST_CASE("killed at every point of the protocol, a run goes on to the same bits") {
  const Place whole(Place::kShort);
  REQUIRE(whole.run().exit_code == 0);
  std::vector<std::string> points = {"metrics", "exported", "step:1", "step:9", "step:16"};
  for (const std::string_view point : io::kCommitPoints) points.push_back(str(point, ":2"));
  points.emplace_back("committed:5");  // the last, before older ones are removed
  for (const std::string& point : points) {
    CAPTURE(point);
    const Place place(Place::kShort);
    const TrainOutcome killed = place.run("auto", {}, point);
    CAPTURE(killed.err);
    REQUIRE(killed.signal == SIGKILL);
    const TrainOutcome resumed = place.run("auto");
    CAPTURE(resumed.err);
    REQUIRE(resumed.exit_code == 0);
    check_same_result(place, whole);
    CHECK(place.checkpoints() == whole.checkpoints());
    for (const auto& item : fs::recursive_directory_iterator(place.root + "/out")) {
      const std::string name = item.path().filename().string();
      CAPTURE(name);
      CHECK((!name.starts_with(".") || name == ".lock"));
    }
  }
}

TEST_CASE("killed again and again at random moments, a run ends with the same bits") {
  std::mt19937 random(7);
  FakeOptions slow;
  slow.step_milliseconds = 1;
  int all_kills = 0;
  for (int round = 0; round < 6; ++round) {
    const Place place;
    int kills = 0;
    for (;; ++kills) {
      TrainProcess process(place.options("auto"), fake_factory(slow));
      const auto most = 20'000 + 3000 * static_cast<unsigned>(kills);
      std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % most));
      process.send(SIGKILL);
      if (process.finish().exit_code == 0) break;
      REQUIRE(kills < 200);
    }
    CAPTURE(kills);
    check_same_result(place, undisturbed());
    all_kills += kills;
  }
  CHECK(all_kills >= 6);
}

TEST_CASE("SIGINT and SIGTERM save and end, and the run goes on to the same bits") {
  for (const int number : {SIGINT, SIGTERM}) {
    const Place place;
    FakeOptions stops;
    stops.before_step = [number](int64_t step) {
      if (step == 17) ::raise(number);
    };
    TrainOptions options = place.options();
    options.json = true;
    const TrainOutcome stopped = TrainProcess(options, fake_factory(stops)).finish();
    CAPTURE(stopped.err);
    REQUIRE(stopped.exit_code == 128 + number);
    CHECK(contains(stopped.err, "--resume auto"));
    CHECK(Json::parse(stopped.out)["steps"] == 18);
    CHECK(place.checkpoints().front() == 18);
    CHECK_FALSE(fs::exists(place.out("model.safetensors")));
    REQUIRE(place.run("auto").exit_code == 0);
    check_same_result(place, undisturbed());
  }
}

TEST_CASE("a signal while the data are read ends at once and leaves nothing new") {
  for (const int number : {SIGINT, SIGTERM}) {
    const TaskFactory stops = [number](const Recipe& recipe, const TaskOptions& options) {
      ::raise(number);
      return fake_factory()(recipe, options);
    };
    const Place place;
    const TrainOutcome stopped = TrainProcess(place.options(), stops).finish();
    CHECK(stopped.exit_code == 128 + number);
    CHECK(stopped.signal == 0);
    CHECK_FALSE(fs::exists(place.root + "/out"));
    REQUIRE(place.run().exit_code == 0);
    CHECK(TrainProcess(place.options("auto"), stops).finish().exit_code == 128 + number);
    check_same_result(place, undisturbed());
  }
}

TEST_CASE("a second signal ends at once, with the old checkpoints intact") {
  const Place place;
  FakeOptions stops;
  stops.before_step = [](int64_t step) {
    if (step == 17) ::raise(SIGTERM), ::raise(SIGINT);
  };
  CHECK(place.run("", stops).exit_code == 130);
  CHECK(place.checkpoints() == std::vector<int64_t>{14, 10});
  REQUIRE(place.run("auto").exit_code == 0);
  check_same_result(place, undisturbed());
}

TEST_CASE("a closed terminal does not end a run") {
  const Place place;
  FakeOptions hangs_up;
  hangs_up.before_step = [](int64_t step) {
    if (step == 5) ::raise(SIGHUP), ::close(STDERR_FILENO);
  };
  CHECK(place.run("", hangs_up).exit_code == 0);
  check_same_result(place, undisturbed());
}

TEST_CASE("a loss that is not finite for some steps ends the run, and the good checkpoint stays") {
  const Place place;
  FakeOptions diverges;
  diverges.nan_from = 16;
  diverges.nan_until = 1000;
  const TrainOutcome ended = place.run("", diverges);
  require_error(ended, 76, "step-14");
  CHECK(contains(ended.err, "the last step is 19, with lr "));
  CHECK(contains(ended.err,
                 ": its loss is NaN, the first gradient that is not finite is of 'line.weight', it "
                 "read the training samples 4, 7 (from 0); "));
  CHECK(place.checkpoints().front() == 14);
  CHECK(io::verify_checkpoint(place.out("checkpoints/step-14")).empty());
  const auto rows = place.metrics();
  CHECK(rows.size() == 19);
  CHECK(rows.back()["loss"].is_null());
  REQUIRE(place.run("auto").exit_code == 0);
  check_same_result(place, undisturbed());

  const Place early;  // before any checkpoint
  diverges.nan_from = 0;
  require_error(early.run("", diverges), 76, "there is no good checkpoint");

  const Place unproved;  // the weights of step 14 were never seen to work
  diverges.nan_from = 14;
  require_error(unproved.run("", diverges), 76, "step-10");
  CHECK(unproved.checkpoints() == std::vector<int64_t>{10, 7});
  REQUIRE(unproved.run("auto").exit_code == 0);
  check_same_result(unproved, undisturbed());

  const Place hiccup;  // two in a row are skipped and counted
  diverges.nan_from = 16;
  diverges.nan_until = 18;
  TrainOptions options = hiccup.options();
  options.json = true;
  const TrainOutcome outcome = TrainProcess(options, fake_factory(diverges)).finish();
  REQUIRE(outcome.exit_code == 0);
  CHECK(Json::parse(outcome.out)["skipped_steps"] == 2);
}

TEST_CASE("what goes wrong in the last steps is found before they are kept or exported") {
  const auto check = [](const FakeOptions& fake, const char* kept, bool evaluates) {
    const Place place("[train]\nsteps = 20\n[checkpoint]\nevery = 1\nkeep_best = 0\n");
    FakeOptions options = fake;
    options.evaluates = evaluates;
    CAPTURE(fake.nan_from, fake.ruin_at, fake.burst_at, evaluates);
    require_error(place.run("", options), 76, kept);
    CHECK(contains("checkpoints/step-" + str(place.checkpoints().front()), kept));
    CHECK(place.checkpoints().size() >= 2);
    CHECK_FALSE(fs::exists(place.out("model.safetensors")));
    CHECK(place.metrics().back()["step"] == 20);
  };
  for (const bool evaluates : {false, true}) {
    FakeOptions fake;
    fake.nan_from = 18;
    fake.nan_until = 20;
    check(fake, "step-17", evaluates);  // that of step 18 was never seen to work
    fake.ruin_at = 17;
    check(fake, "step-17", evaluates);
    fake = {};
    fake.ruin_at = 19;
    check(fake, "step-19", evaluates);
    fake = {};
    fake.burst_at = 19;
    check(fake, "step-19", evaluates);
  }
}

TEST_CASE("a signal while steps fail keeps what was saved before") {
  const Place place;
  FakeOptions stops;
  stops.nan_from = 15;
  stops.nan_until = 17;
  stops.before_step = [](int64_t step) {
    if (step == 16) ::raise(SIGTERM);
  };
  REQUIRE(place.run("", stops).exit_code == 143);
  CHECK(place.checkpoints() == std::vector<int64_t>{14, 10});
  REQUIRE(place.run("auto").exit_code == 0);
  check_same_result(place, undisturbed());
}

TEST_CASE("a signal ends an evaluation or texts, which are made when the run goes on") {
  const std::string text =
      "[model]\ntype = \"lstm\"\n[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = "
      "\"x.txt\"\n[train]\nsteps = 20\n[eval]\nevery = 10\n[checkpoint]\nevery = 7\n"
      "[log.samples]\nprompts = [\"Once\"]\n[schedule]\ntype = \"plateau\"\npatience = 0\n"
      "threshold = 1\n[export]\nweights = \"best\"\n";
  const auto write = [&](const Place& place) { std::ofstream(place.root + "/r.toml") << text; };
  const Place whole;
  write(whole);
  REQUIRE(whole.run().exit_code == 0);
  for (const int64_t step : {10, 20}) {
    for (auto FakeOptions::*moment : {&FakeOptions::in_evaluation, &FakeOptions::in_sample}) {
      const Place place;
      write(place);
      FakeOptions stops;
      stops.*moment = [step](int64_t now) {
        if (now == step) ::raise(SIGTERM);
      };
      const TrainOutcome stopped = place.run("", stops);
      CAPTURE(step, stopped.err);
      REQUIRE(stopped.exit_code == 143);
      CHECK(place.checkpoints().front() == step);
      CHECK(place.metrics().size() == static_cast<size_t>(step) - 1);
      // Killed behind the evaluation, it makes it once more.
      REQUIRE(place.run("auto", {}, "step").signal == SIGKILL);
      const TrainOutcome resumed = place.run("auto");
      CAPTURE(resumed.err);
      REQUIRE(resumed.exit_code == 0);
      check_same_result(place, whole);
      CHECK(place.read("samples.jsonl") == whole.read("samples.jsonl"));
      CHECK(place.checkpoints() == whole.checkpoints());
      for (const Json& row : place.metrics()) CHECK(row.contains("samples_per_second"));
    }
  }
}

TEST_CASE("texts of a run that has nothing to evaluate on do not depend on where it went on") {
  const auto write = [](const Place& place) {
    std::ofstream(place.root + "/r.toml")
        << "[model]\ntype = \"lstm\"\n[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = "
           "\"x.txt\"\n[train]\nsteps = 20\n[eval]\nevery = 6\n[checkpoint]\nevery = 7\n"
           "[log.samples]\nprompts = [\"Once\"]\n";
  };
  FakeOptions nothing;
  nothing.evaluates = false;
  const Place whole, killed;
  write(whole), write(killed);
  REQUIRE(whole.run("", nothing).exit_code == 0);
  const std::string texts = whole.read("samples.jsonl");
  CHECK(std::count(texts.begin(), texts.end(), '\n') == 4);
  REQUIRE(killed.run("", nothing, "step:8").signal == SIGKILL);
  REQUIRE(killed.run("auto", nothing).exit_code == 0);
  CHECK(killed.read("samples.jsonl") == texts);
}

void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-3, std::ios::end);
  file.put('!');
}

TEST_CASE("a damaged checkpoint is passed over with a warning") {
  for (const char* name :
       {"weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    CAPTURE(name);
    const Place place;
    REQUIRE(place.run("", {}, "step:30").signal == SIGKILL);
    // The older ones wait for the step that shows the newest to be good.
    REQUIRE(place.checkpoints() == std::vector<int64_t>{30, 28, 21, 20});
    damage(place.out("checkpoints/step-30/") + name);
    const TrainOutcome outcome = place.run("auto");
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK(contains(outcome.err, "warning: " + place.out("checkpoints/step-30")));
    CHECK(contains(outcome.err, "; that checkpoint is passed over"));
    CHECK(contains(outcome.err, "going on from step 28"));
    check_same_result(place, undisturbed());
  }
  const Place place;
  REQUIRE(place.run("", {}, "step:30").signal == SIGKILL);
  for (const char* step : {"step-30", "step-28", "step-21", "step-20"}) {
    damage(place.out("checkpoints/") + step + "/weights.safetensors");
  }
  require_error(place.run("auto"), 65, "no checkpoint is whole");
  require_error(place.run(place.out("checkpoints/step-30")), 65, "weights.safetensors");
}

TEST_CASE("a damaged checkpoint is none of those that are kept") {
  const Place place;
  REQUIRE(place.run("", {}, "step:30").signal == SIGKILL);
  REQUIRE(place.checkpoints() == std::vector<int64_t>{30, 28, 21, 20});
  // The newest, and the best: neither the one before it nor the second best is removed in its
  // place.
  damage(place.out("checkpoints/step-30/weights.safetensors"));
  TrainOptions options = place.options("auto");
  options.overrides = {"checkpoint.every=4", "eval.every=100"};
  const TrainOutcome outcome =
      TrainProcess(options, fake_factory({}), {.kill_at = "step:6"}).finish();
  CAPTURE(outcome.err);
  REQUIRE(outcome.signal == SIGKILL);
  CHECK(place.checkpoints() == std::vector<int64_t>{32, 28, 20});
}

TEST_CASE("a checkpoint without a readable manifest goes once a newer one is whole") {
  const Place place;
  REQUIRE(place.run("", {}, "step:30").signal == SIGKILL);
  damage(place.out("checkpoints/step-30/manifest.json"));
  fs::resize_file(place.out("checkpoints/step-21/manifest.json"), 0);
  fs::remove(place.out("checkpoints/step-20/manifest.json"));
  std::ofstream(place.out("checkpoints/step-20/notes.txt")) << "mine";
  fs::create_directory(place.out("checkpoints/step-99"));  // newer than what will be whole
  const TrainOutcome outcome = place.run("auto", {}, "step:9");
  CAPTURE(outcome.err);
  REQUIRE(outcome.signal == SIGKILL);
  CHECK(contains(outcome.err, "step-21/manifest.json: the file is empty"));
  CHECK(contains(outcome.err, "this checkpoint is removed, a newer one is whole"));
  // Of step 20, which a file stands in that is no checkpoint's, nothing is removed.
  CHECK(io::names_in(place.out("checkpoints")) ==
        std::vector<std::string>{"step-20", "step-30", "step-35", "step-99"});
}

TEST_CASE("where the best checkpoint is damaged, the last weights are exported") {
  const Place place(std::string(Place::kUsual) + "[export]\nweights = \"best\"\n");
  FakeOptions stays;
  stays.learns = false;  // so that the first evaluation is the best
  REQUIRE(place.run("", stays, "step:38").signal == SIGKILL);
  REQUIRE(place.checkpoints().back() == 10);
  damage(place.out("checkpoints/step-10/weights.safetensors"));
  const TrainOutcome outcome = place.run("auto", stays);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "warning: there is no best checkpoint"));
  CHECK(fs::exists(place.out("model.safetensors")));
}

TEST_CASE("without room for the last checkpoint the result, which takes less, is written") {
  const Place place;
  FakeOptions wide;
  wide.size = 2000;
  wide.spare = 5000;
  REQUIRE(place.run("", wide, "step:16").signal == SIGKILL);
  const auto before = place.checkpoints();
  const TrainOutcome outcome =
      TrainProcess(place.options("auto"), fake_factory(wide), {.file_limit = 12'000}).finish();
  require_error(outcome, 74, "the last good one is " + place.out("checkpoints/step-14"));
  CHECK(contains(outcome.err, "; what was trained is in "));
  CHECK(place.checkpoints() == before);
  const std::string result = io::read_file(place.out("model.safetensors"), 1'000'000);
  REQUIRE(place.run("auto", wide).exit_code == 0);
  CHECK(io::read_file(place.out("model.safetensors"), 1'000'000) == result);
}

TEST_CASE("a full disk is said in one sentence and leaves the good checkpoints") {
  const Place place;
  FakeOptions large;
  large.size = 5000;
  REQUIRE(place.run("", large, "step:16").signal == SIGKILL);
  const auto before = place.checkpoints();
  REQUIRE(before.front() == 14);
  const TrainOutcome outcome =
      TrainProcess(place.options("auto"), fake_factory(large), {.file_limit = 12'000}).finish();
  require_error(outcome, 74, "the last good one is " + place.out("checkpoints/step-14"));
  CHECK(contains(outcome.err, "warning: the checkpoint of step 20 was not saved"));
  CHECK(place.checkpoints() == before);
  CHECK(io::verify_checkpoint(place.out("checkpoints/step-14")).empty());
  CHECK_FALSE(fs::exists(place.out("model.safetensors")));
  REQUIRE(place.run("auto", large).exit_code == 0);
  const Place whole;
  REQUIRE(whole.run("", large).exit_code == 0);
  check_same_result(place, whole);
}

TEST_CASE("SIGUSR1 saves, and the run goes on") {
  const Place place("[train]\nsteps = 9\n[checkpoint]\nevery = 0\n");
  FakeOptions asked;
  asked.before_step = [](int64_t step) {
    if (step == 4) ::raise(SIGUSR1);
  };
  REQUIRE(place.run("", asked).exit_code == 0);
  CHECK(place.checkpoints() == std::vector<int64_t>{9, 5});
}

TEST_CASE("a place that takes no checkpoints is noticed before the data are read") {
  const TaskFactory unread = [](const Recipe&, const TaskOptions&) -> std::unique_ptr<TrainTask> {
    fail(ErrorKind::kInternal, "the data were read");
  };
  const Place place(Place::kShort);
  fs::create_directories(place.root + "/out");
  const auto run = [&](bool force) {
    TrainOptions options = place.options();
    options.force = force;
    return TrainProcess(options, force ? fake_factory({}) : unread).finish();
  };
  std::ofstream(place.out("checkpoints")).close();
  require_error(run(false), 73, "out/checkpoints: making the directory failed: ");
  CHECK(run(true).exit_code == 0);  // which takes it away
  CHECK(fs::is_directory(place.out("checkpoints")));
  if (::geteuid() == 0) return;  // to whom everything is writable
  fs::permissions(place.out("checkpoints"), fs::perms::owner_read | fs::perms::owner_exec);
  require_error(TrainProcess(place.options("auto"), unread).finish(), 73,
                "out/checkpoints/.writing-trial: making the directory failed: ");
  fs::permissions(place.out("checkpoints"), fs::perms::owner_all);
}

}  // namespace
}  // namespace lumen::runtime
