// Training runs as their users meet them: results, files, and that nothing is ever lost. The task
// is a stand-in, each run a process of its own.
#include "lib/runtime/train.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "lib/io/checkpoint.h"
#include "lib/io/safetensors.h"
#include "lib/runtime/tool/tool_process.h"
#include "lib/runtime/training/fake_task.h"
#include "lib/runtime/training/run_directory.h"
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

TEST_CASE("a run leaves the result, metrics and checkpoints") {
  const Place& place = undisturbed();
  CHECK(io::read_safetensors(place.out("model.safetensors"))->tensors.size() == 1);
  CHECK(fs::exists(place.out("config.json")));
  CHECK_FALSE(fs::exists(place.out(".exporting")));
  const std::vector<Json> rows = place.metrics();
  REQUIRE(rows.size() == 40);
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i]["step"] == i + 1);
    std::vector<std::string> keys;
    for (const auto& [name, value] : rows[i].items()) keys.push_back(name);
    std::vector<std::string> expected = {"step", "loss", "lr", "grad_norm", "samples_per_second"};
    if (i % 10 == 9) expected.insert(expected.end(), {"eval_accuracy", "eval_loss"});
    CHECK(keys == expected);
  }
  CHECK(rows.back()["loss"].get<double>() < rows.front()["loss"].get<double>() / 2);
  CHECK(rows[0]["lr"].get<double>() < rows[5]["lr"].get<double>());

  const std::string csv = place.read("metrics.csv");
  CHECK(csv.starts_with("step,loss,lr,grad_norm,samples_per_second,eval_accuracy,eval_loss\n1,"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 41);
  CHECK(contains(place.read("loss.svg"), "</svg>"));
  // Newest two, and the best that was saved when it was found.
  CHECK(place.checkpoints() == std::vector<int64_t>{40, 35});
  const Json run = Json::parse(place.read("run.json"));
  CHECK(run["data"][0]["sha256"] == "aa");
  CHECK(run["environment"]["build"].contains("version"));
  const Recipe recipe = read_recipe({"recipe.toml", "", place.read("recipe.toml")});
  CHECK(recipe.train.steps == 40);
  CHECK(recipe.output_dir == place.root + "/out");
}

TEST_CASE("with --json there is one object on standard output") {
  const Place place;
  TrainOptions options = place.options();
  options.json = true;
  const TrainOutcome outcome = TrainProcess(options, fake_factory()).finish();
  const Json json = Json::parse(outcome.out);
  CHECK(json["schema"] == 1);
  CHECK(json["steps"] == 40);
  CHECK(json["epochs"] == 4.0);
  CHECK(json["samples"] == 160);
  CHECK(json["ended_by"] == "steps");
  CHECK(json["eval_loss"].is_number());
  CHECK(json["best"]["metric"] == "eval_loss");
  CHECK(json["checkpoint"] == place.out("checkpoints/step-40"));
  CHECK(contains(outcome.err, "step 10:"));
}

