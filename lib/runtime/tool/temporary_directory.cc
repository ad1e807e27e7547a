#include "lib/runtime/tool/temporary_directory.h"

#include <cstdlib>
#include <filesystem>

#include "lib/base/error.h"

namespace lumen::runtime {

TemporaryDirectory::TemporaryDirectory() {
  const char* root = std::getenv("TMPDIR");
  path_ = str(root != nullptr && *root != '\0' ? root : "/tmp", "/lumen-XXXXXX");
  if (::mkdtemp(path_.data()) == nullptr) {
    fail(ErrorKind::kCannotCreate, quoted(path_), ": no temporary directory can be made there");
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lumen::runtime
