#include "lib/runtime/chat/conversation.h"

#include <algorithm>
#include <atomic>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"

namespace lumen::runtime {
namespace {

constexpr const char* kSystem = "system";
constexpr const char* kUser = "user";
constexpr const char* kAssistant = "assistant";
constexpr const char* kTool = "tool";

}  // namespace

Conversation::Conversation(const PromptFormat& format, Generator& generator,
                           std::string system_prompt, std::function<void(int)> on_drop)
    : format_(format),
      generator_(generator),
      on_drop_(std::move(on_drop)),
      tokens_(*format.tokenizer(), /*parse_special=*/true) {
  set_system_prompt(std::move(system_prompt));
}

std::string Conversation::system_prompt() const {
  return !messages_.empty() && messages_[0].role == kSystem ? messages_[0].content : "";
}

std::string Conversation::text() const {
  const bool is_answered = !messages_.empty() && messages_.back().role == kAssistant;
  return format_.render(messages_, /*begins_answer=*/!is_answered);
}

void Conversation::reset() {
  messages_.resize(system_prompt().empty() ? 0 : 1);
}

void Conversation::set_system_prompt(std::string system_prompt) {
  if (!messages_.empty() && messages_[0].role == kSystem) messages_.erase(messages_.begin());
  if (!system_prompt.empty()) {
    messages_.insert(messages_.begin(), {kSystem, std::move(system_prompt)});
  }
}

GenerationResult Conversation::answer(const std::string& user_text, Sampler& sampler,
                                      const GenerationOptions& options, TextSink sink,
                                      const std::atomic<bool>* stop) {
  const auto before = messages_;
  messages_.push_back({kUser, user_text});
  try {
    const auto prompt = fit_prompt(options);
    const bool continues_text = !format_.chat_template().has_value();
    auto result = generator_.generate(prompt, sampler, options, continues_text, sink, stop);
    messages_.push_back({kAssistant, result.text});
    return result;
  } catch (...) {
    messages_ = before;
    throw;
  }
}

GenerationResult Conversation::retry(Sampler& sampler, const GenerationOptions& options,
                                     TextSink sink, const std::atomic<bool>* stop) {
  const Message* last = last_question();
  return answer_instead(last ? std::string(last->content) : "", sampler, options, sink, stop);
}

const Message* Conversation::last_question() const {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(),
                                 [](const Message& message) { return message.role == kUser; });
  return last == messages_.rend() ? nullptr : &*last;
}

GenerationResult Conversation::answer_instead(const std::string& user_text, Sampler& sampler,
                                              const GenerationOptions& options, TextSink sink,
                                              const std::atomic<bool>* stop) {
  const auto before = messages_;
  if (!undo()) fail(ErrorKind::kUsage, "there is no message to answer again");
  try {
    return answer(user_text, sampler, options, sink, stop);
  } catch (...) {
    messages_ = before;
    throw;
  }
}

bool Conversation::undo() {
  for (size_t i = messages_.size(); i-- > 0;) {
    if (messages_[i].role != kUser) continue;
    messages_.resize(i);
    return true;
  }
  return false;
}

// Leaves room for the answer: max_tokens, but not more than a quarter of the context. Without its
// oldest turns all of the prompt has to be read again, so half of the context is emptied at once
// and the next messages find the rest in the cache.
std::vector<int32_t> Conversation::fit_prompt(const GenerationOptions& options) {
  const int64_t context = generator_.model().context();
  const int64_t room = std::min(options.max_tokens.value_or(context), context / 4);
  auto ids = prompt();
  int dropped = 0;
  int64_t most = context - room;
  while (static_cast<int64_t>(ids.size()) > most && drop_oldest_turn()) {
    most = std::min(most, context / 2);
    ++dropped;
    ids = prompt();
  }
  check_prompt_size(ids.size(), generator_.model());
  if (dropped > 0 && on_drop_) on_drop_(dropped);
  return ids;
}

bool Conversation::drop_oldest_turn() {
  const auto begin = messages_.begin() + (system_prompt().empty() ? 0 : 1);
  const auto is_user = [](const Message& message) { return message.role == kUser; };
  const auto next = std::find_if(begin + 1, messages_.end(), is_user);
  if (next == messages_.end()) return false;
  messages_.erase(begin, next);
  return true;
}

void Conversation::save(const std::string& path) const {
  io::check_replaceable(path, R"({"messages":)", "a saved conversation");
  io::Json messages = io::Json::array();
  for (const Message& message : messages_) {
    messages.push_back(to_json({message.role, to_valid_utf8(message.content), message.more}));
  }
  io::write_file_atomically(path, io::Json{{"messages", std::move(messages)}}.dump() + "\n");
}

void Conversation::load(const std::string& path) {
  messages_ = read_messages(path);
}

namespace {

constexpr auto refuse_part = [](ErrorKind kind, std::span<const std::string>,
                                std::string_view what) { fail(kind, what); };

std::string content_of(const io::Json& message) {
  const io::Json* content = io::find_value(message, "content");
  if (content == nullptr && io::find_value(message, "tool_calls")) return "";
  if (content == nullptr || !content->is_array()) return io::get_string(message, "content");
  return text::join_parts(*content, refuse_part);
}

void append_message(const io::Json& object, std::vector<Message>& messages) {
  Message message{io::get_string(object, "role"), content_of(object)};
  const bool known = message.role == kUser || message.role == kAssistant || message.role == kTool;
  if (!known && !(message.role == kSystem && messages.empty())) {
    fail(ErrorKind::kMalformed, "role ", quoted(message.role),
         " is not user, assistant or tool (or system, first)");
  }
  for (const auto& [key, value] : object.items()) {
    if (key == "role" || key == "content" || value.is_null()) continue;
    message.more[key] = value;
    if (key == "tool_calls") text::parse_arguments(message.more[key], refuse_part);
  }
  messages.push_back(std::move(message));
}

}  // namespace

void append_messages(const io::Json& list, std::vector<Message>& messages) {
  if (!list.is_array()) {
    fail(ErrorKind::kMalformed, "messages: expected an array, found ", io::describe(&list));
  }
  int64_t number = 0;
  for (const io::Json& element : list) {
    with_context(str("message ", ++number), [&] { append_message(element, messages); });
  }
}

std::vector<Message> read_messages(const std::string& path) {
  const std::string content = io::read_file(path, limits::kPromptBytes);
  std::vector<Message> messages;
  std::string_view rest = content;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.empty()) continue;
    with_context(str(path, ": line ", number), [&] {
      const io::Json object = io::parse_json(line, "JSON");
      const io::Json* list = io::find_value(object, "messages");
      list ? append_messages(*list, messages) : append_message(object, messages);
    });
  }
  return messages;
}

void check_prompt_size(size_t prompt_tokens, const LanguageModel& model) {
  if (prompt_tokens == 0) {
    fail(ErrorKind::kUsage,
         "the prompt has no tokens and the model has no start token: it is empty, or none of its "
         "characters is in the vocabulary");
  }
  const int64_t context = model.context(), most = model.max_positions();
  if (static_cast<int64_t>(prompt_tokens) <= context) return;
  fail(
      ErrorKind::kMalformed, "the prompt has ", prompt_tokens, " tokens, the ",
      context < most ? "context" : "model", " only ", context,
      context < most ? str(": shorten it or raise --ctx, up to ", most) : " positions: shorten it");
}

}  // namespace lumen::runtime