TEST_CASE("a terminal shows a bar") {
  if (!testing::has_terminals()) return;
  const Place place;
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  REQUIRE(terminal >= 0);
  REQUIRE(::grantpt(terminal) == 0);
  REQUIRE(::unlockpt(terminal) == 0);
  const int keeper = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ::setenv("TERM", "xterm", 1);
  FakeOptions slow;
  slow.step_milliseconds = 10;
  const testing::TrainSetting setting = {.error_file = ::ptsname(terminal)};
  CHECK(TrainProcess(place.options(), fake_factory(slow), setting).finish().exit_code == 0);
  std::string shown(100'000, '\0');
  shown.resize(
      static_cast<size_t>(std::max<ssize_t>(::read(terminal, shown.data(), shown.size()), 0)));
  ::close(keeper);
  ::close(terminal);
  CHECK(contains(shown, "\r["));
  CHECK(contains(shown, "] step "));
  CHECK(contains(shown, "ETA 0:0"));
  CHECK(contains(shown, "samples/s"));
}

TEST_CASE("a file shows plain lines") {
  const Place plain;
  const std::string lines = plain.run().err;
  CHECK(contains(lines, "step 1/40  loss "));
  CHECK_FALSE(contains(lines, "\r"));
}

TEST_CASE("a run can go back to a checkpoint by its path, or on from another directory") {
  const Place place;
  REQUIRE(place.run("", {}, "step:38").signal == SIGKILL);
  REQUIRE(place.run(place.out("checkpoints/step-30")).exit_code == 0);
  check_same_result(place, undisturbed());

  const Place elsewhere;
  REQUIRE(elsewhere.run(undisturbed().out("checkpoints/step-35")).exit_code == 0);
  CHECK(elsewhere.read("model.safetensors") == undisturbed().read("model.safetensors"));
  CHECK(elsewhere.metrics().size() == 5);
  // What it went on from may go away: the checkpoint of its end is its own.
  const Place finished;
  TrainOptions options = finished.options(undisturbed().root + "/out");
  options.json = true;
  const TrainOutcome outcome = TrainProcess(options, fake_factory()).finish();
  REQUIRE(outcome.exit_code == 0);
  CHECK(Json::parse(outcome.out)["checkpoint"] == finished.out("checkpoints/step-40"));
  CHECK(finished.checkpoints() == std::vector<int64_t>{40});
  const Place from_run;
  REQUIRE(from_run.run(undisturbed().root + "/out").exit_code == 0);
  require_error(from_run.run("/no/such"), 66, "no such checkpoint");
  require_error(from_run.run(undisturbed().out("model.safetensors")), 66,
                "is a file; a checkpoint is a directory, DIR/checkpoints/step-N");
  require_error(from_run.run("/"), 66, "--resume '/': holds no checkpoints, and is none");
}

TEST_CASE("a finished run is finished again by --resume, and goes on with a larger budget") {
  const Place place;
  REQUIRE(place.run().exit_code == 0);
  const std::string model = place.read("model.safetensors");
  fs::remove(place.out("model.safetensors"));
  REQUIRE(place.run("auto").exit_code == 0);
  CHECK(place.read("model.safetensors") == model);
  CHECK(place.metrics().size() == 40);
  REQUIRE(place.run_with({"train.steps=50"}, "auto").exit_code == 0);
  CHECK(place.metrics().size() == 50);
  CHECK(place.checkpoints().front() == 50);
}

TEST_CASE("nothing of an earlier result of another kind stays beside the new one") {
  const Place place;
  REQUIRE(place.run().exit_code == 0);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "notes.txt"}) {
    std::ofstream(place.out(name)) << "{}";
  }
  REQUIRE(place.run("auto").exit_code == 0);
  CHECK(fs::exists(place.out("model.safetensors")));
  CHECK_FALSE(fs::exists(place.out("adapter_config.json")));
  CHECK_FALSE(fs::exists(place.out("adapter_model.safetensors")));
  CHECK(fs::exists(place.out("notes.txt")));
}

TEST_CASE("without --resume an earlier run is not touched, and --force starts over") {
  const Place place;
  REQUIRE(place.run().exit_code == 0);
  require_error(place.run(), 73, "--resume auto");
  TrainOptions options = place.options();
  options.force = true;
  options.overrides = {"train.steps=3"};
  REQUIRE(TrainProcess(options, fake_factory()).finish().exit_code == 0);
  CHECK(place.metrics().size() == 3);
  CHECK(place.checkpoints() == std::vector<int64_t>{3});
}

