#include "lib/runtime/training/train_loop.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/sha256.h"
#include "lib/runtime/training/best_checkpoints.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

using io::Json;

double number_or(const Json& json, const char* key, double fallback) {
  return io::get_number(json, key, -INFINITY, INFINITY, fallback);
}

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

std::optional<double> read_optional(const Json& json, const char* key) {
  if (!io::find_value(json, key)) return std::nullopt;
  return io::get_number(json, key, -INFINITY, INFINITY);
}

bool is_finite_loss(const std::map<std::string, double>& evaluation) {
  const auto loss = evaluation.find("eval_loss");
  return loss == evaluation.end() || std::isfinite(loss->second);
}

// Hashes of the data in their order; what a continuation must find again.
Json data_hashes(const TaskSummary& summary) {
  Json hashes = Json::array();
  for (const auto& file : summary.data) hashes.push_back(file.sha256);
  return hashes;
}

}  // namespace

void check_data(const io::Checkpoint& from, const TaskSummary& summary) {
  constexpr const char* kAdvice = "; restore it or start over with --force";
  const auto differs = [&](const char* key, const Json& now) {
    const Json* before = io::find_value(from.state, key);
    return before && *before != now;
  };
  if (differs("data", data_hashes(summary))) {
    const Json& before = from.state["data"];
    for (size_t i = 0; i < summary.data.size(); ++i) {
      if (before.is_array() && i < before.size() && before[i] == summary.data[i].sha256) continue;
      fail(ErrorKind::kMismatch, quoted(summary.data[i].path),
           " is not what the run was trained on so far; restore the data or start over with "
           "--force");
    }
    fail(ErrorKind::kMismatch, "the run was trained on ", before.size(),
         " data files, now there are ", summary.data.size());
  }
  if (differs("tokens", summary.tokens_sha256)) {
    fail(ErrorKind::kMismatch,
         "the data have other tokens than the run was trained on so far: the ",
         "tokenizer, what it is trained on, or the chat template is another", kAdvice);
  }
  if (differs("base", summary.base_sha256)) {
    fail(ErrorKind::kMismatch, "model.path is another model than the run went on from", kAdvice);
  }
}

std::string describe_nonfinite(const StepResult& result, const TrainTask& task) {
  constexpr size_t kShown = 16;
  const NonfinitePlace place = task.find_nonfinite();
  std::vector<std::string> parts;
  if (!std::isfinite(result.loss)) {
    parts.push_back(str("its loss is ", std::isnan(result.loss) ? "NaN" : "infinite"));
  } else if (!std::isfinite(result.grad_norm)) {
    parts.push_back(str("its loss is ", result.loss, " but its gradient not finite"));
  }
  if (!place.weight.empty()) {
    parts.push_back(str("the weight ", quoted(place.weight), " is not finite"));
  }
  if (!place.gradient.empty()) {
    parts.push_back(str("the first gradient that is not finite is of ", quoted(place.gradient)));
  }
  if (parts.empty()) return {};
  if (const std::vector<int64_t>& samples = place.samples; !samples.empty()) {
    std::string list;
    for (size_t i = 0; i < std::min(samples.size(), kShown); ++i) {
      list += str(i > 0 ? ", " : "", samples[i]);
    }
    if (samples.size() > kShown) list += str(" and ", samples.size() - kShown, " more");
    parts.push_back(str("it read the training samples ", list, " (from 0)"));
  }
  return join(parts, ", ");
}

void commit_point(std::string_view name) {
  static const char* wanted = std::getenv("LUMEN_TEST_KILL_AT");
  if (!wanted || !*wanted) return;
  static int64_t times = 0;
  const std::string_view text = wanted;
  if (text.substr(0, text.find(':')) != name) return;
  int64_t nth = 1;
  if (text.find(':') != text.npos) parse_number(text.substr(text.find(':') + 1), nth);
  if (++times == nth) ::raise(SIGKILL);
}

int64_t total_steps(const Recipe& recipe, const TaskSummary& summary) {
  const TrainRecipe& train = recipe.train;
  if (train.steps) return *train.steps;
  double steps = 0;
  if (train.epochs) steps = *train.epochs * static_cast<double>(summary.steps_per_epoch);
  if (train.tokens) steps = *train.tokens / std::max(summary.tokens_per_step, 1.0);
  if (train.time) return 0;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(std::min(steps, 9e15) - 1e-9)));
}

