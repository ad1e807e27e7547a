#include "lib/runtime/chat/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <deque>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/chat/history_file.h"
#include "lib/runtime/tool.h"
#include "lib/runtime/tool/output.h"

namespace lumen::runtime {
namespace {

// libedit converts between bytes and characters by the thread's locale; UTF-8 is the only encoding
// here, whatever the environment says. Numbers are not affected.
class Utf8Scope {
 public:
  Utf8Scope() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {
    if (locale_) previous_ = uselocale(locale_);
  }
  ~Utf8Scope() {
    if (!locale_) return;
    uselocale(previous_);
    freelocale(locale_);
  }
  Utf8Scope(const Utf8Scope&) = delete;
  Utf8Scope& operator=(const Utf8Scope&) = delete;

 private:
  locale_t locale_, previous_ = nullptr;
};

// Keys beyond libedit's emacs defaults, as most terminals send them.
constexpr const char* kKeys[][2] = {
    {"^W", "ed-delete-prev-word"}, {"^R", "em-inc-search-prev"}, {"\\e[1;5C", "em-next-word"},
    {"\\e[1;5D", "ed-prev-word"},  {"\\e[H", "ed-move-to-beg"},  {"\\e[F", "ed-move-to-end"},
    {"\\e[1~", "ed-move-to-beg"},  {"\\e[4~", "ed-move-to-end"}, {"\\e[3~", "ed-delete-next-char"},
    {"^C", "lumen-interrupt"},     {"^Z", "lumen-suspend"},      {"^\\", "lumen-quit"},
    {"\\e[200~", "lumen-paste"},   {"^I", "lumen-complete"},     {"^X^E", "lumen-edit"},
};

// Terminals send this instead of plain typing while bracketed paste is on.
constexpr const char* kPasteOn = "\x1b[?2004h";
constexpr const char* kPasteOff = "\x1b[?2004l";
constexpr const char* kPasteOffLine = "\x1b[?2004l\n";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr int kInterruptKey = 3;

}  // namespace

struct LineEditor::State {
  State(SignalWatch& watch, const std::string& history_file_path)
      : signals(watch), history_file(history_file_path), plain(is_plain_terminal()) {
    if (plain) return;
    history_entries = ::history_init();
    edit = ::el_init("lumen-run", stdin, stdout, stderr);
    if (!edit || !history_entries) fail(ErrorKind::kResource, "cannot start the line editor");
    HistEvent event;
    ::history(history_entries, &event, H_SETSIZE, static_cast<int>(HistoryFile::kEntries));
    ::history(history_entries, &event, H_SETUNIQUE, 1);
    for (const std::string& entry : history_file.load()) {
      ::history(history_entries, &event, H_ENTER, entry.c_str());
    }
    ::el_set(edit, EL_CLIENTDATA, this);
    ::el_set(edit, EL_PROMPT, &State::show_prompt);
    ::el_set(edit, EL_HIST, ::history, history_entries);
    ::el_set(edit, EL_EDITOR, "emacs");
    ::el_set(edit, EL_SIGNAL, 0);
    ::el_set(edit, EL_GETCFN, &State::get_character);
    // While a line is edited, Ctrl-C, Ctrl-Z and Ctrl-\ are keys, not signals, and Return is not a
    // newline, so that pasted text arrives as it was sent.
    ::el_set(edit, EL_SETTY, "-d", "-isig", "-icrnl", "-inlcr", nullptr);
    // The wide form: the narrow one copies the names and never frees them.
    ::el_wset(edit, EL_ADDFN, L"lumen-interrupt", L"discard the line", &State::on_interrupt);
    ::el_wset(edit, EL_ADDFN, L"lumen-suspend", L"stop the process", &State::on_suspend);
    ::el_wset(edit, EL_ADDFN, L"lumen-quit", L"end the process at once", &State::on_quit);
    ::el_wset(edit, EL_ADDFN, L"lumen-paste", L"insert pasted text", &State::on_paste);
    ::el_wset(edit, EL_ADDFN, L"lumen-complete", L"complete a word", &State::on_complete);
    ::el_wset(edit, EL_ADDFN, L"lumen-edit", L"edit the line elsewhere", &State::on_edit);
    for (const auto& [key, command] : kKeys) ::el_set(edit, EL_BIND, key, command, nullptr);
  }

  ~State() {
    if (edit) ::el_end(edit);
    if (history_entries) ::history_end(history_entries);
  }

  static State& of(EditLine* edit) {
    State* state = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &state);
    return *state;
  }

