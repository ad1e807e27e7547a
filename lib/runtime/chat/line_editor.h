// Typing lines at a terminal.
#pragma once

#include <memory>
#include <string>

#include "lib/runtime/chat/completion.h"
#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {

// Where a chat's lines come from; tests bring their own.
class LineReader {
 public:
  enum class Event {
    kLine,       // `text`, without the newline that ended it; pasted newlines are inside
    kInterrupt,  // Ctrl-C; `text` is what was typed so far and is discarded
    kEnd,        // Ctrl-D on an empty line, or the terminal is gone
    kTerminate,  // SIGTERM or SIGHUP
    kEdit,       // Ctrl-X Ctrl-E: `text` is to be edited elsewhere
  };
  struct Line {
    Event event;
    std::string text;
  };
  virtual ~LineReader() = default;

  // Shows `prompt` and waits for a line.
  virtual Line read(const std::string& prompt) = 0;

  // Adds `entry` to the history.
  virtual void remember(const std::string& entry) = 0;

  // Lets Tab ask `completer` from now on; null: nobody.
  virtual void complete_with(Completer completer) = 0;
};

// Line editing by libedit: arrows and word motion, search in the history (Ctrl-R), UTF-8, Tab
// (common_beginning of what the completer says, else a list), and bracketed paste, of which
// newlines become part of the line instead of sending it. On a terminal that is "dumb" or unknown:
// plain lines. The terminal is in its normal state except inside read(), and is put back on every
// way out of it. One at a time; not thread-safe.
class LineEditor : public LineReader {
 public:
  // `history_file` is read now and appended to as lines are remembered; "" keeps none.
  LineEditor(SignalWatch& signals, const std::string& history_file);
  ~LineEditor() override;

  Line read(const std::string& prompt) override;
  void remember(const std::string& entry) override;
  void complete_with(Completer completer) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// $XDG_STATE_HOME/lumen/history, by default in ~/.local/state; "" if there is no home.
std::string history_path();

}  // namespace lumen::runtime