optim::Schedule make_schedule(const Recipe& recipe, int64_t steps) {
  const ScheduleRecipe& s = recipe.schedule;
  optim::ScheduleConfig config;
  config.type = s.type;
  config.lr = recipe.optimizer.lr;
  config.total_steps = steps;
  config.warmup = s.warmup;
  config.min_lr = s.min_lr;
  config.step_size = s.step_size;
  config.milestones = s.milestones;
  config.gamma = s.gamma;
  config.power = s.power;
  config.period = s.period;
  config.period_factor = s.period_factor;
  config.timescale = s.timescale;
  config.div_factor = s.div_factor;
  config.final_div_factor = s.final_div_factor;
  config.decay_fraction = s.decay_fraction;
  config.decay = s.decay;
  config.factor = s.factor;
  config.patience = s.patience;
  config.threshold = s.threshold;
  config.cooldown = s.cooldown;
  if (steps > 0 && s.warmup >= 1 && s.warmup > static_cast<double>(steps)) {
    fail_at_key(recipe, "schedule.warmup",
                str("a warm-up of ", s.warmup, " steps is longer than the run of ", steps,
                    "; below 1 it is a share of the run"));
  }
  return with_context("[schedule]", [&] { return optim::Schedule(config); });
}

Json LoopState::to_json() const {
  return {{"step", step},
          {"tokens", tokens},
          {"samples", samples},
          {"seconds", seconds},
          {"loss", loss},
          {"grad_norm", grad_norm},
          {"row_amount", row_amount},
          {"row_seconds", row_seconds},
          {"unfinished", unfinished},
          {"skipped", skipped},
          {"nonfinite_in_row", nonfinite_in_row},
          {"evaluation", evaluation},
          {"evaluation_step", evaluation_step},
          {"best", optional_number(best)},
          {"best_step", best_step},
          {"stop_best", optional_number(stop_best)},
          {"stop_bad", stop_bad}};
}

LoopState LoopState::from_json(const Json& json) {
  constexpr int64_t kMost = INT64_MAX;
  LoopState state;
  state.step = io::get_int(json, "step", 0, kMost);
  state.tokens = number_or(json, "tokens", 0);
  state.samples = number_or(json, "samples", 0);
  state.seconds = number_or(json, "seconds", 0);
  state.loss = number_or(json, "loss", NAN);
  state.grad_norm = number_or(json, "grad_norm", NAN);
  state.row_amount = number_or(json, "row_amount", 0);
  state.row_seconds = number_or(json, "row_seconds", 0);
  state.unfinished = io::get_bool(json, "unfinished", false);
  state.skipped = io::get_int(json, "skipped", 0, kMost, 0);
  state.nonfinite_in_row = io::get_int(json, "nonfinite_in_row", 0, kMost, 0);
  if (const Json* evaluation = io::find_value(json, "evaluation"); evaluation) {
    for (const auto& [name, value] : evaluation->items()) {
      state.evaluation[name] = value.is_number() ? value.get<double>() : NAN;
    }
  }
  state.evaluation_step = io::get_int(json, "evaluation_step", -1, kMost, -1);
  state.best = read_optional(json, "best");
  state.best_step = io::get_int(json, "best_step", -1, kMost, -1);
  state.stop_best = read_optional(json, "stop_best");
  state.stop_bad = io::get_int(json, "stop_bad", 0, kMost, 0);
  return state;
}