TEST_CASE("what a run reads is not written over") {
  const Place place;
  const auto write = [&](const std::string& name) {
    std::ofstream(place.out(name)) << "precious";
    return place.out(name);
  };
  fs::create_directories(place.out("checkpoints"));
  fs::copy(place.root + "/r.toml", place.out("recipe.toml"));
  fs::create_symlink(place.root + "/out", place.root + "/link");
  const std::string recipe = place.read("recipe.toml");
  TrainOptions options = place.options();
  for (const char* name : {"/out/recipe.toml", "/link/../out/recipe.toml", "/link/recipe.toml"}) {
    options.recipe = place.root + name;
    require_error(TrainProcess(options, fake_factory()).finish(), 73, "would write over it");
    CHECK(place.read("recipe.toml") == recipe);
  }
  fs::remove(place.out("recipe.toml"));
  FakeOptions fake;
  for (const char* name : {"metrics.csv", "samples.jsonl", "loss.svg", "checkpoints/data.csv"}) {
    write(name);
    fake.data = place.root + "/link/" + name;
    options = place.options();
    options.force = true;
    require_error(TrainProcess(options, fake_factory(fake)).finish(), 73, "would write over it");
    CHECK(place.read(name) == "precious");
    fs::remove(place.out(name));
  }
  std::ofstream(place.root + "/data.csv") << "precious";
  fs::create_symlink(place.root + "/data.csv", place.out("metrics.csv"));
  fake.data = place.root + "/data.csv";
  require_error(place.run("", fake), 73, "would write over it");
  fs::remove(place.out("metrics.csv"));
  CHECK(TrainProcess::read(fake.data) == "precious");

  for (const char* key : {"model.weights", "tokenizer.path", "tokenizer.chat_template"}) {
    CAPTURE(key);
    const Place language("[train]\nsteps = 2\n");
    std::ofstream(language.root + "/r.toml")
        << "[model]\ntype = \"lstm\"\n[tokenizer]\npath = \"r.toml\"\n[[data.train]]\npath = "
           "\"x.txt\"\n[train]\nsteps = 2\n";
    fs::create_directories(language.root + "/out");
    std::ofstream(language.out("chat_template.jinja")) << "precious";
    require_error(language.run_with({str(key, "=out/chat_template.jinja")}), 73,
                  "would write over it");
  }
  // Beside what is written there is room, and a run goes on from its own recipe.
  fake.data = write("data.csv");
  REQUIRE(place.run("", fake, "step:30").signal == SIGKILL);
  options = place.options("auto");
  options.recipe = place.out("recipe.toml");
  REQUIRE(TrainProcess(options, fake_factory(fake)).finish().exit_code == 0);
  CHECK(place.read("data.csv") == "precious");
  check_same_result(place, undisturbed());
}

TEST_CASE("a model of others is not written over") {
  const Place place;
  fs::create_directories(place.root + "/out");
  std::ofstream(place.out("model.safetensors")) << "precious";
  require_error(place.run(), 73, "--force");
  CHECK(place.read("model.safetensors") == "precious");
  TrainOptions options = place.options();
  options.force = true;
  REQUIRE(TrainProcess(options, fake_factory()).finish().exit_code == 0);
  CHECK(place.read("model.safetensors") != "precious");
}

TEST_CASE("a recipe, data or tensors that no longer fit the checkpoint are named") {
  const Place place;
  REQUIRE(place.run("", {}, "step:30").signal == SIGKILL);
  require_error(place.run_with({"optimizer.lr=0.1"}, "auto"), 78,
                "optimizer.lr is 0.05 there and 0.1 here");
  require_error(place.run_with({"optimizer.type=sgd"}, "auto"), 78, "optimizer.type is \"adamw\"");
  FakeOptions other;
  other.hash = "bb";
  require_error(place.run("auto", other), 78, "'fake.csv' is not what the run was trained on");
  other = {};
  other.tokens_hash = "cc";
  require_error(place.run("auto", other), 78, "tokenizer, what it is trained on, or the chat");
  other = {};
  other.base_hash = "dd";
  require_error(place.run("auto", other), 78, "model.path is another model");
  other = {};
  other.size = 17;
  require_error(place.run("auto", other), 78, "line.weight does not fit");
  REQUIRE(place.run("auto").exit_code == 0);
  check_same_result(place, undisturbed());
}

