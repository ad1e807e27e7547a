#include "lib/runtime/chat/chat.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/chat/text_editor.h"
#include "lib/runtime/generation/prompt.h"
#include "lib/runtime/generation/prompt_cache.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/report.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

using Event = LineReader::Event;

constexpr const char* kPrompt = "> ";
constexpr const char* kContinuation = "... ";
constexpr std::string_view kBlock = "\"\"\"";

std::string safe(std::string_view text) {
  std::string out;
  append_safe_text(out, text, TextSafety::kTerminal);
  return out;
}

// The file that the argument of a command names; spaces need no quotes.
std::string file_named(const std::string& argument, const char* command) {
  if (argument.empty()) fail(ErrorKind::kUsage, command, " needs the name of a file");
  const std::string whole = at_home(argument);
  if (io::is_regular_file(whole)) return whole;
  const std::vector<std::string> names = split_names(argument);
  return names.size() == 1 ? at_home(names[0]) : whole;
}

// The command here for one of llama.cpp, ollama or mlx-lm; "" if there is none.
std::string our_command(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"/?", "/help"},      {"/quit", "/exit"},         {"/bye", "/exit"},
      {"/q", "/exit"},      {"/clear", "/reset"},       {"/new", "/reset"},
      {"/regen", "/retry"}, {"/system", "/set system"}, {"/history", "/show messages"},
  };
  for (const auto& [theirs, ours] : kNames) {
    if (name == theirs) return ours;
  }
  return "";
}

std::string message_count(const Conversation& conversation) {
  const size_t count = conversation.messages().size();
  return str(count, count == 1 ? " message" : " messages");
}

bool is_blank(std::string_view message) {
  return message.find_first_not_of(" \t\n") == message.npos;
}

// Whether the chat can go on after `kind`: what the user asked for was wrong or impossible.
bool is_recoverable(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kMalformed:
    case ErrorKind::kMissing:
    case ErrorKind::kUnsupported:
    case ErrorKind::kCannotCreate:
    case ErrorKind::kProgramFailed:
      return true;
    default:
      return false;
  }
}

}  // namespace

Chat::Chat(Session& session, const RunOptions& options, LineReader& reader, SignalWatch& signals,
           std::function<void(std::string_view)> write, bool dims_thoughts)
    : session_(session),
      sampling_(options.sampling),
      generation_(generation_options(options, session)),
      stats_(options.stats),
      reader_(reader),
      signals_(signals),
      write_(std::move(write)),
      dims_thoughts_(dims_thoughts),
      prompt_cache_(options.prompt_cache),
      generator_(make_generator(options, session)),
      conversation_(session.format, generator_, options.system.value_or(""), [this](int turns) {
        note(str("the context is full: the oldest ", turns == 1 ? "turn was" : "turns were",
                 " dropped (", turns, ")"));
      }) {
  make_sampler();
}

const std::vector<Chat::Command>& Chat::commands() {
  static const std::vector<Command> kCommands = {
      {"/help", "", "this list", &Chat::help, nullptr},
      {"/exit", "", "leave (also Ctrl-D)", &Chat::exit, nullptr},
      {"/reset", "", "forget the conversation, keep the system prompt", &Chat::reset, nullptr},
      {"/set", "NAME VALUE", "change a setting; alone: list them", &Chat::set,
       &Chat::complete_setting},
      {"/show", "TOPIC", "params, model, prompt, template, messages or stats", &Chat::show,
       &Chat::complete_topic},
      {"/retry", "", "answer the last message anew", &Chat::retry, nullptr},
      {"/edit", "", "change the last message in $VISUAL or $EDITOR, and send it", &Chat::edit,
       nullptr},
      {"/undo", "", "take back the last message and its answer, or what /read has read",
       &Chat::undo, nullptr},
      {"/save", "FILE", "write the conversation as JSON Lines", &Chat::save, &Chat::complete_files},
      {"/load", "FILE", "go on with a saved conversation", &Chat::load, &Chat::complete_files},
      {"/read", "FILE…", "put the text of files before the next message", &Chat::read_files,
       &Chat::complete_files},
  };
  return kCommands;
}

int Chat::run() {
  reader_.complete_with([this](std::string_view line) { return complete(line); });
  try {
    converse();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo || !SignalWatch::hung_up()) throw;
    exit_code_ = 128 + SIGHUP;
  }
  reader_.complete_with(nullptr);
  if (prompt_cache_) save_prompt_cache(*prompt_cache_, generator_);
  return *exit_code_;
}