TrainLoop::TrainLoop(const Recipe& recipe, TrainTask& task, const TaskSummary& summary,
                     const RunDirectory& directory, const StopSignals& signals,
                     const io::Checkpoint* from, Profiler* profiler)
    : recipe_(recipe),
      task_(task),
      directory_(directory),
      signals_(signals),
      summary_(summary),
      profiler_(profiler),
      total_(runtime::total_steps(recipe, summary_)),
      schedule_(make_schedule(recipe, total_)),
      state_(from ? LoopState::from_json(from->state["loop"]) : LoopState()),
      metrics_(directory, recipe.log, state_.step - (state_.unfinished ? 1 : 0)),
      progress_(total_) {
  const int64_t epoch = std::max<int64_t>(summary_.steps_per_epoch, 1);
  evaluation_every_ = recipe.eval.every.value_or(epoch);
  checkpoint_every_ = recipe.checkpoint.every.value_or(epoch);
  first_step_ = state_.step;
  seconds_before_ = state_.seconds;
  const int64_t patience = recipe.eval.early_stop.patience;
  stop_early_ = patience > 0 && state_.stop_bad >= patience;
  if (from) {
    // Of tokens the number of steps is an estimate.
    if (total_ > 0 && !recipe.train.tokens && state_.step > total_) {
      fail(ErrorKind::kMismatch, "the checkpoint has ", state_.step, " steps, the recipe only ",
           total_, ": give at least as many, or start over with --force");
    }
    if (const Json* schedule = io::find_value(from->state, "schedule")) {
      schedule_.load_state(*schedule);
    }
    // Of another run's the end of this one writes its own.
    const std::string own = str(directory.checkpoints(), "/step-", from->step);
    std::error_code error;
    saved_ = {std::filesystem::equivalent(from->path, own, error) ? from->step : -1, from->path};
    forget_other_metrics(from->state["recipe"]);
  }
  first_share_ = share();
  commit_point("metrics");
}

// The best so far is of the metric that the recipe `before` watched.
void TrainLoop::forget_other_metrics(const Json& before) {
  const auto watched = [&](const char* pointer, const std::string& now) {
    const Json::json_pointer place(pointer);
    return before.contains(place) && before[place] == now;
  };
  if (!watched("/checkpoint/metric", recipe_.checkpoint.metric)) {
    state_.best.reset();
    state_.best_step = -1;
  }
  if (!watched("/eval/early_stop/metric", recipe_.eval.early_stop.metric)) {
    state_.stop_best.reset();
    state_.stop_bad = 0;
    stop_early_ = false;
  }
}

double TrainLoop::seconds() const {
  return seconds_before_ + seconds_since(start_);
}

bool TrainLoop::done() const {
  if (recipe_.train.tokens) return state_.tokens >= *recipe_.train.tokens;
  if (recipe_.train.time) return state_.step > 0 && seconds() >= *recipe_.train.time;
  return state_.step >= total_;
}

double TrainLoop::share() const {
  if (recipe_.train.tokens) return state_.tokens / *recipe_.train.tokens;
  if (recipe_.train.time) return seconds() / *recipe_.train.time;
  return static_cast<double>(state_.step) / static_cast<double>(total_);
}

const std::string& TrainLoop::budget_name() const {
  static const std::string kNames[] = {"epochs", "steps", "tokens", "time"};
  const TrainRecipe& train = recipe_.train;
  return kNames[train.epochs ? 0 : train.steps ? 1 : train.tokens ? 2 : 3];
}

void TrainLoop::run() {
  if (state_.unfinished) {
    saved_.step = -1;  // what is saved lacks the evaluation
    last_.loss = state_.loss;
    last_.grad_norm = state_.grad_norm;
    last_lr_ = schedule_.lr(state_.step - 1);
    finish_step();
  }
  while (!state_.unfinished && !done() && !stop_early_ && signals_.received() == 0) {
    one_step();
    finish_step();
  }
  progress_.clear();
  const bool ended = !state_.unfinished && (done() || stop_early_);
  if (!ended) {
    ended_by_ = signals_.received() == SIGINT ? "SIGINT" : "SIGTERM";
  } else {
    ended_by_ = done() ? budget_name() : "early stop";
  }
  if (ended && !is_sound()) diverge("loss or weights at the end are not finite");
  try {
    save(true);
  } catch (const Error& error) {
    if (!ended) throw;
    unsaved_ = error;  // there may be room for the result
  }
  if (ended && !unsaved_) {
    prune_pending_ = true;  // also where an earlier start saved this, and was killed behind that
    confirm_checkpoint();
  }
  state_.seconds = seconds();
}

