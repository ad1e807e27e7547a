// What a run measures, step by step: metrics.jsonl, and the same as CSV and for TensorBoard.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/training/recipe.h"
#include "lib/runtime/training/run_directory.h"

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

  // Appends, not durably. Throws Error(kIo): the file is as it was then, and the row follows with
  // the next append or sync that succeeds.
  void append(io::Json row);
  // Makes what was appended durable. Throws Error(kIo).
  void sync();

 private:
  void flush();

  std::string path_;
  std::vector<io::Json> rows_;
  std::string pending_;
  int64_t size_ = 0;  // of whole lines in the file
  int fd_ = -1;
};

// The metrics of a run. A failed write does not end the run: it is reported on standard error, once
// per file, and repeated at the end.
class Metrics {
 public:
  // Continues the files of `directory` after `last_step` (0: from scratch).
  Metrics(const RunDirectory& directory, const LogRecipe& log, int64_t last_step);

  // A row {"step", "loss", …}; numbers that are not finite become null.
  void append(io::Json row);
  void append_sample(int64_t step, const std::string& prompt, const std::string& text);

  // Makes rows durable: before a checkpoint that promises them is announced.
  void sync();

  // At the end of the run: everything durable, loss.svg, and what failed before once more. Throws
  // Error(kIo) if something is still incomplete.
  void finish();

  const std::vector<io::Json>& rows() const { return rows_.rows(); }

 private:
  template <typename Body>
  void guarded(const char* file, Body body);
  void write_csv();
  void write_events();
  void append_csv(const io::Json& row);
  void append_events(const io::Json& row);

  const RunDirectory& directory_;
  LogRecipe log_;
  StepLines rows_;
  std::optional<StepLines> samples_;  // only if the recipe asks for samples
  std::vector<std::string> columns_;  // of the CSV
  bool failed_ = false;
  std::set<std::string> reported_;  // files whose failure has been reported
};

}  // namespace lumen::runtime
