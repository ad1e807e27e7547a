// The chat in a terminal: reads messages and commands, streams answers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/runtime/chat/completion.h"
#include "lib/runtime/chat/conversation.h"
#include "lib/runtime/chat/line_editor.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/signals.h"

namespace lumen::runtime {

// A chat: lines that begin with '/' are commands, everything else is said to the model. A line that
// ends with a backslash is continued on the next one; """ opens a block that another """ closes.
//
// Ctrl-C stops an answer, which is kept as far as it came; at the prompt it clears the line. On an
// empty line it gives a hint, and right after that, or after a stopped answer, ends the chat.
class Chat {
 public:
  // All but `write` must outlive it. `write` receives what the user sees (standard output), with
  // thinking blocks fainter than the rest if `dims_thoughts`.
  Chat(Session& session, const RunOptions& options, LineReader& reader, SignalWatch& signals,
       std::function<void(std::string_view)> write, bool dims_thoughts = false);

  // Runs until /exit or Ctrl-D (0), Ctrl-C twice (130), or SIGTERM or SIGHUP (128 + signal).
  int run();

 private:
  struct Command {
    const char* name;
    const char* argument;  // what it takes, for the help
    const char* help;
    void (Chat::*action)(const std::string& argument);
    // What its argument, which begins at `begin` of the line, may become; null: nothing is known.
    Completion (Chat::*complete)(std::string_view line, size_t begin);
  };
  static const std::vector<Command>& commands();

  void converse();  // until there is an exit code
  // Asks for one message or command, which may be several lines. Returns false to ask again.
  bool read_message(std::string& message, bool& is_command);
  LineReader::Event read_block(std::string& message);
  bool read_edited(std::string& message);
  void show_edited(const std::string& message);
  void handle_interrupt(bool line_was_empty);

  void run_command(const std::string& line);
  Completion complete(std::string_view line);
  Completion complete_files(std::string_view line, size_t begin);
  Completion complete_setting(std::string_view line, size_t begin);
  Completion complete_topic(std::string_view line, size_t begin);
  void help(const std::string&);
  void exit(const std::string&);
  void reset(const std::string&);
  void set(const std::string& argument);
  void show(const std::string& topic);
  void retry(const std::string&);
  void edit(const std::string&);
  void undo(const std::string&);
  void save(const std::string& argument);
  void load(const std::string& argument);
  void read_files(const std::string& argument);

  void answer(const std::string& message);
  void generate(FunctionRef<GenerationResult(TextSink)> run);
  void forget_attached();
  void make_sampler();
  std::vector<Field> settings();
  bool forget_list(const std::string& name);
  void note(const std::string& text);
  void tell(const Error& error);
  void show_messages();

  Session& session_;
  SamplingOptions sampling_;
  GenerationOptions generation_;
  bool stats_;
  LineReader& reader_;
  SignalWatch& signals_;
  std::function<void(std::string_view)> write_;
  bool dims_thoughts_;

  std::optional<std::string> prompt_cache_;
  Generator generator_;
  Conversation conversation_;
  SamplingSettings sampler_settings_;
  std::optional<Sampler> sampler_;
  std::string attached_;  // by /read, for the next message
  size_t attached_tokens_ = 0;
  std::string last_stats_;
  bool leave_on_interrupt_ = false;
  std::optional<int> exit_code_;
};

}  // namespace lumen::runtime