// What follows a step. Evaluation and texts are taken only as a whole, so that a run that a signal
// ends meanwhile makes them when it goes on, and has them once.
void TrainLoop::finish_step() {
  const bool at_end = done();
  const bool evaluation_is_due = state_.step % evaluation_every_ == 0 || at_end;
  const bool evaluates = has_evaluation_ && evaluation_is_due;
  const LogRecipe::Samples& samples = recipe_.log.samples;
  const bool writes_now = samples.every ? state_.step % *samples.every == 0 : evaluation_is_due;
  const bool writes = !samples.prompts.empty() && writes_now;
  const auto stops = [this] { return signals_.received() != 0; };
  std::map<std::string, double> evaluation;
  std::vector<std::string> texts;
  if (evaluates) evaluation = task_.evaluate(stops);
  if (writes && task_.has_finite_weights() && is_finite_loss(evaluation)) {
    texts = task_.sample(samples.prompts, samples.max_tokens, stops);
  }
  state_.unfinished = (evaluates || writes) && stops();
  if (state_.unfinished) return;
  if (evaluates) take_evaluation(std::move(evaluation));
  write_row(evaluates && has_evaluation_);
  write_samples(texts);
  const bool on_schedule = checkpoint_every_ > 0 && state_.step % checkpoint_every_ == 0;
  const bool for_best = evaluates && checkpoint_every_ > 0 && is_among_best();
  const bool asked = signals_.take_save_request();
  if (!at_end && (on_schedule || for_best || asked)) save(false);
  new_best_ = false;
  commit_point("step");
}

void TrainLoop::one_step() {
  const auto begin = Clock::now();
  last_lr_ = schedule_.lr(state_.step);
  run_step(profiler_, [&] { last_ = task_.step(last_lr_); });
  ++state_.step;
  state_.tokens += last_.tokens;
  state_.samples += last_.samples;
  state_.loss = last_.loss;
  state_.grad_norm = last_.grad_norm;
  state_.row_seconds += seconds_since(begin);
  const bool in_tokens = summary_.tokens_per_step > 0;
  state_.row_amount += in_tokens ? last_.tokens : last_.samples;
  count_nonfinite(last_);
  progress_.update({.step = state_.step,
                    .first_step = first_step_,
                    .share = share(),
                    .first_share = first_share_,
                    .loss = last_.loss,
                    .lr = last_lr_,
                    .rate = state_.row_seconds > 0 ? state_.row_amount / state_.row_seconds : 0,
                    .unit = in_tokens ? "tokens" : "samples"});
}

void TrainLoop::count_nonfinite(const StepResult& result) {
  if (!result.updated) ++state_.skipped;
  if (result.finite && std::isfinite(result.loss)) {
    state_.nonfinite_in_row = 0;
    confirm_checkpoint();
    return;
  }
  if (++state_.nonfinite_in_row < recipe_.train.max_nonfinite) return;
  write_row(false);
  const int64_t steps = state_.nonfinite_in_row;
  diverge(str("no finite loss in ", steps, steps == 1 ? " step" : " steps in a row"));
}

void TrainLoop::diverge(const std::string& found) {
  metrics_.sync();
  progress_.clear();
  // A run that went on from one whose weights give no finite loss would end here again.
  if (saved_.step != good_.step && saved_.step > first_step_) io::remove_checkpoint(saved_.path);
  const std::string kept = good_.path.empty() ? "there is no good checkpoint"
                                              : "the last good checkpoint is " + good_.path;
  const std::string details = describe_nonfinite(last_, task_);
  fail(ErrorKind::kDiverged, "training diverged: ", found, "; the last step is ", state_.step,
       ", with lr ", last_lr_, details.empty() ? "" : ": ", details, "; ", kept,
       "; try a lower optimizer.lr, or a warm-up");
}

// Whether the weights as they are now are worth keeping, which the loss of the next step would show
// if there were one.
bool TrainLoop::is_sound() {
  if (state_.nonfinite_in_row > 0 || !task_.has_finite_weights()) return false;
  return state_.evaluation_step == state_.step ? is_finite_loss(state_.evaluation)
                                               : std::isfinite(task_.loss_after_step());
}

double TrainLoop::metric(const std::string& name) const {
  const auto found = state_.evaluation.find(name);
  LUMEN_CHECK(found != state_.evaluation.end());  // recipes name only what their task measures
  return found->second;
}

