// What the training loop needs of whatever is trained: one step, an evaluation, its state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/io/json.h"
#include "lib/runtime/training/recipe.h"
#include "lib/tensor/array.h"

namespace lumen::runtime {

// One optimizer step over the global batch, accumulation included.
struct StepResult {
  double loss = 0;       // mean over the targets that count, before the update
  double tokens = 0;     // targets that count; 0 if the data are no sequences
  double samples = 0;    // images, rows or sequences
  double grad_norm = 0;  // L2, before clipping
  // False: loss or gradients are NaN or infinite and nothing was updated. What the scaler of f16
  // answers by a smaller scale counts as finite.
  bool finite = true;
  bool updated = true;  // false: the step was left out, for that, for the scaler or as an outlier
};

// Where a step that is not finite went wrong, for people.
struct NonfinitePlace {
  std::string weight, gradient;  // names of the first parameters that are, have one; "": none does
  std::vector<int64_t> samples;  // of the training data that the step read, from 0; empty: unknown
};

// Everything that a bit-exact continuation needs. The arrays share memory with the task, so they
// hold until its next step.
struct TaskState {
  std::map<std::string, Array> weights, optimizer;
  io::Json json;  // data cursor, random generators, schedule, scaler, counters
};

// What is known before the first step, for --dry-run, the log and the run directory.
struct TaskSummary {
  struct Parameter {
    std::string name;
    Shape shape;
    bool trained = true;
  };
  struct DataFile {
    std::string path;
    uint64_t bytes = 0;
    std::string sha256;  // lower-case hexadecimal; "" for generated data
    int64_t samples = 0;
    int64_t skipped = 0;            // bad rows that the recipe allows to skip
    int64_t too_long = 0, cut = 0;  // texts longer than a row that are left out, and cut
  };
  int64_t parameters = 0;  // elements, trained or not
  int64_t trained_parameters = 0;
  uint64_t parameter_bytes = 0, optimizer_bytes = 0;
  uint64_t arena_bytes = 0;  // activations and gradients as planned
  std::vector<Parameter> shapes;
  std::vector<DataFile> data;
  std::string tokens_sha256;  // DatasetInfo's: what tokenizer and chat template make of the data
  std::string base_sha256;  // of the model to go on from, as far as the checkpoint lacks it; or ""
  int64_t steps_per_epoch = 0;
  int64_t left_out_samples = 0;  // of each epoch, as they fill no batch
  double samples_per_step = 0;
  double tokens_per_step = 0;  // about, where lengths differ; 0 if the data are no sequences
  std::string model;           // one line: "LeNet-5, 10 classes"
  std::string batch;           // one line: "64 images of 1×28×28"
  int64_t too_long_samples = 0, cut_samples = 0;  // those of all files
  std::vector<std::string> notices;               // one sentence each: built-in data used, …
};

// Whether what takes long is to be broken off.
using StopCheck = FunctionRef<bool()>;
inline constexpr auto never = [] { return false; };

// Not thread-safe: the loop calls from one thread. Whatever fails throws Error.
class TrainTask {
 public:
  virtual ~TrainTask() = default;

  virtual TaskSummary summary() const = 0;

  // Of that only the data files, what is left out or cut, and the notices: at once, where summary()
  // plans a step and reads the model to go on from.
  virtual TaskSummary data_summary() const { return summary(); }

  // One step with learning rate `lr`. If the result is not finite nothing has changed but the data
  // cursor.
  virtual StepResult step(double lr) = 0;

  // With TaskOptions::overfit_batch and after a step: the least mean loss on the batch that any
  // network could reach; more than 0 where the same input has several targets.
  virtual double least_loss() const { return 0; }

  // Whether every trained weight is finite.
  virtual bool has_finite_weights() const = 0;

  // What is not finite after the last step. Reads all weights and gradients.
  virtual NonfinitePlace find_nonfinite() const { return {}; }

  // The loss that the weights as they are now have on what the last step saw; 0 before a step.
  // Changes no training state.
  virtual double loss_after_step() = 0;

  // What evaluate() and loss_after_step() need beside the memory of a step.
  virtual uint64_t evaluation_bytes() const { return 0; }

  // Metrics over the evaluation split, under the names of metrics.jsonl: "eval_loss" always, then
  // "eval_accuracy", "eval_perplexity", "eval_bits_per_byte", …. Changes no training state. Empty
  // without such a split, and when `stops` said so between two batches.
  virtual std::map<std::string, double> evaluate(const StopCheck& stops = never) = 0;

  virtual TaskState state() const = 0;
  // Goes on from `state`. Throws Error(kMismatch) naming the tensor or key that does not fit.
  virtual void restore(const TaskState& state) = 0;

  // Writes the result (model.safetensors, config.json, tokenizer files, or a PEFT adapter) into
  // the existing directory.
  virtual void export_model(const std::string& directory) = 0;

  // `prompts` with their continuations, always the same for the same weights; empty for
  // classifiers. A prompt that leaves no room in the context, or has characters without a token,
  // has no continuation. Changes no training state. Of no use if `stops` said so between two
  // tokens.
  virtual std::vector<std::string> sample(const std::vector<std::string>& prompts,
                                          int64_t max_tokens, const StopCheck& stops = never) = 0;

  // The next `count` training samples as people read them, targets that do not count marked.
  // Changes no training state.
  virtual std::vector<std::string> preview(int64_t count) = 0;
};

struct TaskOptions {
  std::optional<int64_t> threads;  // absent: physical cores
  // Every step sees the first batch, without augmentation, dropout, label smoothing and the loss of
  // routers.
  bool overfit_batch = false;
};

// Makes the task of a recipe: reads the data, makes or opens model and tokenizer, plans the step.
// Throws Error.
std::unique_ptr<TrainTask> make_task(const Recipe& recipe, const TaskOptions& options);

// make_task, or a test's stand-in.
using TaskFactory = std::function<std::unique_ptr<TrainTask>(const Recipe&, const TaskOptions&)>;

}  // namespace lumen::runtime
