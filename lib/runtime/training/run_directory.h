// The directory of a training run: locked, with checkpoints, metrics and at its top the result.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/io/file_lock.h"
#include "lib/io/json.h"

namespace lumen::runtime {

// Files of a run that Metrics writes.
inline constexpr const char* kMetricsRows = "metrics.jsonl";
inline constexpr const char* kMetricsCsv = "metrics.csv";
inline constexpr const char* kMetricsEvents = "events.out.tfevents.0.lumen";
inline constexpr const char* kSampleRows = "samples.jsonl";
inline constexpr const char* kLossCurve = "loss.svg";
// The result in one file more, if the recipe asks for it.
inline constexpr const char* kGgufModel = "model.gguf";
inline constexpr const char* kGgufAdapter = "adapter.gguf";

//   model.safetensors, config.json, …  the result, as lumen-run opens it
//   recipe.toml   with all its values      run.json      versions, machine, data with hashes
//   metrics.jsonl, metrics.csv, samples.jsonl, events.out.tfevents.0.lumen, loss.svg
//   checkpoints/step-N/                    .lock         held while a run writes here
class RunDirectory {
 public:
  // Makes the directory where needed and locks it. Throws Error: kCannotCreate if it cannot be made
  // or written; kRetry naming the process if another run holds it; kCannotCreate if it has a model
  // that is not the result of a run, unless `force`.
  RunDirectory(const std::string& path, bool force);
  // Removes the directory if it was made here and no run began in it.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string checkpoints() const { return file("checkpoints"); }

  // Throws Error(kCannotCreate) if a run here, whose result has the files `exported`, would write
  // over or remove one of `inputs`: files, or directories of models and tokenizers. That an earlier
  // run's recipe.toml is the recipe does not matter.
  void refuse_inputs(const std::vector<std::string>& inputs,
                     const std::vector<std::string>& exported) const;

  // What its destructor removes if no run began: for the end of a process without destructors.
  std::vector<std::string> traces() const;

  // Whether an earlier run left checkpoints or metrics here.
  bool has_run() const;

  // Removes what an earlier run left: checkpoints, metrics and the weights that it made.
  void clear();

  // Lets `write` put files into a temporary directory and moves them to the top one by one, each
  // durable before it appears; model weights first. The whole model that an earlier result was does
  // not stay beside an adapter, nor an adapter beside a whole model, nor a GGUF file of it beside
  // either. Throws Error(kIo).
  void publish(FunctionRef<void(const std::string& directory)> write);

 private:
  void lock();
  bool is_result() const;
  void refuse_foreign_model() const;

  std::string path_;
  bool made_ = false;
  std::optional<io::FileLock> lock_;
};

}  // namespace lumen::runtime