  // The next byte of the terminal; −1 when a signal came, −2 at the end.
  int next_byte() {
    while (bytes.empty()) {
      switch (signals.wait_readable(STDIN_FILENO)) {
        case SignalWatch::Wait::kSignal:
          return -1;
        case SignalWatch::Wait::kResized:
          if (edit) resize();
          continue;
        case SignalWatch::Wait::kContinued:
          if (edit) take_terminal();
          continue;
        case SignalWatch::Wait::kReadable:
          break;
      }
      char block[4096];
      const ssize_t count = ::read(STDIN_FILENO, block, sizeof block);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return -2;
      bytes.insert(bytes.end(), block, block + count);
    }
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.pop_front();
    return byte;
  }

  // libedit's source of characters: 1 with a character, 0 at the end, −1 on a signal.
  static int get_character(EditLine* edit, wchar_t* character) {
    State& state = of(edit);
    std::string sequence;
    do {
      const int byte = state.next_byte();
      if (byte < 0) {
        state.typed = state.line_so_far();
        errno = EINTR;
        return byte == -1 ? -1 : 0;
      }
      sequence += static_cast<char>(byte);
    } while (incomplete_utf8_suffix(sequence) == sequence.size());
    size_t pos = 0;
    *character = static_cast<wchar_t>(next_code_point(sequence, pos));
    return 1;
  }

  static char* show_prompt(EditLine* edit) { return of(edit).prompt.data(); }

  static unsigned char on_interrupt(EditLine* edit, wint_t) {
    State& state = of(edit);
    state.interrupted = true;
    state.typed = state.line_so_far();
    return CC_EOF;
  }

  static unsigned char on_edit(EditLine* edit, wint_t) {
    State& state = of(edit);
    state.wants_editor = true;
    state.typed = state.line_so_far();
    return CC_EOF;
  }

  static unsigned char on_complete(EditLine* edit, wint_t) {
    try {
      return of(edit).complete();
    } catch (...) {
      return CC_ERROR;
    }
  }