void TrainLoop::take_evaluation(std::map<std::string, double> evaluation) {
  state_.evaluation = std::move(evaluation);
  has_evaluation_ = !state_.evaluation.empty();
  if (!has_evaluation_) return;
  state_.evaluation_step = state_.step;
  watch_metrics();
  std::string line = str("step ", state_.step, ":");
  for (const auto& [name, value] : state_.evaluation)
    line += str(" ", name, " ", metric_text(value));
  progress_.say(line);
}

// What depends on evaluations: the best so far, early stop, a plateau of the schedule.
void TrainLoop::watch_metrics() {
  const auto improves = [](const std::string& name, double value, const std::optional<double>& best,
                           double by) {
    if (!std::isfinite(value)) return false;
    if (!best) return true;
    return higher_is_better(name) ? value > *best + by : value < *best - by;
  };
  const std::string& watched = recipe_.checkpoint.metric;
  if (const double value = metric(watched); improves(watched, value, state_.best, 0)) {
    state_.best = value;
    state_.best_step = state_.step;
    new_best_ = true;
  }
  if (const auto found = state_.evaluation.find("eval_loss");
      found != state_.evaluation.end() && std::isfinite(found->second)) {
    schedule_.observe(found->second);
  }
  const EvalRecipe::EarlyStop& stop = recipe_.eval.early_stop;
  if (stop.patience == 0) return;
  const double value = metric(stop.metric);
  if (improves(stop.metric, value, state_.stop_best, stop.min_delta)) {
    state_.stop_best = value;
    state_.stop_bad = 0;
  } else if (++state_.stop_bad >= stop.patience) {
    stop_early_ = true;
  }
}

void TrainLoop::write_row(bool evaluated) {
  const bool wanted = state_.step % recipe_.log.every == 0 || evaluated || done();
  if (!wanted) return;
  Json row = {{"step", state_.step},
              {"loss", last_.loss},
              {"lr", last_lr_},
              {"grad_norm", last_.grad_norm}};
  const char* rate = summary_.tokens_per_step > 0 ? "tokens_per_second" : "samples_per_second";
  if (state_.row_seconds > 0) row[rate] = state_.row_amount / state_.row_seconds;
  if (evaluated) {
    for (const auto& [name, value] : state_.evaluation) row[name] = value;
  }
  metrics_.append(std::move(row));
  state_.row_amount = state_.row_seconds = 0;
}

void TrainLoop::write_samples(const std::vector<std::string>& texts) {
  const std::vector<std::string>& prompts = recipe_.log.samples.prompts;
  for (size_t i = 0; i < std::min(texts.size(), prompts.size()); ++i) {
    metrics_.append_sample(state_.step, prompts[i], texts[i]);
    progress_.say(str("step ", state_.step, ": ", quoted(texts[i], 400)));
  }
}

// The last step had a finite loss, so the weights before it are good.
void TrainLoop::confirm_checkpoint() {
  good_ = saved_;
  if (prune_pending_) prune();
  prune_pending_ = false;
}

void TrainLoop::save(bool required) {
  if (saved_.step == state_.step) return;
  // Nothing to go on from: what was saved before is.
  if (state_.nonfinite_in_row > 0 || !task_.has_finite_weights()) return;
  state_.seconds = seconds();
  const Json recipe = to_json(recipe_);
  const TaskState task = task_.state();
  io::Checkpoint checkpoint;
  checkpoint.step = state_.step;
  checkpoint.weights = task.weights;
  checkpoint.optimizer = task.optimizer;
  checkpoint.state = {{"task", task.json},
                      {"loop", state_.to_json()},
                      {"schedule", schedule_.state()},
                      {"recipe", recipe},
                      {"data", data_hashes(summary_)},
                      {"tokens", summary_.tokens_sha256},
                      {"base", summary_.base_sha256}};
  const bool evaluated = state_.evaluation_step == state_.step && state_.evaluation.size() > 0;
  const Json value = evaluated ? Json(metric(recipe_.checkpoint.metric)) : Json();
  checkpoint.about = {{"recipe_sha256", io::sha256(recipe.dump())},
                      {"metric", recipe_.checkpoint.metric},
                      {"value", value},
                      {"lumen", build_description()["version"]}};
  metrics_.sync();
  try {
    saved_.path = io::write_checkpoint(directory_.checkpoints(), checkpoint,
                                       [](std::string_view point) { commit_point(point); });
  } catch (const Error& error) {
    const std::string last =
        saved_.path.empty() ? "there is none yet" : "the last good one is " + saved_.path;
    const std::string message =
        str("the checkpoint of step ", state_.step, " was not saved: ", error.what(), "; ", last);
    if (required) throw Error(error.kind(), message);
    progress_.say(str("warning: ", message, "; training goes on"));
    return;
  }
  saved_.step = state_.step;
  progress_.say(str("step ", state_.step, ": saved ", saved_.path));
  prune_pending_ = true;
}

