// A model's directory in the making.
#pragma once

#include <optional>
#include <string>

#include "lib/base/function_ref.h"
#include "lib/io/file_lock.h"
#include "lib/io/unfinished.h"

namespace lumen::runtime {

// Throws Error(kCannotCreate) if `path` is a directory that has files of others in it, unless
// `force`; what an OutputDirectory itself keeps there does not count.
void check_output_directory(const std::string& path, bool force);

// Claims `path` for one conversion, and fills it at once: until publish() ends well, what was there
// is there. Not thread-safe.
class OutputDirectory {
 public:
  // Makes the directory if it is not there, and locks it. Throws Error: kRetry if another
  // conversion writes into it; kCannotCreate if it cannot be made, or has files in it, unless
  // `force`.
  OutputDirectory(const std::string& path, bool force);
  // Removes the directory again if it was made here and nothing was published.
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  // Lets `write` put durable files into a temporary directory inside, then moves them here:
  // config.json, without which a directory is no model, goes first and comes back last. Weights and
  // tokenizers that were there, of the names that models have, are removed: a reader could take
  // them for the new ones. Throws Error(kIo), and what `write` throws.
  void publish(FunctionRef<void(const std::string& directory)> write);

 private:
  void claim(bool force);
  void abandon();

  std::string path_;
  std::optional<io::Unfinished> made_;  // the directory, if it was made here
  std::optional<io::FileLock> lock_;
};

}  // namespace lumen::runtime
