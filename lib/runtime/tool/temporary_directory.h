// A directory that lives as long as an object.
#pragma once

#include <string>

namespace lumen::runtime {

// Created under TMPDIR (else /tmp); removed with all that is in it. Throws Error(kCannotCreate).
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lumen::runtime
