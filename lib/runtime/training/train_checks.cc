#include "lib/runtime/training/train_checks.h"

#include <algorithm>
#include <cmath>
#include <csignal>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/training/progress.h"
#include "lib/runtime/training/train_loop.h"

namespace lumen::runtime {
namespace {

using io::Json;

// Seconds of one step: the second of two, as the first has to warm up.
double timed_step(TrainTask& task, double lr) {
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {
    const auto begin = Clock::now();
    task.step(lr);
    seconds = seconds_since(begin);
  }
  return seconds;
}

struct DryRun {
  int64_t steps = 0;
  double step_seconds = 0;
  uint64_t evaluation_bytes = 0;
  uint64_t program_bytes = 0;  // what was held besides: code, data, scratch memory of threads
};

uint64_t planned_bytes(const TaskSummary& s) {
  return s.parameter_bytes + s.optimizer_bytes + s.arena_bytes;
}

Json dry_run_json(const Recipe& recipe, const TaskSummary& s, const DryRun& run) {
  Json shapes = Json::array();
  for (const auto& parameter : s.shapes) {
    shapes.push_back(
        {{"name", parameter.name},
         {"shape", std::vector<int64_t>(parameter.shape.begin(), parameter.shape.end())},
         {"trained", parameter.trained}});
  }
  const double eta =
      run.steps > 0 ? static_cast<double>(run.steps) * run.step_seconds : *recipe.train.time;
  return {{"schema", 1},
          {"name", recipe.name},
          {"out", recipe.output_dir},
          {"model", s.model},
          {"data", data_to_json(s)},
          {"parameters", s.parameters},
          {"trained_parameters", s.trained_parameters},
          {"shapes", shapes},
          {"memory",
           {{"parameters", s.parameter_bytes},
            {"optimizer", s.optimizer_bytes},
            {"arena", s.arena_bytes},
            {"evaluation", run.evaluation_bytes},
            {"program", run.program_bytes},
            {"total", planned_bytes(s) + run.evaluation_bytes + run.program_bytes}}},
          {"batch", s.batch},
          {"steps_per_epoch", s.steps_per_epoch},
          {"left_out_samples", s.left_out_samples},
          {"steps", run.steps > 0 ? Json(run.steps) : Json()},
          {"samples_per_step", s.samples_per_step},
          {"tokens_per_step", s.tokens_per_step},
          {"step_seconds", run.step_seconds},
          {"eta_seconds", eta}};
}

// "1048576" as "1,048,576".
std::string dry_run_text(const Recipe& recipe, const TaskSummary& s, const Json& json) {
  std::string out = str("recipe      ", recipe.name, " → ", io::place_of(recipe.output_dir), "\n");
  const auto counted = [](int64_t count, const char* what) {
    return count > 0 ? str(", ", group_digits(str(count)), what) : "";
  };
  for (const auto& file : s.data) {
    out +=
        str("data        ", io::place_of(file.path), ", ",
            file.bytes > 0 ? human_bytes(file.bytes) + ", " : "", group_digits(str(file.samples)),
            file.samples == 1 ? " sample" : " samples", counted(file.skipped, " bad rows skipped"),
            counted(file.too_long, " too long ones skipped"),
            counted(file.cut, " too long ones cut"), "\n");
    if (!file.sha256.empty()) out += "            sha256 " + file.sha256 + "\n";
  }
  out += str("model       ", s.model, "\n");
  for (const auto& parameter : s.shapes) {
    std::string name = parameter.name;
    name.resize(std::max<size_t>(name.size() + 1, 48), ' ');
    out += str("            ", name, to_string(parameter.shape), parameter.trained ? "" : " frozen",
               "\n");
  }
  out += str("parameters  ", group_digits(str(s.parameters)), ", of which ",
             group_digits(str(s.trained_parameters)), " are trained\n");
  out += str("memory      parameters ", human_bytes(s.parameter_bytes), ", optimizer ",
             human_bytes(s.optimizer_bytes), ", activations and gradients ",
             human_bytes(s.arena_bytes), ", evaluation ",
             human_bytes(json["memory"]["evaluation"].get<uint64_t>()), ", program and data ",
             human_bytes(json["memory"]["program"].get<uint64_t>()), "; in all ",
             human_bytes(json["memory"]["total"].get<uint64_t>()), "\n");
  out += str("batch       ", s.batch, "\n");
  out += str("steps       ",
             json["steps"].is_null() ? "as many as the time allows" : json["steps"].dump(), ", ",
             s.steps_per_epoch, " per epoch", left_out_text(s), "\n");
  out +=
      str("time        ", fixed(json["step_seconds"].get<double>() * 1000, 1), " ms per step, ETA ",
          clock_text(json["eta_seconds"].get<double>()), " without evaluations\n");
  return out;
}

}  // namespace

std::string left_out_text(const TaskSummary& summary) {
  if (summary.left_out_samples == 0) return "";
  return str(", without ", summary.left_out_samples,
             summary.left_out_samples == 1 ? " sample that fills" : " samples that fill",
             " no batch");
}

Json data_to_json(const TaskSummary& summary) {
  Json data = Json::array();
  for (const auto& file : summary.data) {
    data.push_back({{"path", to_valid_utf8(file.path)},
                    {"bytes", file.bytes},
                    {"sha256", file.sha256},
                    {"samples", file.samples},
                    {"skipped", file.skipped},
                    {"too_long", file.too_long},
                    {"cut", file.cut}});
  }
  return data;
}

void tell_notices(const TaskSummary& summary) {
  for (const std::string& notice : summary.notices) tell("note: " + notice);
}

void tell_left_out(const Recipe& recipe, const TaskSummary& summary) {
  const auto texts = [](int64_t count) {
    return str("note: ", count, count == 1 ? " text is" : " texts are",
               " longer than data.max_length");
  };
  for (const auto& file : summary.data) {
    if (file.skipped > 0) {
      tell(str("note: ", io::place_of(file.path), ": ", file.skipped,
               file.skipped == 1 ? " bad row is skipped" : " bad rows are skipped"));
    }
  }
  if (summary.too_long_samples > 0) {
    tell(str(texts(summary.too_long_samples),
             recipe.data.on_too_long == "skip" ? "" : ", with nothing to learn up to there,",
             " and skipped"));
  }
  if (summary.cut_samples > 0) tell(texts(summary.cut_samples) + " and cut");
}

int dry_run(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make) {
  const auto task = make(recipe, {.threads = options.threads, .overfit_batch = false});
  const TaskSummary summary = task->summary();
  tell_notices(summary);
  const int64_t steps = total_steps(recipe, summary);
  const double step_seconds = timed_step(*task, make_schedule(recipe, steps).lr(0));
  const uint64_t held = peak_memory_bytes();  // before evaluation's plan is made
  const Json json = dry_run_json(recipe, summary,
                                 {.steps = steps,
                                  .step_seconds = step_seconds,
                                  .evaluation_bytes = task->evaluation_bytes(),
                                  .program_bytes = held - std::min(held, planned_bytes(summary))});
  write_stdout(options.json ? json.dump(2) + "\n" : dry_run_text(recipe, summary, json));
  return 0;
}

int preview(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make) {
  const auto task = make(recipe, {.threads = options.threads, .overfit_batch = false});
  const TaskSummary summary = task->data_summary();
  tell_notices(summary);
  tell_left_out(recipe, summary);
  const std::vector<std::string> samples = task->preview(*options.preview);
  if (options.json) {
    Json list = Json::array();
    for (const std::string& sample : samples) list.push_back(to_valid_utf8(sample));
    write_stdout(Json({{"schema", 1}, {"samples", list}}).dump(2) + "\n");
    return 0;
  }
  std::string out;
  for (size_t i = 0; i < samples.size(); ++i) {
    out += str("--- sample ", i + 1, "\n");
    append_safe_text(out, samples[i], TextSafety::kTerminal);
    if (!out.ends_with('\n')) out += '\n';
  }
  write_stdout(out);
  return 0;
}

int overfit_batch(const Recipe& recipe, const TrainOptions& options, const TaskFactory& make) {
  constexpr int64_t kSteps = 300;
  constexpr double kShare = 0.1;
  const auto task = make(recipe, {.threads = options.threads, .overfit_batch = true});
  const StopSignals signals;
  const auto given = recipe.given.find("train.steps");
  const bool own_steps = given != recipe.given.end() && given->second.kind == ErrorKind::kUsage;
  const int64_t most = own_steps ? *recipe.train.steps : kSteps;
  Progress progress(most);
  double first = 0, last = 0, least = 0;
  const auto is_learnt = [&] { return last - least <= (first - least) * kShare; };
  int64_t step = 0;
  for (bool learnt = false; step < most && !learnt && signals.received() == 0;) {
    const auto begin = Clock::now();
    const StepResult result = task->step(recipe.optimizer.lr);
    if (!result.finite || !std::isfinite(result.loss)) {
      progress.clear();
      fail(ErrorKind::kDiverged, "the loss of one batch is not finite at step ", step + 1,
           " with lr ", recipe.optimizer.lr, ": ", describe_nonfinite(result, *task),
           "; try a lower optimizer.lr");
    }
    last = result.loss;
    if (step++ == 0) {
      first = last;
      least = task->least_loss();
    }
    learnt = is_learnt();
    const bool in_tokens = result.tokens > 0;
    progress.update({.step = step,
                     .share = static_cast<double>(step) / static_cast<double>(most),
                     .loss = last,
                     .lr = recipe.optimizer.lr,
                     .rate = (in_tokens ? result.tokens : result.samples) / seconds_since(begin),
                     .unit = in_tokens ? "tokens" : "samples"});
  }
  progress.clear();
  if (signals.received() != 0) return 128 + signals.received();
  if (options.json) {
    write_stdout(Json({{"schema", 1},
                       {"steps", step},
                       {"first_loss", first},
                       {"last_loss", last},
                       {"least_loss", least},
                       {"learnt", is_learnt()}})
                     .dump(2) +
                 "\n");
  }
  const std::string course = str(
      "loss ", metric_text(first), " → ", metric_text(last), " in ", step, " steps on one batch",
      least > 0 ? str(", of which no network can have less than ", metric_text(least)) : "");
  if (!is_learnt()) {
    fail(ErrorKind::kCheckFailed, "the network does not learn even one batch by heart: ", course,
         "; look at the model, optimizer.lr and the data (--preview)");
  }
  if (!options.json) write_stdout(course + ": the network can learn\n");
  return 0;
}

}  // namespace lumen::runtime
