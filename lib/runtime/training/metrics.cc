#include "lib/runtime/training/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/training/event_file.h"
#include "lib/runtime/training/loss_curve.h"
#include "lib/runtime/training/progress.h"

namespace lumen::runtime {
namespace {

using io::Json;

constexpr uint64_t kMostBytes = uint64_t{4} << 30;

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

int open_to_append(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) {
    fail(io::creation_error(errno), io::place_of(path),
         ": cannot be opened for writing: ", std::strerror(errno));
  }
  return fd;
}

// The file is as it was if that fails.
void append_to(const std::string& path, std::string_view text) {
  const int fd = open_to_append(path);
  const off_t size = ::lseek(fd, 0, SEEK_END);
  try {
    write_all(fd, text, path);
  } catch (const Error&) {
    [[maybe_unused]] const int ignored = ::ftruncate(fd, size);
    ::close(fd);
    throw;
  }
  ::close(fd);
}

std::string csv_cell(const Json& row, const std::string& column) {
  const Json* value = io::find_value(row, column);
  return value ? value->dump() : "";
}

std::string csv_line(const Json& row, const std::vector<std::string>& columns) {
  std::vector<std::string> cells;
  for (const std::string& column : columns) cells.push_back(csv_cell(row, column));
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + cells[i];
  return line + "\n";
}

// The columns of `row` that `columns` lacks are added; whether there were any.
bool add_columns(const Json& row, std::vector<std::string>& columns) {
  bool added = false;
  for (const auto& [name, value] : row.items()) {
    if (std::find(columns.begin(), columns.end(), name) != columns.end()) continue;
    columns.push_back(name);
    added = true;
  }
  return added;
}

std::string event_of(const Json& row) {
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [name, value] : row.items()) {
    if (name != "step" && value.is_number()) values.emplace_back(name, value.get<double>());
  }
  return scalar_event(now(), row["step"].get<int64_t>(), values);
}

}  // namespace

StepLines::StepLines(std::string path, int64_t last_step) : path_(std::move(path)) {
  std::string kept;
  size_t length = 0;
  if (io::is_regular_file(path_)) {
    const std::string text = io::read_file(path_, kMostBytes);
    length = text.size();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      if (end == text.npos) break;  // cut short by a crash
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      begin = end + 1;
      Json row = Json::parse(line, nullptr, false);
      if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) break;
      if (row["step"].get<int64_t>() > last_step) break;
      kept += std::string(line) + "\n";
      rows_.push_back(std::move(row));
    }
  }
  if (kept.size() != length) io::write_file_atomically(path_, kept);
  size_ = static_cast<int64_t>(kept.size());
  fd_ = open_to_append(path_);
}

StepLines::~StepLines() {
  if (fd_ >= 0) ::close(fd_);
}

void StepLines::append(Json row) {
  pending_ += row.dump() + "\n";
  rows_.push_back(std::move(row));
  flush();
}

void StepLines::flush() {
  try {
    write_all(fd_, pending_, io::place_of(path_));
  } catch (const Error&) {
    [[maybe_unused]] const int ignored = ::ftruncate(fd_, size_);
    throw;
  }
  size_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
}

void StepLines::sync() {
  flush();
  if (::fsync(fd_) != 0) {
    fail(ErrorKind::kIo, io::place_of(path_), ": making it durable failed: ", std::strerror(errno));
  }
}

Metrics::Metrics(const RunDirectory& directory, const LogRecipe& log, int64_t last_step)
    : directory_(directory), log_(log), rows_(directory.file(kMetricsRows), last_step) {
  if (!log_.samples.prompts.empty()) samples_.emplace(directory.file(kSampleRows), last_step);
  for (const Json& row : rows_.rows()) add_columns(row, columns_);
  // The other two follow metrics.jsonl, so that they too have every step once.
  if (log_.csv) write_csv();
  if (log_.tensorboard) write_events();
}

template <typename Body>
void Metrics::guarded(const char* file, Body body) {
  try {
    body();
  } catch (const Error& error) {
    failed_ = true;
    if (reported_.insert(file).second) {
      tell(str("warning: ", error.what(), "; training goes on, what is missing follows later"));
    }
  }
}

void Metrics::append(Json row) {
  for (auto& [name, value] : row.items()) {
    if (value.is_number_float() && !std::isfinite(value.get<double>())) value = nullptr;
  }
  guarded(kMetricsRows, [&] { rows_.append(row); });
  if (log_.csv) guarded(kMetricsCsv, [&] { append_csv(row); });
  if (log_.tensorboard) guarded(kMetricsEvents, [&] { append_events(row); });
}

void Metrics::append_sample(int64_t step, const std::string& prompt, const std::string& text) {
  guarded(kSampleRows, [&] {
    samples_->append(
        {{"step", step}, {"prompt", to_valid_utf8(prompt)}, {"text", to_valid_utf8(text)}});
  });
}

void Metrics::sync() {
  guarded(kMetricsRows, [&] { rows_.sync(); });
  if (samples_) guarded(kSampleRows, [&] { samples_->sync(); });
}

void Metrics::finish() {
  rows_.sync();
  if (samples_) samples_->sync();
  if (failed_ && log_.csv) write_csv();
  if (failed_ && log_.tensorboard) write_events();
  if (log_.svg) {
    io::write_file_atomically(directory_.file(kLossCurve), loss_curve(rows_.rows()));
  }
}

void Metrics::write_csv() {
  std::string text = columns_.empty() ? "" : join(columns_, ",") + "\n";
  for (const Json& row : rows_.rows()) text += csv_line(row, columns_);
  io::write_file_atomically(directory_.file(kMetricsCsv), text);
}

void Metrics::write_events() {
  std::string text = event_file_header(now());
  for (const Json& row : rows_.rows()) text += event_of(row);
  io::write_file_atomically(directory_.file(kMetricsEvents), text);
}

void Metrics::append_csv(const Json& row) {
  if (add_columns(row, columns_)) return write_csv();
  append_to(directory_.file(kMetricsCsv), csv_line(row, columns_));
}

void Metrics::append_events(const Json& row) {
  append_to(directory_.file(kMetricsEvents), event_of(row));
}

}  // namespace lumen::runtime