  unsigned char complete() {
    const LineInfo* line = ::el_line(edit);
    const std::string typed_part(line->buffer, line->cursor);
    if (!completer) return CC_ERROR;
    const Completion found = completer(typed_part);
    const std::string common = common_beginning(found.words);
    const size_t is_there = typed_part.size() - found.begin;
    if (common.empty()) return CC_ERROR;
    if (common != typed_part.substr(found.begin)) {
      ::el_deletestr(edit, characters(typed_part.substr(found.begin)));
      return ::el_insertstr(edit, common.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    if (found.words.size() < 2) return CC_NORM;
    put("\r\n" + in_columns(found.words, is_there));
    redraw();
    return CC_NORM;
  }

  static int characters(std::string_view text) {
    return static_cast<int>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  }

  // The words without what a path that has been typed begins with, as many as fit in some rows.
  std::string in_columns(const std::vector<std::string>& words, size_t typed_bytes) const {
    constexpr size_t kRows = 20, kGap = 2;
    std::vector<std::string> shown;
    size_t widest = 1;
    for (const std::string& word : words) {
      const size_t slash = word.rfind('/', typed_bytes == 0 ? 0 : typed_bytes - 1);
      shown.push_back(word.substr(slash == word.npos || slash == 0 ? 0 : slash + 1));
      if (shown.back().ends_with(' ')) shown.back().pop_back();
      widest = std::max(widest, static_cast<size_t>(characters(shown.back())));
    }
    int columns = 0;
    ::el_get(edit, EL_GETTC, "co", &columns);
    const size_t width = widest + kGap;
    const size_t per_row = std::max<size_t>(1, static_cast<size_t>(std::max(columns, 1)) / width);
    const size_t most = std::min(shown.size(), kRows * per_row);
    std::string out;
    for (size_t i = 0; i < most; ++i) {
      out += shown[i];
      const bool ends_row = (i + 1) % per_row == 0 || i + 1 == most;
      out.append(ends_row ? 0 : width - static_cast<size_t>(characters(shown[i])), ' ');
      if (ends_row) out += '\n';
    }
    if (most < shown.size()) out += str("… and ", shown.size() - most, " more\n");
    return out;
  }

  // Called by libedit, through which no exception may pass.
  static void put(std::string_view sequence) {
    [[maybe_unused]] const ssize_t ignored =
        ::write(STDOUT_FILENO, sequence.data(), sequence.size());
  }

  // TerminalScope restores the terminal; what comes after it is kContinued's.
  static unsigned char on_suspend(EditLine*, wint_t) {
    ::raise(SIGTSTP);
    return CC_NORM;
  }

  static unsigned char on_quit(EditLine*, wint_t) {
    ::raise(SIGQUIT);
    return CC_NORM;
  }

  // After a stop, during which others had the terminal.
  void take_terminal() {
    ::el_set(edit, EL_PREP_TERM, 0);
    ::el_set(edit, EL_PREP_TERM, 1);
    put(kPasteOn);
    ::el_resize(edit);
    redraw();
  }

  // Draws the line from the cursor's row on: over itself if it has one and nobody wrote meanwhile.
  void redraw() {
    put("\r");
    ::el_set(edit, EL_REFRESH);
  }

  int rows() const {
    int count = 0;
    ::el_get(edit, EL_GETTC, "li", &count);
    return count;
  }

  // libedit takes its cursor along into the new window, also to a row that it does not have, and
  // reads beyond its memory when it moves it from there.
  void resize() {
    const int before = rows();
    ::el_resize(edit);
    if (rows() < before) redraw();
  }

  static unsigned char on_paste(EditLine* edit, wint_t) {
    State& state = of(edit);
    std::string pasted;
    while (!pasted.ends_with(kPasteEnd)) {
      const int byte = state.next_byte();
      if (byte < 0) {
        state.interrupted = byte == -1;
        return CC_EOF;
      }
      // No terminal pastes Ctrl-C: the end of the paste was lost, and everything would be text.
      if (byte == kInterruptKey) return on_interrupt(edit, 0);
      pasted += static_cast<char>(byte);
    }
    pasted.resize(pasted.size() - kPasteEnd.size());
    std::string text;
    for (size_t i = 0; i < pasted.size(); ++i) {
      if (pasted[i] != '\r') {
        text += pasted[i];
      } else if (i + 1 == pasted.size() || pasted[i + 1] != '\n') {
        text += '\n';  // what terminals send for a newline
      }
    }
    std::string safe;
    append_safe_text(safe, text, TextSafety::kTerminal);
    if (!safe.empty()) ::el_insertstr(edit, safe.c_str());
    return CC_REFRESH;
  }

  std::string line_so_far() const {
    const LineInfo* line = ::el_line(edit);
    return {line->buffer, line->lastchar};
  }

  // Lines as the terminal itself collects them.
  Line read_plain() {
    std::string line;
    for (;;) {
      const int byte = next_byte();
      if (byte == -1) return interrupted_or_terminated(line);
      if (byte == -2) return line.empty() ? Line{Event::kEnd, ""} : Line{Event::kLine, line};
      if (byte == '\n') return {Event::kLine, line};
      line += static_cast<char>(byte);
    }
  }

  Line read_edited() {
    const Utf8Scope utf8;
    interrupted = wants_editor = false;
    typed.clear();
    const TerminalScope terminal(kPasteOffLine);
    write_stdout(kPasteOn);
    // Before the prompt: whoever sees it may type, and Ctrl-D must find the editor, not the
    // terminal's own line discipline, which would swallow it.
    ::el_set(edit, EL_PREP_TERM, 1);
    int count = 0;
    const char* text = ::el_gets(edit, &count);
    std::fflush(stdout);
    write_stdout(kPasteOff);
    if (text && count > 0) {
      std::string line(text, static_cast<size_t>(count));
      if (line.ends_with('\n')) line.pop_back();
      return {Event::kLine, std::move(line)};
    }
    write_stdout("\n");
    if (wants_editor) return {Event::kEdit, typed};
    if (interrupted || count < 0) return interrupted_or_terminated(typed);
    return {Event::kEnd, ""};
  }

  Line interrupted_or_terminated(const std::string& line) {
    if (signals.termination()) return {Event::kTerminate, ""};
    signals.take_interrupt();
    return {Event::kInterrupt, line};
  }

  SignalWatch& signals;
  HistoryFile history_file;
  bool plain;
  EditLine* edit = nullptr;
  History* history_entries = nullptr;
  std::string prompt;
  std::string typed;         // the line when reading it ended early
  bool interrupted = false;  // by the Ctrl-C key
  bool wants_editor = false;
  Completer completer;
  std::deque<char> bytes;  // read but not yet used
};

LineEditor::LineEditor(SignalWatch& signals, const std::string& history_file) {
  const Utf8Scope utf8;
  state_ = std::make_unique<State>(signals, history_file);
}

LineEditor::~LineEditor() = default;

LineReader::Line LineEditor::read(const std::string& prompt) {
  state_->prompt = prompt;
  if (!state_->plain) return state_->read_edited();
  write_stdout(prompt);
  return state_->read_plain();
}

void LineEditor::remember(const std::string& entry) {
  if (entry.empty()) return;
  if (state_->history_entries) {
    const Utf8Scope utf8;
    HistEvent event;
    ::history(state_->history_entries, &event, H_ENTER, entry.c_str());
  }
  state_->history_file.append(entry);
}

void LineEditor::complete_with(Completer completer) {
  state_->completer = std::move(completer);
}

std::string history_path() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && state[0] == '/') {
    return std::string(state) + "/lumen/history";
  }
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.local/state/lumen/history" : "";
}

}  // namespace lumen::runtime
