// What a run measures, step by step: metrics.jsonl, and the same as CSV and for TensorBoard.
#pragma once

#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/recipe.h"
#include "lib/runtime/run_directory.h"

namespace lumen::runtime {

// A file of one JSON object per line, each with a "step", that grows by appending. A line that a
// crash cut short, and lines after the step from which a run goes on, are removed when it is
// opened.
class StepLines {
 public:
  // Opens or makes the file, keeping the lines up to `last_step`. Throws Error(kIo, kCannotCreate).
  StepLines(std::string path, int64_t last_step);
  ~StepLines();
  StepLines(const StepLines&) = delete;
  StepLines& operator=(const StepLines&) = delete;

  const std::vector<io::Json>& rows() const { return rows_; }

  // Appends, not durably. Throws Error(kIo).
  void append(io::Json row);
  // Makes what was appended durable. Throws Error(kIo).
  void sync();

 private:
  std::string path_;
  std::vector<io::Json> rows_;
  int fd_ = -1;
};

// The metrics of a run. A failed write does not end the run: it is reported once and remembered.
class Metrics {
 public:
  // Continues the files of `directory` after `last_step` (0: from scratch).
  Metrics(const RunDirectory& directory, const LogRecipe& log, int64_t last_step);

  // A row {"step", "loss", …}; numbers that are not finite become null.
  void append(io::Json row);
  void append_sample(int64_t step, const std::string& prompt, const std::string& text);

  // Makes rows durable: before a checkpoint that promises them is announced.
  void sync();

  // Writes loss.svg.
  void draw();

  const std::vector<io::Json>& rows() const { return rows_.rows(); }
  // The first failure, or "".
  const std::string& failure() const { return failure_; }

 private:
  template <typename Body>
  void guarded(Body body);
  void write_csv();
  void write_events();
  void append_csv(const io::Json& row);
  void append_events(const io::Json& row);

  const RunDirectory& directory_;
  LogRecipe log_;
  StepLines rows_, samples_;
  std::vector<std::string> columns_;  // of the CSV
  std::string failure_;
};

}  // namespace lumen::runtime
