// The loop of a run: steps, evaluations, checkpoints, metrics, until the budget is used up.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "lib/base/clock.h"
#include "lib/io/checkpoint.h"
#include "lib/optim/schedule.h"
#include "lib/runtime/tool/profile.h"
#include "lib/runtime/tool/stop_signals.h"
#include "lib/runtime/training/metrics.h"
#include "lib/runtime/training/progress.h"
#include "lib/runtime/training/run_directory.h"
#include "lib/runtime/training/train_task.h"

namespace lumen::runtime {

// How many steps the run has; 0 if only time ends it.
int64_t total_steps(const Recipe& recipe, const TaskSummary& summary);

// The learning rates of the recipe over `steps`.
optim::Schedule make_schedule(const Recipe& recipe, int64_t steps);

// Throws Error(kMismatch) naming the file if the data are not those of the checkpoint.
void check_data(const io::Checkpoint& from, const TaskSummary& summary);

// Everything of a run that is not the task's, as checkpoints keep it.
struct LoopState {
  int64_t step = 0;  // optimizer steps done, skipped ones too
  double tokens = 0, samples = 0, seconds = 0;
  double loss = 0, grad_norm = 0;          // of the last step
  double row_amount = 0, row_seconds = 0;  // tokens or samples since the last row, and their time
  // A signal came before the last step was evaluated: the next start does that.
  bool unfinished = false;
  int64_t skipped = 0, nonfinite_in_row = 0;
  std::map<std::string, double> evaluation;  // the last one
  int64_t evaluation_step = -1;
  std::optional<double> best;  // of checkpoint.metric
  int64_t best_step = -1;
  std::optional<double> stop_best;  // of eval.early_stop.metric
  int64_t stop_bad = 0;             // evaluations since without improvement

  io::Json to_json() const;
  // Throws Error(kMalformed).
  static LoopState from_json(const io::Json& json);
};

// What is not finite after the last step of `task`, which had this result, in words: "its loss is
// NaN, the first gradient that is not finite is of 'fc1.weight', it read the training samples 3, 8
// (from 0)"; "" if nothing is.
std::string describe_nonfinite(const StepResult& result, const TrainTask& task);

class TrainLoop {
 public:
  // `summary`: the task's. `from`: the checkpoint that the task was restored from. `profiler`: if
  // given, measures the steps. All that is passed must outlive the loop.
  TrainLoop(const Recipe& recipe, TrainTask& task, const TaskSummary& summary,
            const RunDirectory& directory, const StopSignals& signals, const io::Checkpoint* from,
            Profiler* profiler = nullptr);

  // Trains to the end of the budget, an early stop, or a signal, and saves; a signal ends an
  // evaluation too. Throws Error: kDiverged after train.max_nonfinite steps in a row without a
  // finite loss, or if at the end the loss or the weights are not finite, kIo if the checkpoint at
  // a signal cannot be written; what was saved before stays.
  void run();

  const LoopState& state() const { return state_; }
  int64_t total_steps() const { return total_; }
  // What ended it: "epochs", "steps", "tokens", "time", "early stop", "SIGINT", "SIGTERM".
  const std::string& ended_by() const { return ended_by_; }
  // Why the checkpoint at the end was not written; none if it was.
  const std::optional<Error>& unsaved() const { return unsaved_; }
  // The newest checkpoint; "" if there is none.
  const std::string& checkpoint() const { return saved_.path; }
  Metrics& metrics() { return metrics_; }

  // Gives the task the weights of the best checkpoint there is; false if there is none.
  bool restore_best();

 private:
  bool done() const;
  double share() const;
  double seconds() const;
  void one_step();
  void finish_step();
  void count_nonfinite(const StepResult& result);
  [[noreturn]] void diverge(const std::string& found);
  bool is_sound();
  void take_evaluation(std::map<std::string, double> evaluation);
  void watch_metrics();
  void write_row(bool evaluated);
  void write_samples(const std::vector<std::string>& texts);
  void save(bool required);
  void confirm_checkpoint();
  // Removes all checkpoints but the newest and the best ones; what is damaged is none of them.
  void prune();
  bool is_whole(const io::CheckpointEntry& entry);
  // Whether the evaluation of this step is one of the best checkpoint.keep_best.
  bool is_among_best() const;
  void forget_other_metrics(const io::Json& before);
  const std::string& budget_name() const;
  double metric(const std::string& name) const;

  const Recipe& recipe_;
  TrainTask& task_;
  const RunDirectory& directory_;
  const StopSignals& signals_;
  const TaskSummary& summary_;
  Profiler* const profiler_;
  int64_t total_;
  optim::Schedule schedule_;
  LoopState state_;
  Metrics metrics_;
  Progress progress_;
  int64_t evaluation_every_, checkpoint_every_;
  bool has_evaluation_ = true, new_best_ = false, stop_early_ = false;
  int64_t first_step_;
  double first_share_ = 0, seconds_before_;
  Clock::time_point start_ = Clock::now();
  StepResult last_;
  double last_lr_ = 0;
  struct Saved {
    int64_t step = -1;
    std::string path;
  };
  // The newest checkpoint, and the newest from whose weights a finite loss came. Older ones are
  // removed when the one that follows has shown that.
  Saved saved_, good_;
  bool prune_pending_ = false;
  std::set<int64_t> whole_;  // steps of checkpoints that were read back
  std::string ended_by_;
  std::optional<Error> unsaved_;
};

// Kills the process with SIGKILL at a named point, for tests: LUMEN_TEST_KILL_AT = "renamed" or,
// at its third time, "renamed:3". The points are those of io/checkpoint.h and "step", "metrics",
// "exported".
void commit_point(std::string_view name);

}  // namespace lumen::runtime
