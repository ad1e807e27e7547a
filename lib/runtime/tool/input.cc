#include "lib/runtime/tool/input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/tool/output.h"

namespace lumen::runtime {
namespace {

enum class Read { kSome, kNothing, kEnd };

// Appends a block of what there is. kNothing: a signal came first, or the descriptor does not wait.
Read read_block(int descriptor, const std::string& place, std::string& buffer) {
  char block[1 << 13];  // on the stack
  const ssize_t count = ::read(descriptor, block, sizeof block);
  if (count == 0) return Read::kEnd;
  if (count < 0) {
    if (errno == EAGAIN || errno == EINTR) return Read::kNothing;
    fail(ErrorKind::kIo, "cannot read ", place, ": ", std::strerror(errno));
  }
  buffer.append(block, static_cast<size_t>(count));
  if (buffer.size() > limits::kPromptBytes) {
    fail(ErrorKind::kMalformed, place, ": longer than ", limits::kPromptBytes,
         " bytes (limit prompt-bytes)");
  }
  return Read::kSome;
}

// Appends what there is, waiting for at least one byte; false at the end.
bool read_more(int descriptor, const std::string& place, std::string& buffer) {
  for (;;) {
    const Read read = read_block(descriptor, place, buffer);
    if (read != Read::kNothing) return read == Read::kSome;
    pollfd waiting = {descriptor, POLLIN, 0};
    ::poll(&waiting, 1, -1);
  }
}

constexpr const char* kStandardInput = "standard input";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8, as Windows' editors write

}  // namespace

std::string read_standard_input() {
  std::string text;
  if (is_terminal(STDIN_FILENO)) return text;
  constexpr int kPatienceMilliseconds = 2000;
  pollfd waiting = {STDIN_FILENO, POLLIN, 0};
  if (::poll(&waiting, 1, kPatienceMilliseconds) == 0) {
    write_stderr("note: waiting for the end of standard input (use </dev/null if there is none)\n");
  }
  while (read_more(STDIN_FILENO, kStandardInput, text)) {
  }
  return text;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

LineInput::LineInput(const std::string& path)
    : place_(path == "-" ? kStandardInput : io::place_of(path)),
      descriptor_(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(ErrorKind::kMissing, place_, ": ", std::strerror(errno));
  if (path != "-" && io::is_directory(path)) {
    fail(ErrorKind::kMissing, place_, ": is a directory, expected a file");
  }
}

LineInput::~LineInput() {
  if (descriptor_ != STDIN_FILENO) ::close(descriptor_);
}

void LineInput::drop_taken() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  searched_ = buffer_.size();
}

bool LineInput::is_ready() {
  if (at_end_ || has_line()) return true;
  pollfd waiting = {descriptor_, POLLIN, 0};
  if (::poll(&waiting, 1, 0) <= 0) return false;
  drop_taken();
  at_end_ = read_block(descriptor_, place_, buffer_) == Read::kEnd;
  return at_end_ || has_line();
}

bool LineInput::next(std::string& line) {
  for (;;) {
    const size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos || at_end_) {
      if (end == std::string::npos && begin_ == buffer_.size()) return false;
      line.assign(buffer_, begin_, end == std::string::npos ? end : end - begin_);
      begin_ = end == std::string::npos ? buffer_.size() : end + 1;
      searched_ = begin_;
      if (++number_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
      return true;
    }
    drop_taken();
    at_end_ = !read_more(descriptor_, place_, buffer_);
  }
}

}  // namespace lumen::runtime
