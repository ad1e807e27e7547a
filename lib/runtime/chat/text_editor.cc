#include "lib/runtime/chat/text_editor.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/tool/child_process.h"
#include "lib/runtime/tool/output.h"

namespace lumen::runtime {
namespace {

std::string editor_command() {
  for (const char* name : {"VISUAL", "EDITOR"}) {
    const char* command = std::getenv(name);
    if (command != nullptr && *command != '\0') return command;
  }
  fail(ErrorKind::kUsage,
       "no editor is named: set the environment variable VISUAL or EDITOR, e.g. EDITOR=nano");
}

// A file that only its user may read, removed at the end; named .md for the editor's colours.
class PrivateFile {
 public:
  explicit PrivateFile(const std::string& text) {
    constexpr std::string_view kSuffix = ".md";
    std::error_code error;
    const auto directory = std::filesystem::temp_directory_path(error);
    path_ = (error ? std::string("/tmp") : directory.string()) + "/lumen-XXXXXX";
    path_ += kSuffix;
    const int file = ::mkstemps(path_.data(), static_cast<int>(kSuffix.size()));
    if (file < 0) {
      fail(ErrorKind::kCannotCreate, "cannot create ", quoted(path_), ": ", std::strerror(errno));
    }
    try {
      write_all(file, text, path_);
    } catch (...) {
      ::close(file);
      ::unlink(path_.c_str());
      throw;
    }
    ::close(file);
  }
  ~PrivateFile() { ::unlink(path_.c_str()); }
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::string edit_text(const std::string& text, SignalWatch& signals) {
  const std::string command = editor_command();
  if (!is_terminal(STDIN_FILENO) || !is_terminal(STDOUT_FILENO)) {
    fail(ErrorKind::kUsage, "an editor needs a terminal");
  }
  const PrivateFile file(text.empty() || text.ends_with('\n') ? text : text + '\n');
  // The shell takes the command apart; the name of the file stays one word.
  const int code =
      run_at_terminal("/bin/sh", {"-c", command + " \"$@\"", command, file.path()}, signals);
  if (code != 0) {
    fail(ErrorKind::kProgramFailed, "the editor ", quoted(command),
         code == 127 ? str(" cannot be started") : str(" ended with exit code ", code));
  }
  std::string edited = io::read_file(file.path(), limits::kPromptBytes);
  edited.erase(edited.find_last_not_of('\n') + 1);
  return to_valid_utf8(edited);
}

}  // namespace lumen::runtime