void Chat::converse() {
  note(str("Lumen ", session_.name == "built-in" ? "with the built-in model" : safe(session_.name),
           ", context ", session_.model->context(), " tokens; /help lists the commands"));
  for (const std::string& notice : session_.notices) note(notice);
  if (!session_.format.chat_template()) {
    note("the model has no chat template: it continues the text of all messages so far");
  }
  if (prompt_cache_) {
    const std::string notice = load_prompt_cache(*prompt_cache_, generator_);
    if (!notice.empty()) note(notice);
  }
  session_.model->repack_ahead();
  while (!exit_code_) {
    std::string message;
    bool is_command = false;
    if (!read_message(message, is_command)) continue;
    try {
      is_command ? run_command(message) : answer(message);
    } catch (const Error& error) {
      if (!is_recoverable(error.kind())) throw;
      tell(error);
    }
  }
}

void Chat::tell(const Error& error) {
  write_(str("error: ", error.what(), "\n"));
}

bool Chat::read_message(std::string& message, bool& is_command) {
  auto [event, text] = reader_.read(kPrompt);
  const bool was_empty = text.empty();
  message = std::move(text);
  is_command =
      event == Event::kLine && message.starts_with('/') && message.find('\n') == message.npos;
  if (event == Event::kLine) {
    leave_on_interrupt_ = false;
    reader_.remember(message);
    if (!is_command) event = read_block(message);
  }
  switch (event) {
    case Event::kLine:
      return !is_blank(message);
    case Event::kInterrupt:
      handle_interrupt(was_empty);
      break;
    case Event::kEnd:
      exit_code_ = 0;
      break;
    case Event::kTerminate:
      exit_code_ = 128 + signals_.termination();
      break;
    case Event::kEdit:
      return read_edited(message);
  }
  return false;
}

// Completes a message whose first line is in `message`.
LineReader::Event Chat::read_block(std::string& message) {
  const bool is_block = message.starts_with(kBlock);
  if (is_block) message.erase(0, kBlock.size());
  for (;;) {
    if (is_block ? message.ends_with(kBlock) : !message.ends_with('\\')) break;
    if (!is_block) message.pop_back();
    auto [event, text] = reader_.read(kContinuation);
    if (event == Event::kEdit) message += '\n' + text;
    if (event != Event::kLine) return event;
    reader_.remember(text);
    message += '\n' + text;
  }
  if (is_block) {
    message.erase(message.size() - kBlock.size());
    if (message.starts_with('\n')) message.erase(0, 1);
    if (message.ends_with('\n')) message.pop_back();
  }
  return Event::kLine;
}

// Takes what an editor makes of what has been typed for a message.
bool Chat::read_edited(std::string& message) {
  try {
    message = edit_text(message, signals_);
  } catch (const Error& error) {
    if (!is_recoverable(error.kind())) throw;
    tell(error);
    return false;
  }
  if (signals_.termination() != 0) exit_code_ = 128 + signals_.termination();
  if (exit_code_ || is_blank(message)) return false;
  show_edited(message);
  return true;
}

void Chat::handle_interrupt(bool line_was_empty) {
  if (!line_was_empty) {
    leave_on_interrupt_ = false;
  } else if (leave_on_interrupt_) {
    exit_code_ = 128 + SIGINT;
  } else {
    note("Ctrl-C again, Ctrl-D or /exit leaves");
    leave_on_interrupt_ = true;
  }
}

void Chat::run_command(const std::string& line) {
  const std::string name = line.substr(0, line.find(' '));
  std::string argument = line.substr(std::min(line.size(), name.size() + 1));
  argument.erase(0, argument.find_first_not_of(' '));
  argument.erase(argument.find_last_not_of(' ') + 1);
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.push_back(command.name);
    if (name != command.name) continue;
    if (*command.argument == '\0' && !argument.empty()) {
      fail(ErrorKind::kUsage, name, " takes no argument");
    }
    return (this->*command.action)(argument);
  }
  const std::string ours = our_command(name);
  const std::string near = ours.empty() ? nearest(name, names) : ours;
  fail(ErrorKind::kUsage, "no command ", quoted(name),
       near.empty() ? "; see /help" : "; did you mean " + near + "?",
       " (a message that begins with / needs a space before it)");
}

Completion Chat::complete(std::string_view line) {
  if (!line.starts_with('/') || line.find('\n') != line.npos) return {};
  const size_t end = line.find(' ');
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (line.substr(0, end) == command.name && end != line.npos) {
      const size_t begin = std::min(line.size(), line.find_first_not_of(' ', end));
      return command.complete ? (this->*command.complete)(line, begin) : Completion{};
    }
    names.emplace_back(command.name);
  }
  return end == line.npos ? complete_word(line, 0, names) : Completion{};
}

