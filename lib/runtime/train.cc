#include "lib/runtime/train.h"

#include <cmath>
#include <csignal>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/checkpoint.h"
#include "lib/io/mapped_file.h"
#include "lib/io/sha256.h"
#include "lib/runtime/bench/bench_profile.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/training/bundled_recipes.h"
#include "lib/runtime/training/export_model.h"
#include "lib/runtime/training/gguf_result.h"
#include "lib/runtime/training/train_checks.h"
#include "lib/runtime/training/train_loop.h"

namespace lumen::runtime {
namespace {

using io::Json;

std::string recipe_list(bool json) {
  if (json) {
    Json list = Json::array();
    for (const BundledRecipe& recipe : bundled_recipes()) {
      list.push_back({{"name", recipe.name}, {"purpose", recipe.purpose()}});
    }
    return Json({{"schema", 1}, {"recipes", list}}).dump(2) + "\n";
  }
  std::string out;
  for (const BundledRecipe& recipe : bundled_recipes()) {
    std::string name(recipe.name);
    name.resize(std::max<size_t>(name.size() + 1, 24), ' ');
    out += name + std::string(recipe.purpose()) + "\n";
  }
  return out;
}

// The newest checkpoint in `directory` that is whole; damaged ones are passed over with a warning.
std::optional<io::Checkpoint> newest_checkpoint(const std::string& directory) {
  std::vector<std::string> damaged;
  const auto entries = io::list_checkpoints(directory, &damaged);
  const auto pass_over = [](std::string_view problem) {
    tell(str("warning: ", problem, "; that checkpoint is passed over"));
  };
  for (const std::string& problem : damaged) pass_over(problem);
  for (const io::CheckpointEntry& entry : entries) {
    try {
      return io::read_checkpoint(entry.path);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kMalformed && error.kind() != ErrorKind::kMissing) throw;
      pass_over(error.what());
      damaged.push_back(error.what());
    }
  }
  if (!damaged.empty()) {
    fail(ErrorKind::kMalformed, io::place_of(directory),
         ": no checkpoint is whole; --force starts over");
  }
  return std::nullopt;
}

// The checkpoint to go on from, if any.
std::optional<io::Checkpoint> find_checkpoint(const Recipe& recipe, const RunDirectory& directory) {
  const std::string& resume = recipe.checkpoint.resume;
  if (resume == "auto") return newest_checkpoint(directory.checkpoints());
  if (resume != "never") {
    const auto refuse = [&](std::string_view why) {
      fail(ErrorKind::kMissing, "--resume ", quoted(resume), ": ", why);
    };
    if (!io::is_directory(resume)) {
      refuse(io::is_regular_file(resume)
                 ? "is a file; a checkpoint is a directory, DIR/checkpoints/step-N of a run in DIR"
                 : "there is no such checkpoint");
    }
    if (io::is_directory(resume + "/checkpoints")) {
      if (auto found = newest_checkpoint(resume + "/checkpoints")) return found;
    }
    if (!io::is_regular_file(resume + "/manifest.json")) {
      refuse("holds no checkpoints, and is none, having no manifest.json");
    }
    return io::read_checkpoint(resume);
  }
  if (!directory.has_run()) return std::nullopt;
  const auto entries = io::list_checkpoints(directory.checkpoints());
  const std::string at = entries.empty() ? "" : str(", saved at step ", entries.front().step);
  fail(ErrorKind::kCannotCreate, io::place_of(directory.path()), ": holds a run already", at,
       "; --resume auto goes on with it, --force starts over");
}

void check_recipe(const io::Checkpoint& checkpoint, const Recipe& recipe) {
  for (const char* key : {"recipe", "loop", "task"}) {
    if (!io::find_value(checkpoint.state, key)) {
      fail(ErrorKind::kMalformed, "the checkpoint of step ", checkpoint.step, " has no ", key);
    }
  }
  std::vector<std::string> differences = incompatible_keys(checkpoint.state["recipe"], recipe);
  if (differences.empty()) return;
  constexpr size_t kMost = 5;
  if (differences.size() > kMost) {
    differences[kMost] = str("and ", differences.size() - kMost, " more");
    differences.resize(kMost + 1);
  }
  fail(ErrorKind::kMismatch, "the recipe no longer fits the checkpoint of step ", checkpoint.step,
       ": ", join(differences, "; "), "; change it back, or start over with --force");
}

Json describe_run(const Recipe& recipe, const TaskSummary& summary, const io::Checkpoint* from) {
  return {{"schema", 1},
          {"name", recipe.name},
          {"recipe_sha256", io::sha256(to_json(recipe).dump())},
          {"resumed_from", from ? Json(from->step) : Json()},
          {"model", summary.model},
          {"parameters", summary.parameters},
          {"data", data_to_json(summary)},
          {"cut_samples", summary.cut_samples},
          {"too_long_samples", summary.too_long_samples},
          {"left_out_samples", summary.left_out_samples},
          {"environment", environment_description()}};
}

Json describe_result(const Recipe& recipe, const TrainLoop& loop, const TaskSummary& summary,
                     const io::Checkpoint* from) {
  const LoopState& state = loop.state();
  Json out = {{"schema", 1},
              {"name", recipe.name},
              {"out", recipe.output_dir},
              {"gguf", wants_gguf(recipe) ? Json(gguf_name(recipe)) : Json()},
              {"ended_by", loop.ended_by()},
              {"steps", state.step},
              {"epochs", static_cast<double>(state.step) /
                             static_cast<double>(std::max<int64_t>(summary.steps_per_epoch, 1))},
              {"samples", state.samples}};
  if (summary.tokens_per_step > 0) out["tokens"] = state.tokens;
  out["seconds"] = state.seconds;
  out["loss"] = std::isfinite(state.loss) ? Json(state.loss) : Json();
  for (const auto& [name, value] : state.evaluation) {
    out[name] = std::isfinite(value) ? Json(value) : Json();
  }
  if (state.best) {
    out["best"] = {
        {"metric", recipe.checkpoint.metric}, {"value", *state.best}, {"step", state.best_step}};
  }
  out["parameters"] = summary.parameters;
  out["skipped_steps"] = state.skipped;
  out["resumed_from"] = from ? Json(from->step) : Json();
  out["checkpoint"] = loop.checkpoint();
  out["peak_memory_bytes"] = peak_memory_bytes();
  return out;
}

std::string last_line(const Recipe& recipe, const TrainLoop& loop) {
  const LoopState& state = loop.state();
  std::string out = str(recipe.name, ": ", state.step, " steps in ", clock_text(state.seconds),
                        ", loss ", metric_text(state.loss));
  for (const auto& [name, value] : state.evaluation)
    out += str(", ", name, " ", metric_text(value));
  if (loop.ended_by() == "early stop") {
    const EvalRecipe::EarlyStop& stop = recipe.eval.early_stop;
    out += str("; stopped early: ", stop.metric, " did not improve in ", stop.patience,
               stop.patience == 1 ? " evaluation" : " evaluations");
  }
  return out;
}

// Where the result is, and how to use it.
std::string result_line(const Recipe& recipe) {
  const std::string place = io::place_of(recipe.output_dir);
  const std::string gguf = wants_gguf(recipe) ? str(" and, as GGUF, ", gguf_name(recipe)) : "";
  if (!makes_adapter(recipe)) return "the model is in " + place + gguf;
  const bool builtin = *recipe.model.path == kBuiltinModel;  // lumen-run's own
  const std::string base = builtin ? "" : io::place_of(find_base_model(recipe)) + " ";
  return str("the adapter is in ", place, gguf, "; lumen-run ", base, "--lora ", place, " runs it");
}

void announce(const Recipe& recipe, const TaskSummary& summary, const io::Checkpoint* from) {
  tell(str(recipe.name, ": ", summary.model, ", ", summary.parameters, " parameters; ",
           summary.batch, "; ", summary.steps_per_epoch, " steps per epoch", left_out_text(summary),
           " → ", io::place_of(recipe.output_dir)));
  tell_notices(summary);
  tell_left_out(recipe, summary);
  if (from) tell(str("going on from step ", from->step));
}

// Throws if the run would write over what it reads: its recipe at `source`, its data, ….
void refuse_inputs(const Recipe& recipe, const std::string& source, const TaskSummary& summary,
                   const RunDirectory& directory) {
  std::vector<std::string> inputs = named_files(recipe);
  inputs.push_back(source);
  for (const TaskSummary::DataFile& file : summary.data) inputs.push_back(file.path);
  std::vector<std::string> outputs = exported_names();
  outputs.insert(outputs.end(), {kGgufModel, kGgufAdapter});
  directory.refuse_inputs(inputs, outputs);
}

// Writes the result.
void publish(const Recipe& recipe, RunDirectory& directory, TrainTask& task, TrainLoop& loop) {
  if (recipe.exported.weights == "best" && !loop.restore_best()) {
    tell("warning: there is no best checkpoint; the last weights are the result");
  }
  directory.publish([&](const std::string& place) { task.export_model(place); });
  commit_point("exported");
}

// The last checkpoint was not written: there may be room for the result, which takes less.
[[noreturn]] void rescue(const Recipe& recipe, RunDirectory& directory, TrainTask& task,
                         TrainLoop& loop, const Error& unsaved) {
  try {
    publish(recipe, directory, task, loop);
  } catch (const Error&) {
    throw unsaved;  // for the same reason
  }
  fail(unsaved.kind(), unsaved.what(), "; what was trained is in ", io::place_of(directory.path()),
       " all the same");
}

int run(const Recipe& recipe, const std::string& source, const TrainOptions& options,
        const TaskFactory& make) {
  RunDirectory directory(recipe.output_dir, options.force);
  StopSignals signals(directory.traces());
  // --force takes a file away, as it does what is in a directory.
  if (!options.force || io::is_directory(directory.checkpoints())) {
    io::require_writable_checkpoints(directory.checkpoints());
  }
  io::clean_checkpoints(directory.checkpoints());
  std::optional<io::Checkpoint> found;
  if (!options.force) found = find_checkpoint(recipe, directory);
  const io::Checkpoint* from = found ? &*found : nullptr;
  if (from) check_recipe(*from, recipe);

  const auto task = make(recipe, {.threads = options.threads, .overfit_batch = false});
  const TaskSummary summary = task->summary();
  refuse_inputs(recipe, source, summary, directory);
  if (from) {
    check_data(*from, summary);
    with_context(str("the checkpoint of step ", from->step), [&] {
      task->restore({from->weights, from->optimizer, from->state["task"]});
    });
  }
  signals.something_to_save();
  if (options.force) directory.clear();  // now that nothing is wrong with the new run
  Profiler profiler;
  TrainLoop loop(recipe, *task, summary, directory, signals, from,
                 options.profile ? &profiler : nullptr);
  io::write_file_atomically(directory.file("recipe.toml"), to_toml(recipe));
  io::write_file_atomically(directory.file("run.json"),
                            describe_run(recipe, summary, from).dump(2) + "\n");
  announce(recipe, summary, from);
  loop.run();
  if (loop.unsaved()) rescue(recipe, directory, *task, loop, *loop.unsaved());
  loop.metrics().finish();

  const bool stopped = loop.ended_by() == "SIGINT" || loop.ended_by() == "SIGTERM";
  int exit_code = stopped ? 128 + signals.received() : 0;
  if (!stopped) {
    publish(recipe, directory, *task, loop);
    if (wants_gguf(recipe)) exit_code = write_gguf_result(recipe, directory.path(), options);
  }
  tell(last_line(recipe, loop));
  if (stopped || exit_code != 0) {
    tell(str("stopped by ", stopped ? loop.ended_by() : "a signal", "; go on with --resume auto"));
  } else {
    tell(result_line(recipe));
  }
  if (profiler.steps() > 0) {
    const std::string title =
        str(recipe.name, ", threads ", options.threads.value_or(default_thread_count()));
    tell("\n" + profile_table(to_json(profiler.profile(), title, "step")));
  }
  if (options.json) {
    write_stdout(describe_result(recipe, loop, summary, from).dump(2) + "\n");
  }
  return exit_code;
}

}  // namespace

int train(const TrainOptions& options, const TaskFactory& make) {
  options.check();
  if (options.recipes) {
    write_stdout(recipe_list(options.json));
    return 0;
  }
  if (options.print_schema) {
    write_stdout(recipe_schema().dump(2) + "\n");
    return 0;
  }
  const RecipeText source = find_recipe(*options.recipe);
  Recipe recipe = read_recipe(source, options.overrides);
  if (options.out) recipe.output_dir = *options.out;
  if (options.resume) recipe.checkpoint.resume = *options.resume;
  if (options.print_config) {
    write_stdout(to_toml(recipe));
    return 0;
  }
  check_gguf_result(recipe);
  if (options.dry_run) return dry_run(recipe, options, make);
  if (options.preview) return preview(recipe, options, make);
  if (options.overfit_batch) return overfit_batch(recipe, options, make);
  return run(recipe, source.place, options, make);
}

}  // namespace lumen::runtime