// Each is read once: what was whole then is taken to stay so.
bool TrainLoop::is_whole(const io::CheckpointEntry& entry) {
  if (whole_.contains(entry.step)) return true;
  if (!io::verify_checkpoint(entry.path).empty()) return false;
  whole_.insert(entry.step);
  return true;
}

bool TrainLoop::is_among_best() const {
  const int64_t most = recipe_.checkpoint.keep_best;
  if (new_best_ || most < 2) return new_best_ && most > 0;
  const std::string& watched = recipe_.checkpoint.metric;
  const double value = metric(watched);
  if (!std::isfinite(value)) return false;
  const auto others =
      best_checkpoints(io::list_checkpoints(directory_.checkpoints()), watched, state_.step - 1);
  return count_as_good(others, watched, value) < most;
}

void TrainLoop::prune() {
  // Nothing is removed on the word of a checkpoint that cannot be read back.
  if (const std::string problem = io::verify_checkpoint(saved_.path); !problem.empty()) {
    progress_.say(str("warning: ", problem, "; the older checkpoints stay"));
    return;
  }
  whole_.insert(saved_.step);
  // Later ones than the step just saved are of a past that the run went back from.
  std::vector<io::CheckpointEntry> entries = io::list_checkpoints(directory_.checkpoints());
  std::vector<int64_t> kept;
  for (const io::CheckpointEntry& entry : entries) {
    if (static_cast<int64_t>(kept.size()) == recipe_.checkpoint.keep_last) break;
    if (entry.step <= saved_.step && is_whole(entry)) kept.push_back(entry.step);
  }
  const std::string& metric = recipe_.checkpoint.metric;
  int64_t best = 0;
  for (const io::CheckpointEntry& entry : best_checkpoints(entries, metric, saved_.step)) {
    if (best == recipe_.checkpoint.keep_best) break;
    if (!is_whole(entry)) continue;
    kept.push_back(entry.step);
    ++best;
  }
  const auto remove = [&](const std::string& path) {
    try {
      io::remove_checkpoint(path, [](std::string_view point) { commit_point(point); });
    } catch (const Error& error) {
      progress_.say(str("warning: ", error.what()));
    }
  };
  for (const io::CheckpointEntry& entry : entries) {
    if (std::find(kept.begin(), kept.end(), entry.step) != kept.end()) continue;
    whole_.erase(entry.step);
    remove(entry.path);
  }
  // What cannot be read goes when it would if it could, or damage would fill the disk.
  for (const io::BrokenCheckpoint& broken : io::broken_checkpoints(directory_.checkpoints())) {
    if (broken.step >= saved_.step) continue;
    progress_.say(
        str("warning: ", broken.problem, "; this checkpoint is removed, a newer one is ", "whole"));
    remove(broken.path);
  }
}

bool TrainLoop::restore_best() {
  if (state_.best_step == state_.step) return true;  // the last are the best
  for (const io::CheckpointEntry& entry : io::list_checkpoints(directory_.checkpoints())) {
    if (entry.step != state_.best_step) continue;
    if (const std::string problem = io::verify_checkpoint(entry.path); !problem.empty()) {
      progress_.say("warning: " + problem);
      return false;
    }
    const io::Checkpoint checkpoint = io::read_checkpoint(entry.path);
    with_context(entry.path, [&] {
      task_.restore({checkpoint.weights, checkpoint.optimizer, checkpoint.state["task"]});
    });
    return true;
  }
  return false;
}

}  // namespace lumen::runtime
