// What reaches the user: checked writes, and model text made safe to show.
#pragma once

#include <string>
#include <string_view>

namespace lumen::runtime {

// Writes all of `text` to a file descriptor, at once and unbuffered. Throws Error(kIo) naming
// `name` when it cannot: disk full, descriptor closed. (A reader that went away ends the process
// by SIGPIPE instead: see run_tool.)
void write_all(int descriptor, std::string_view text, std::string_view name);

// One of the two standard streams; results go to stdout, everything else to stderr.
void write_stdout(std::string_view text);
void write_stderr(std::string_view text);

// Where model text goes, and so what must not get there.
enum class TextSafety {
  kRaw,       // nothing is changed: --raw into a pipe
  kPipe,      // valid UTF-8 without escape sequences
  kTerminal,  // as kPipe, and without carriage returns and other cursor motion
};

// Appends `text`, whole characters of a model's answer, to `out` as `safety` asks: invalid bytes
// become U+FFFD; control characters (C0 except newline and tab, DEL, C1) are dropped. Does not
// allocate if `out` has room.
void append_safe_text(std::string& out, std::string_view text, TextSafety safety);

bool is_terminal(int descriptor);

// Whether the terminal, by $TERM, knows no cursor motion: "dumb" or unknown.
bool is_plain_terminal();

// Whether text may have a style there: a terminal that is not plain, and no $NO_COLOR.
bool shows_styles(int descriptor);

// `text` fainter than the rest. What is written in one piece never leaves a terminal faint.
std::string dimmed(std::string_view text);

}  // namespace lumen::runtime
