#include "lib/runtime/bench/bench_train.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/sha256.h"
#include "lib/runtime/bench/bench_llm.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/statistics.h"
#include "lib/runtime/training/train_options.h"
#include "lib/runtime/training/train_task.h"

namespace lumen::runtime {
namespace {

constexpr int64_t kWarmUpSteps = 3, kLeastSteps = 5;

// One number of threads: the time of every step, and what a step is.
struct TrainRow {
  int64_t threads = 1;
  std::vector<double> step_seconds;
  double tokens = 0, samples = 0;  // of a step
  double first_step_seconds = 0;   // from opening the data
  double loss = 0;                 // of the last step
  TaskSummary summary;
  io::Json profile;  // null: none is wanted
};

TrainRow measure(const Recipe& recipe, int64_t threads, const TrainBenchOptions& options,
                 Profiles& profiles) {
  const auto start = Clock::now();
  const auto task = make_task(recipe, {threads, false});
  TrainRow row;
  row.threads = threads;
  const double lr = recipe.optimizer.lr;
  task->step(lr);
  row.first_step_seconds = seconds_since(start);
  for (int64_t i = 1; i < kWarmUpSteps; ++i) task->step(lr);
  const auto begin = Clock::now();
  auto enough = [&] {
    const auto steps = static_cast<int64_t>(row.step_seconds.size());
    if (options.repetitions) return steps >= *options.repetitions;
    return steps >= kLeastSteps && seconds_since(begin) > options.seconds.value_or(10);
  };
  while (!enough()) {
    const auto step_start = Clock::now();
    const StepResult result = task->step(lr);
    row.step_seconds.push_back(seconds_since(step_start));
    row.tokens = result.tokens;
    row.samples = result.samples;
    row.loss = result.loss;
  }
  row.summary = task->summary();
  if (profiles.wanted()) {
    row.profile =
        profiles.measure(str(recipe.name, ", threads ", threads), "step", row.step_seconds.size(),
                         [&](Profiler& profiler) { profiler.step([&] { task->step(lr); }); });
  }
  return row;
}

io::Json row_json(const TrainRow& row) {
  const Spread s = spread(row.step_seconds);
  const bool language = row.tokens > 0;
  const double items = language ? row.tokens : row.samples;
  io::Json json = {
      {"test", "train_step"},
      {"threads", row.threads},
      {"step_ms", {{"median", s.median * 1e3}, {"min", s.min * 1e3}, {"max", s.max * 1e3}}},
      {"unit", language ? "tokens/s" : "samples/s"},
      {"median", items / s.median},
      {"min", items / s.max},
      {"max", items / s.min},
      {"steps", row.step_seconds.size()},
      {"first_step_ms", row.first_step_seconds * 1e3},
      {"last_loss", row.loss},
      {"samples", row.step_seconds}};
  if (!row.profile.is_null()) json[kProfileMember] = row.profile;
  return json;
}

std::string report_table(const io::Json& report) {
  std::string out =
      "| recipe | threads | step (median) | min | max | rate | first step after |\n"
      "|---|--:|--:|--:|--:|--:|--:|\n";
  const std::string name = table_cell(printable(report["recipe"]["name"].get<std::string>()));
  for (const io::Json& row : report["results"]) {
    const io::Json& step = row["step_ms"];
    out += str("| ", name, " | ", row["threads"].get<int64_t>(), " | ",
               fixed(step["median"].get<double>(), 2), " ms | ",
               fixed(step["min"].get<double>(), 2), " ms | ", fixed(step["max"].get<double>(), 2),
               " ms | ", fixed(row["median"].get<double>(), 1), " ", row["unit"].get<std::string>(),
               " | ", fixed(row["first_step_ms"].get<double>(), 1), " ms |\n");
  }
  out += str("\n- ", report["recipe"]["model"].get<std::string>(), "\n- ",
             report["recipe"]["parameters"].get<int64_t>(), " parameters, arena ",
             human_bytes(report["recipe"]["arena_bytes"].get<uint64_t>()), ", peak memory ",
             human_bytes(report["peak_memory_bytes"].get<uint64_t>()), "\n- ",
             report["environment"]["cpu"].get<std::string>(), ", SIMD ",
             report["environment"]["build"]["simd"]["chosen"].get<std::string>(), "\n");
  return out + profile_tables(report);
}

}  // namespace

void declare(CommandLine& line, TrainBenchOptions& options) {
  line.begin_verb("train", "Measure how long a training step of a recipe takes.");
  line.add_positional(text_field("recipe", "RECIPE", "a recipe's file or the name of a bundled one",
                                 options.recipe));
  line.group("Measure");
  line.add(list_field("set", "KEY=VALUE", "override a key of the recipe (repeatable)",
                      options.overrides));
  line.add_threads(number_list_field("threads", "numbers of threads (physical cores)",
                                     options.threads, 1, kMaxThreads));
  line.add(number_field("repetitions", "steps to measure, after a warm-up (as time allows)",
                        options.repetitions, 1, 1'000'000),
           "r");
  line.add(number_field("seconds", "how long to measure (10)", options.seconds, 0.1, 3600));
  line.group("Profile");
  declare(line, options.profile);
  line.group("Output");
  declare(line, options.output);
  add_data_variables(line);
  line.add_example("lumen-bench train digits-mlp -t 1,2", "compare one thread with two");
  line.add_example("lumen-bench train digits-lenet --profile",
                   "show where the time of a step goes");
}

int bench_train(const TrainBenchOptions& options) {
  if (!options.recipe) {
    fail(ErrorKind::kUsage, "name a recipe: a file, or one of lumen-train --recipes");
  }
  if (options.repetitions && options.seconds) {
    fail(ErrorKind::kUsage, "--seconds has no effect with --repetitions, which says how often");
  }
  const std::vector<BenchTarget> targets = targets_of(options.output);
  Profiles profiles(options.profile);
  const Recipe recipe = read_recipe(find_recipe(*options.recipe), options.overrides);
  std::vector<int64_t> threads = {default_thread_count()};
  if (!options.threads.empty()) threads = parse_list(options.threads, "threads", 1, kMaxThreads);
  io::Json results = io::Json::array();
  TaskSummary summary;
  for (const int64_t count : threads) {
    const TrainRow row = measure(recipe, count, options, profiles);
    results.push_back(row_json(row));
    summary = row.summary;
  }
  const io::Json settings = step_settings(recipe);
  const io::Json report = {{"schema", 1},
                           {"benchmark", "train"},
                           {"recipe",
                            {{"name", recipe.name},
                             {"model", summary.model},
                             {"batch", summary.batch},
                             {"precision", recipe.train.precision},
                             {"parameters", summary.parameters},
                             {"settings", settings},
                             {"settings_sha256", io::sha256(settings.dump())},
                             {"arena_bytes", summary.arena_bytes}}},
                           {"results", std::move(results)},
                           {"peak_memory_bytes", peak_memory_bytes()},
                           {"environment", environment_description()}};
  print_targets(targets, [&](const std::string& form) {
    return report_text(report, form, [&] { return report_table(report); });
  });
  profiles.write_trace();
  return 0;
}

}  // namespace lumen::runtime
