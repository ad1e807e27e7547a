#include "lib/runtime/tool/output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::runtime {
namespace {

bool is_dropped(uint32_t c, TextSafety safety) {
  if (c == '\n' || c == '\t') return false;
  if (c == '\r') return safety == TextSafety::kTerminal;
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

}  // namespace

void write_all(int descriptor, std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) {  // a pipe that whoever reads it made non-blocking
        pollfd waiting = {descriptor, POLLOUT, 0};
        ::poll(&waiting, 1, -1);
        continue;
      }
      fail(ErrorKind::kIo, "cannot write ", name, ": ", std::strerror(errno));
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void write_stdout(std::string_view text) {
  write_all(STDOUT_FILENO, text, "standard output");
}
void write_stderr(std::string_view text) {
  write_all(STDERR_FILENO, text, "standard error");
}

void append_safe_text(std::string& out, std::string_view text, TextSafety safety) {
  if (safety == TextSafety::kRaw) {
    out += text;
    return;
  }
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const uint32_t c = next_code_point(text, pos);
    if (is_dropped(c, safety)) continue;
    if (c == 0xFFFD && pos - begin == 1) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(begin, pos - begin);
    }
  }
}

bool is_terminal(int descriptor) {
  return ::isatty(descriptor) == 1;
}

bool is_plain_terminal() {
  const char* term = std::getenv("TERM");
  return !term || !*term || std::string_view(term) == "dumb";
}

bool shows_styles(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(descriptor) && !is_plain_terminal() && (!no_color || !*no_color);
}

std::string dimmed(std::string_view text) {
  return str("\x1b[2m", text, "\x1b[22m");  // ECMA-48, SGR 2: faint, 22: neither bold nor faint
}

}  // namespace lumen::runtime