TEST_CASE("a second run in the same directory is refused with the first one's number") {
  const Place place;
  FakeOptions slow;
  slow.step_milliseconds = 50;
  TrainProcess first(place.options(), fake_factory(slow));
  for (int i = 0; i < 500 && !fs::exists(place.out("run.json")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  require_error(place.run("auto"), 75, str("process ", static_cast<int64_t>(first.id())));
  first.send(SIGKILL);
  first.finish();
  CHECK(place.run("auto").exit_code == 0);  // the lock went with its holder
}

TEST_CASE("a directory that cannot be made or written is an error at once") {
  const Place place;
  std::ofstream(place.root + "/out") << "a file";
  require_error(place.run(), 73, "is no directory");
  TrainOptions options = place.options();
  options.out = place.root + "/out/deeper";
  require_error(TrainProcess(options, fake_factory()).finish(), 73, "");
  options.out = "/proc/lumen";
  require_error(TrainProcess(options, fake_factory()).finish(), 73, "/proc/lumen");
}

TEST_CASE("of a run that did not begin no directory stays, unless it was there") {
  const std::string path = lumen::testing::temporary_directory() + "/run";
  { const RunDirectory refused(path, false); }
  CHECK_FALSE(fs::exists(path));
  fs::create_directory(path);
  { const RunDirectory refused(path, false); }
  CHECK(fs::exists(path));
  fs::remove_all(path);
  {
    const RunDirectory begun(path, false);
    std::ofstream(begun.file(kMetricsRows)) << "{}\n";
  }
  CHECK(fs::exists(path + "/" + kMetricsRows));
}

TEST_CASE("the best and the last checkpoints are kept, and the best can be the result") {
  const int every = GENERATE(5, 1000);  // steps between checkpoints: the best have theirs anyway
  const std::string text =
      str("[train]\nsteps = 30\n[eval]\nevery = 5\n[checkpoint]\nevery = ", every,
          "\nkeep_last = 1\nkeep_best = 2\nmetric = \"eval_accuracy\"\n"
          "[export]\nweights = \"best\"\n");
  const Place place(text);
  FakeOptions worse;  // learns well, then wanders off
  const TrainOutcome outcome =
      place.run_with({"schedule.type=constant", "optimizer.lr=1.2"}, "", worse);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  std::vector<std::pair<double, int64_t>> ranking;
  for (const Json& row : place.metrics()) {
    if (row.contains("eval_accuracy")) {
      ranking.emplace_back(-row["eval_accuracy"].get<double>(), row["step"].get<int64_t>());
    }
  }
  std::sort(ranking.begin(), ranking.end());
  std::vector<int64_t> expected = {30, ranking[0].second, ranking[1].second};
  std::sort(expected.rbegin(), expected.rend());
  expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  CHECK(place.checkpoints() == expected);
  const auto best = io::read_checkpoint(place.out(str("checkpoints/step-", ranking[0].second)));
  const auto model = io::read_safetensors(place.out("model.safetensors"));
  const Array result = model->array(model->tensors[0]);
  CHECK(std::equal(result.data(), result.data() + result.bytes(),
                   best.weights.at("line.weight").data()));
}

TEST_CASE(
    "of equally good checkpoints the first is the best, which is kept and can be the result") {
  const Place place(
      "[train]\nsteps = 30\n[eval]\nevery = 5\n[checkpoint]\nevery = 5\nkeep_last = 1\n[export]\n"
      "weights = \"best\"\n");
  FakeOptions constant;
  constant.learns = false;
  const TrainOutcome outcome = place.run("", constant);
  REQUIRE(outcome.exit_code == 0);
  CHECK_FALSE(contains(outcome.err, "there is no best checkpoint"));
  CHECK(place.checkpoints() == std::vector<int64_t>{30, 5});
}

TEST_CASE("--force replaces a run only when the new one is sure to start") {
  const Place place;
  REQUIRE(place.run().exit_code == 0);
  const std::string weights = place.read("model.safetensors");
  TrainOptions options = place.options();
  options.force = true;
  const TaskFactory broken = [](const Recipe&, const TaskOptions&) -> std::unique_ptr<TrainTask> {
    fail(ErrorKind::kMissing, "there is no 'data.csv'");
  };
  require_error(TrainProcess(options, broken).finish(), 66, "there is no 'data.csv'");
  CHECK(place.checkpoints() == std::vector<int64_t>{40, 35});
  CHECK(place.metrics().size() == 40);
  CHECK(place.read("model.safetensors") == weights);

  FakeOptions diverges;
  diverges.nan_from = 0;
  diverges.nan_until = 1000;
  require_error(TrainProcess(options, fake_factory(diverges)).finish(), 76, "no good checkpoint");
  CHECK_FALSE(fs::exists(place.out("model.safetensors")));  // not of the recipe beside it
  REQUIRE(TrainProcess(options, fake_factory()).finish().exit_code == 0);
  check_same_result(place, undisturbed());
}

TEST_CASE("a checkpoint beyond the end of the recipe is refused") {
  const Place place;
  REQUIRE(place.run().exit_code == 0);
  TrainOptions options = place.options("auto");
  options.overrides = {"train.steps=30"};
  require_error(TrainProcess(options, fake_factory()).finish(), 78,
                "the checkpoint has 40 steps, the recipe only 30");
  CHECK(place.read("model.safetensors") == undisturbed().read("model.safetensors"));
}

TEST_CASE("another metric to watch has no best yet when a run goes on") {
  const char* text =
      "[train]\nsteps = 20\n[eval]\nevery = 5\nearly_stop = {patience = 3}\n[checkpoint]\n"
      "every = 5\n[export]\nweights = \"best\"\n";
  const Place place(text);
  REQUIRE(place.run().exit_code == 0);
  TrainOptions options = place.options("auto");
  options.json = true;
  options.overrides = {"train.steps=40", "checkpoint.metric=eval_accuracy",
                       "eval.early_stop.metric=eval_accuracy"};
  const TrainOutcome outcome = TrainProcess(options, fake_factory()).finish();
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  double most = 0;
  for (const Json& row : place.metrics()) {
    if (row["step"] > 20 && row.contains("eval_accuracy")) {
      most = std::max(most, row["eval_accuracy"].get<double>());
    }
  }
  const Json best = Json::parse(outcome.out)["best"];
  CHECK(best["metric"] == "eval_accuracy");
  CHECK(best["value"] == most);
  CHECK(best["step"] > 20);
  CHECK_FALSE(contains(outcome.err, "there is no best checkpoint"));
}

TEST_CASE("a run that no longer improves stops early") {
  const Place place("[train]\nsteps = 1000\n[eval]\nevery = 5\nearly_stop = {patience = 3}\n");
  FakeOptions stubborn;
  stubborn.learns = false;
  TrainOptions options = place.options();
  options.json = true;
  const TrainOutcome outcome = TrainProcess(options, fake_factory(stubborn)).finish();
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["ended_by"] == "early stop");
  CHECK(json["steps"] == 20);
  CHECK(fs::exists(place.out("model.safetensors")));
  const auto weights = place.read("model.safetensors");
  fs::remove(place.out("model.safetensors"));
  REQUIRE(place.run("auto", stubborn).exit_code == 0);
  CHECK(place.metrics().size() == 20);
  CHECK(place.read("model.safetensors") == weights);
  REQUIRE(place.run_with({"eval.early_stop.patience=4"}, "auto", stubborn).exit_code == 0);
  CHECK(place.metrics().size() == 25);

  const Place wrong("[train]\nsteps = 9\n[eval]\nevery = 2\n[checkpoint]\nmetric = \"eval_f1\"\n");
  require_error(wrong.run(), 65,
                "'eval_f1' is not measured; the task classify has eval_loss, eval_accuracy");
}

TEST_CASE("a warm-up longer than the run is an error where it was given") {
  const Place place("[train]\nepochs = 1\n");  // ten steps
  require_error(place.run_with({"schedule.warmup=11"}), 2,
                "--set schedule.warmup: a warm-up of 11 steps is longer than the run of 10");
}

TEST_CASE("epochs, tokens and time end a run too") {
  const Place epochs("[train]\nepochs = 1.5\n");
  REQUIRE(epochs.run().exit_code == 0);
  CHECK(epochs.metrics().size() == 15);
  CHECK(epochs.checkpoints() == std::vector<int64_t>{15, 10});

  FakeOptions language;
  language.tokens = true;
  Place tokens("[log.samples]\nprompts = [\"Once\"]\nevery = 2\n[train]\ntokens = 100\n");
  std::ofstream(tokens.root + "/r.toml")
      << "[model]\ntype = \"lstm\"\n[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = "
         "\"x.txt\"\n"
      << "[log.samples]\nprompts = [\"Once\"]\nevery = 2\n[train]\ntokens = 100\n";
  const TrainOutcome outcome = tokens.run("", language);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(tokens.metrics().size() == 4);  // 32 a step
  CHECK(tokens.metrics()[0].contains("tokens_per_second"));
  CHECK(contains(outcome.err, "step 2: 'Once and so on'"));
  CHECK(contains(tokens.read("samples.jsonl"), "Once and so on"));

  // Of steps that have fewer tokens than foreseen it takes more, and it is finished all the same.
  language.step_tokens = 24;
  fs::remove_all(tokens.root + "/out");
  REQUIRE(tokens.run("", language, "exported").signal == SIGKILL);
  REQUIRE(tokens.metrics().size() == 5);
  const TrainOutcome again = tokens.run("auto", language);
  CAPTURE(again.err);
  REQUIRE(again.exit_code == 0);
  CHECK(tokens.metrics().size() == 5);

  FakeOptions slow;
  slow.step_milliseconds = 5;
  const Place time("[train]\ntime = \"0.1s\"\n");
  REQUIRE(time.run_with({"schedule.type=constant"}, "", slow).exit_code == 0);
  CHECK(time.metrics().size() < 30);
  const Place instant("[train]\ntime = 1e-9\n");
  REQUIRE(instant.run_with({"schedule.type=constant"}).exit_code == 0);
  CHECK(instant.metrics().size() == 1);  // not an untrained model
}

TEST_CASE("a dry run, a preview and one batch by heart leave the directory alone") {
  const Place place;
  TrainOptions options = place.options();
  options.dry_run = true;
  TrainOutcome outcome = TrainProcess(options, fake_factory()).finish();
  REQUIRE(outcome.exit_code == 0);
  for (const char* part :
       {"line.weight", "[16]", "sha256 aa", "40, 10 per epoch", "ETA", ", evaluation 1.0 KiB"}) {
    CHECK(contains(outcome.out, part));
  }
  options.json = true;
  const Json json = Json::parse(TrainProcess(options, fake_factory()).finish().out);
  CHECK(json["steps"] == 40);
  CHECK(json["shapes"][0]["shape"][0] == 16);
  const Json& memory = json["memory"];
  CHECK(memory["program"] > 1 << 20);  // as every process
  CHECK(memory["total"] == 4096 + 128 + 1024 + memory["program"].get<int64_t>());

  options = place.options();
  options.preview = 2;
  CHECK(TrainProcess(options, fake_factory()).finish().out ==
        "--- sample 1\n[masked] learnt 0\n--- sample 2\n[masked] learnt 1\n");

  options = place.options();
  options.overfit_batch = true;
  options.overrides = {"optimizer.lr=0.3", "train.epochs=1"};
  outcome = TrainProcess(options, fake_factory()).finish();
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "the network can learn"));
  FakeOptions stubborn;
  stubborn.learns = false;
  require_error(TrainProcess(options, fake_factory(stubborn)).finish(), 3, "by heart");
  CHECK_FALSE(fs::exists(place.root + "/out"));
}