Completion Chat::complete_files(std::string_view line, size_t begin) {
  return complete_file(line, begin);
}

Completion Chat::complete_setting(std::string_view line, size_t begin) {
  std::vector<std::string> names;
  for (const Field& field : settings()) names.push_back(field.name);
  return complete_word(line, begin, names);
}

Completion Chat::complete_topic(std::string_view line, size_t begin) {
  return complete_word(line, begin, {"params", "model", "prompt", "template", "messages", "stats"});
}

void Chat::help(const std::string&) {
  std::string out;
  for (const Command& command : commands()) {
    std::string left = str("  ", command.name, *command.argument ? " " : "", command.argument);
    constexpr size_t kColumns = 22;
    const auto columns = static_cast<size_t>(
        std::count_if(left.begin(), left.end(), [](char c) { return (c & 0xC0) != 0x80; }));
    left.append(std::max(columns + 1, kColumns) - columns, ' ');
    out += left + command.help + "\n";
  }
  out +=
      "A line ending in \\ goes on; \"\"\" begins and ends a block; pasted newlines do not send.\n"
      "Ctrl-C stops an answer or clears the line, Ctrl-R searches the history, Tab completes\n"
      "commands and names of files, Ctrl-X Ctrl-E opens the line in the editor of /edit.\n";
  write_(out);
}

void Chat::exit(const std::string&) {
  exit_code_ = 0;
}

void Chat::reset(const std::string&) {
  conversation_.reset();
  forget_attached();
  note("the conversation is forgotten");
}

std::vector<Field> Chat::settings() {
  auto fields = sampling_.fields();
  fields.push_back(number_field("max-tokens", "tokens of an answer at most", generation_.max_tokens,
                                0, limits::kContext));
  fields.push_back(list_field("stop", "TEXT", "one more text to stop at", generation_.stop));
  fields.push_back(
      {"system", "TEXT", "the system prompt",
       [this](std::string_view text) { conversation_.set_system_prompt(std::string(text)); },
       [this] { return conversation_.system_prompt(); }});
  return fields;
}

void Chat::set(const std::string& argument) {
  const auto fields = settings();
  if (argument.empty()) return show("params");
  const size_t space = argument.find(' ');
  const Field& field = find_field(fields, argument.substr(0, space));
  if (space == argument.npos && forget_list(field.name)) return make_sampler();
  if (space == argument.npos && field.name != "system") {
    fail(ErrorKind::kUsage, "/set ", field.name, " needs a value: ", field.help);
  }
  const SamplingOptions before = sampling_;
  try {
    field.set(space == argument.npos ? "" : argument.substr(space + 1));
    make_sampler();
  } catch (...) {
    sampling_ = before;
    throw;
  }
}

// What is added to entry by entry is emptied by its name alone.
bool Chat::forget_list(const std::string& name) {
  if (name == "stop") {
    generation_.stop.clear();
  } else if (name == "logit-bias") {
    sampling_.logit_bias.clear();
  } else if (name == "dry-sequence-breaker") {
    sampling_.dry_sequence_breakers.reset();
  } else {
    return false;
  }
  note(str(name, " is taken back"));
  return true;
}

void Chat::show(const std::string& topic) {
  if (topic == "params" || topic.empty()) {
    std::string out = "sampling: " + describe(sampler_settings_) + "\n";
    for (const Field& field : settings()) {
      const std::string value = field.get();
      if (!value.empty()) out += str(field.name, ": ", quoted(value, 200), "\n");
    }
    write_(out);
  } else if (topic == "model") {
    write_(describe_model(session_));
  } else if (topic == "prompt") {
    write_(safe(conversation_.text()) + "\n");
  } else if (topic == "template") {
    const auto& chat_template = session_.format.chat_template();
    write_((chat_template ? safe(chat_template->source()) : "none") + "\n");
  } else if (topic == "messages") {
    show_messages();
  } else if (topic == "stats") {
    write_(last_stats_.empty() ? "no answer yet\n" : last_stats_);
  } else {
    fail(ErrorKind::kUsage, "/show ", quoted(topic),
         ": there are params, model, prompt, template, messages and stats");
  }
}

void Chat::show_messages() {
  std::string out;
  for (const Message& message : conversation_.messages()) {
    out += str(message.role, ": ", safe(message.content), "\n");
  }
  write_(out.empty() ? "no messages yet\n" : out);
}

void Chat::retry(const std::string&) {
  generate([&](TextSink sink) {
    return conversation_.retry(*sampler_, generation_, sink, signals_.stop_flag());
  });
}