TEST_CASE("the last lines say why a run ended and how its result is run") {
  FakeOptions stubborn;
  stubborn.learns = false;
  const Place place;
  const TrainOutcome stopped = place.run_with(
      {"eval.early_stop.patience=2", "schedule.type=constant", "schedule.warmup=0"}, "", stubborn);
  CAPTURE(stopped.err);
  CHECK(contains(stopped.err, "stopped early: eval_loss did not improve in 2 evaluations\n"));
  CHECK(contains(stopped.err, "\nthe model is in "));

  const Place lora;
  std::ofstream(lora.root + "/r.toml")
      << "[model]\npath = \"builtin:lumen-tiny\"\n[lora]\nrank = 2\n[[data.train]]\n"
         "path = \"builtin:chat\"\n[train]\nsteps = 2\n";
  const TrainOutcome outcome = lora.run();
  CAPTURE(outcome.err);
  const std::string out = lora.root + "/out";
  CHECK(contains(outcome.err, "the adapter is in " + out + "; lumen-run --lora " + out + " runs"));
}

TEST_CASE("lists and printed recipes go to standard output") {
  TrainOptions options;
  options.recipes = true;
  CHECK(contains(TrainProcess(options, fake_factory()).finish().out, "digits-mlp"));
  options = {};
  options.print_schema = true;
  CHECK(Json::parse(TrainProcess(options, fake_factory()).finish().out)["title"] == "Lumen recipe");
  options = {};
  options.recipe = "digits-mlp";
  options.print_config = true;
  options.overrides = {"train.batch_size=64"};
  const TrainOutcome printed = TrainProcess(options, fake_factory()).finish();
  CHECK(read_recipe({"x", "", printed.out}).train.batch_size == 64);

  const std::vector<std::function<void(TrainOptions&)>> wrong = {
      [](TrainOptions& o) { o.recipe.reset(); },
      [](TrainOptions& o) { o.recipes = true; },
      [](TrainOptions& o) { o.dry_run = o.overfit_batch = true; },
      [](TrainOptions& o) { o.resume = "auto", o.force = true; },
      [](TrainOptions& o) { o.resume = "auto", o.dry_run = true; },
      [](TrainOptions& o) { o.overrides = {"a"}; },
      [](TrainOptions& o) { o.overrides = {"train.lr=1"}; },
  };
  for (const auto& change : wrong) {
    options = {};
    options.recipe = "digits-mlp";
    change(options);
    require_error(TrainProcess(options, fake_factory()).finish(), 2, "");
  }
}

}  // namespace
}  // namespace lumen::runtime