void Chat::edit(const std::string&) {
  const Message* last = conversation_.last_question();
  const std::string before = last ? last->content : "";
  const std::string text = edit_text(before, signals_);
  if (signals_.termination() != 0) {
    exit_code_ = 128 + signals_.termination();
    return;
  }
  if (is_blank(text)) return note("the text is empty: nothing was sent");
  if (text == before) return note("the text is as it was: nothing was sent; see /retry");
  show_edited(text);
  if (!last) return answer(text);
  generate([&](TextSink sink) {
    return conversation_.answer_instead(text, *sampler_, generation_, sink, signals_.stop_flag());
  });
}

// As if it had been typed.
void Chat::show_edited(const std::string& message) {
  write_(kPrompt + safe(message) + "\n");
  reader_.remember(message);
}

void Chat::undo(const std::string&) {
  if (!attached_.empty()) {
    forget_attached();
    return note("the text that was read is taken back");
  }
  if (!conversation_.undo()) fail(ErrorKind::kUsage, "there is nothing to take back");
  note("the last message and its answer are taken back");
}

void Chat::save(const std::string& argument) {
  const std::string path = file_named(argument, "/save");
  conversation_.save(path);
  note(str(message_count(conversation_), " written to ", quoted(path)));
}

void Chat::load(const std::string& argument) {
  const std::string path = file_named(argument, "/load");
  conversation_.load(path);
  note(str(message_count(conversation_), " read from ", quoted(path)));
}

void Chat::read_files(const std::string& argument) {
  const std::string whole = file_named(argument, "/read");
  std::string text;
  // A path with spaces is one file if it exists.
  const auto files =
      io::is_regular_file(whole) ? std::vector<std::string>{whole} : split_names(argument);
  for (const std::string& path : files) {
    text += io::read_file(at_home(path), limits::kPromptBytes);
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
  }
  if (text.empty()) fail(ErrorKind::kMalformed, quoted(whole), " is empty: nothing was read");
  text = to_valid_utf8(text);
  const auto tokens =
      session_.format.tokenizer()->encode(text, {.add_special = false, .parse_special = true});
  const size_t before = attached_tokens_;
  const int64_t context = session_.model->context(), most = session_.model->max_positions();
  if (before + tokens.size() >= static_cast<size_t>(context)) {
    fail(ErrorKind::kMalformed, "the text has ", tokens.size(), " tokens",
         before > 0 ? str(" after ", before, " read already") : "", ", the context only ", context,
         ": nothing was read",
         context < most ? str("; start with a larger --ctx, up to ", most) : "");
  }
  attached_ += text;
  attached_tokens_ += tokens.size();
  note(str(human_bytes(text.size()), ", ", tokens.size(), " tokens of ", session_.model->context(),
           "; they come before your next message"));
}

void Chat::answer(const std::string& message) {
  const std::string dropped = session_.format.dropped_characters(attached_ + message);
  if (!dropped.empty()) note(dropped_notice(dropped));
  generate([&](TextSink sink) {
    return conversation_.answer(attached_ + message, *sampler_, generation_, sink,
                                signals_.stop_flag());
  });
  forget_attached();
}

void Chat::forget_attached() {
  attached_.clear();
  attached_tokens_ = 0;
}

void Chat::generate(FunctionRef<GenerationResult(TextSink)> run) {
  bool ends_line = true;
  std::string piece;
  const auto show = [&](std::string_view text, bool is_dim) {
    piece.clear();
    append_safe_text(piece, text, TextSafety::kTerminal);
    if (!piece.empty()) ends_line = piece.back() == '\n';
    write_(is_dim ? dimmed(piece) : piece);
  };
  if (dims_thoughts_) {
    generation_.thought_sink = [&](std::string_view text) { show(text, /*is_dim=*/true); };
  }
  const GenerationResult result = run([&](std::string_view text) { show(text, false); });
  generation_.thought_sink = nullptr;
  if (!ends_line) write_("\n");
  last_stats_ = describe(session_, result, sampler_settings_);
  if (stats_) write_(last_stats_);
  if (result.stop_reason == StopReason::kContext) {
    note("the context is full: the answer ends here");
  }
  if (result.stop_reason != StopReason::kInterrupted) return;
  signals_.take_interrupt();
  if (signals_.termination()) {
    exit_code_ = 128 + signals_.termination();
    return;
  }
  note("stopped; Ctrl-C again leaves");
  leave_on_interrupt_ = true;
}

void Chat::make_sampler() {
  sampler_settings_ = sampling_settings(sampling_, session_);
  sampler_.emplace(runtime::make_sampler(sampler_settings_, session_));
}

void Chat::note(const std::string& text) {
  write_("(" + text + ")\n");
}

}  // namespace lumen::runtime
