// Which part of a rendered conversation each message is. Templates are programs, so the answer is
// found by rendering beginnings of the conversation and checking that each continues the other; all
// of them in one go where the template allows it.
#include <algorithm>
#include <optional>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/data/language.h"

namespace lumen::data {
namespace {

using text::ByteRange;

// nullopt if the template refuses such a conversation.
std::optional<std::string> try_render(const text::ChatTemplate& chat_template,
                                      text::ChatInput input) {
  try {
    return text::render_chat(chat_template, std::move(input), {.now = kTemplateDate});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMalformed) throw;
    return std::nullopt;
  }
}

// The first `count` messages rendered; nullopt if the template refuses such a conversation.
std::optional<std::string> render_first(const text::ChatTemplate& chat_template,
                                        const text::ChatInput& input, size_t count,
                                        bool generation_prompt) {
  text::ChatInput part = {.tools = input.tools,
                          .documents = input.documents,
                          .add_generation_prompt = generation_prompt,
                          .bos_token = input.bos_token,
                          .eos_token = input.eos_token,
                          .extra = input.extra};
  for (size_t i = 0; i < count; ++i) part.messages.push_back(input.messages[i]);
  return try_render(chat_template, std::move(part));
}

// Where beginnings of a conversation end in `full`, what is rendered of all of it.
class Beginnings {
 public:
  Beginnings(const text::ChatTemplate& chat_template, const text::ChatInput& input,
             const std::string& full)
      : template_(chat_template), input_(input), full_(full) {}

  // The bytes that the first `count` messages are rendered to, if `full` begins with them.
  std::optional<size_t> end(size_t count, bool generation_prompt) {
    Rendering& all = rendered(generation_prompt);
    if (count < all.beginnings.size() && all.beginnings[count]) {
      const auto& [shared, rest] = *all.beginnings[count];
      const bool begins = shared <= all.same && full_.compare(shared, rest.size(), rest) == 0;
      return begins ? std::optional(shared + rest.size()) : std::nullopt;
    }
    const auto part = render_first(template_, input_, count, generation_prompt);
    return part && full_.starts_with(*part) ? std::optional(part->size()) : std::nullopt;
  }

 private:
  // Of fewer messages each beginning is rendered by itself, which takes no longer.
  static constexpr size_t kFew = 4;

  struct Rendering {
    bool done = false;
    text::RenderedBeginnings beginnings;
    size_t same = 0;  // bytes of the whole that are as in `full`
  };

  Rendering& rendered(bool generation_prompt) {
    Rendering& all = renderings_[generation_prompt];
    if (std::exchange(all.done, true) || input_.messages.size() <= kFew) return all;
    text::ChatInput whole = input_;
    whole.add_generation_prompt = generation_prompt;
    try {
      const std::string text =
          text::render_chat(template_, std::move(whole), {.now = kTemplateDate}, &all.beginnings);
      const auto end = std::mismatch(text.begin(), text.end(), full_.begin(), full_.end());
      all.same = static_cast<size_t>(end.first - text.begin());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kMalformed) throw;
      all.beginnings.clear();
    }
    return all;
  }

  const text::ChatTemplate& template_;
  const text::ChatInput& input_;
  const std::string& full_;
  Rendering renderings_[2];  // without and with a generation prompt
};

// `text` without the white space around it.
std::string_view trimmed(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Where the content of message `number` stands in `full`: what changes when another content is
// given to the template, if that is the content itself. Templates commonly trim it.
std::optional<ByteRange> content_range(const text::ChatTemplate& chat_template,
                                       const text::ChatInput& input, size_t number,
                                       const std::string& full) {
  const io::Json* content = io::find_value(input.messages[number], "content");
  if (content == nullptr || !content->is_string()) return std::nullopt;
  const std::string_view wanted = trimmed(content->get_ref<const std::string&>());
  if (wanted.empty()) return std::nullopt;
  // Another content that begins and ends with other characters.
  const auto unlike = [](char c) { return c == 'x' ? 'y' : 'x'; };
  text::ChatInput other = input;
  other.messages[number]["content"] = std::string({unlike(wanted.front()), unlike(wanted.back())});
  other.add_generation_prompt = false;
  const auto changed = try_render(chat_template, std::move(other));
  if (!changed) return std::nullopt;
  const auto begin = std::mismatch(full.begin(), full.end(), changed->begin(), changed->end());
  const auto end = std::mismatch(full.rbegin(), full.rend(), changed->rbegin(), changed->rend());
  const ByteRange range = {static_cast<size_t>(begin.first - full.begin()),
                           full.size() - static_cast<size_t>(end.first - full.rbegin())};
  if (range.begin > range.end) return std::nullopt;
  const auto shown = std::string_view(full).substr(range.begin, range.end - range.begin);
  return trimmed(shown) == wanted ? std::optional(range) : std::nullopt;
}

// Where the assistant's message `number` stands in `full` behind its prompt, the first `begin`
// bytes, if that is another text than at the end of a conversation, as with thoughts that are left
// out of earlier turns: up to what follows whatever the message is, if another one is shown there
// as it is.
std::optional<ByteRange> answer_range(const text::ChatTemplate& chat_template,
                                      const text::ChatInput& input, size_t number,
                                      const std::string& full, size_t begin) {
  const std::string_view prompt = std::string_view(full).substr(0, begin);
  const std::string_view shown = std::string_view(full).substr(begin);
  for (const char* answer : {"xy", "yx"}) {  // one that does not end as the message does
    text::ChatInput other = input;
    other.messages[number] = {{"role", "assistant"}, {"content", answer}};
    other.add_generation_prompt = false;
    const auto changed = try_render(chat_template, std::move(other));
    if (!changed || !changed->starts_with(prompt)) return std::nullopt;
    const std::string_view instead = std::string_view(*changed).substr(begin);
    const auto end = std::mismatch(shown.rbegin(), shown.rend(), instead.rbegin(), instead.rend());
    const auto same = static_cast<size_t>(end.first - shown.rbegin());
    if (same < shown.size() && instead.substr(0, instead.size() - same) == answer) {
      return ByteRange{begin, full.size() - same};
    }
  }
  return std::nullopt;
}

// What message `number` said.
std::optional<ByteRange> said(const text::ChatTemplate& chat_template, const text::ChatInput& input,
                              size_t number, const std::string& full, Beginnings& beginnings) {
  std::optional<size_t> prompt;
  if (io::get_string(input.messages[number], "role") == "assistant") {
    // From where the prompt that the model is given ends to where the conversation so far does.
    const bool is_last = number + 1 == input.messages.size();
    const auto after = is_last ? std::optional(full.size()) : beginnings.end(number + 1, false);
    prompt = beginnings.end(number, true);
    if (after && prompt && *prompt <= *after) return ByteRange{*prompt, *after};
  }
  const auto content = content_range(chat_template, input, number, full);
  if (content || !prompt) return content;
  return answer_range(chat_template, input, number, full, *prompt);
}

// What `{% generation %}` blocks mark, if the template has them.
std::vector<ByteRange> marked_by_template(const text::ChatTemplate& chat_template,
                                          const text::ChatInput& input) {
  std::vector<ByteRange> ranges;
  text::render_chat(chat_template, input, {.now = kTemplateDate, .generation = &ranges});
  return ranges;
}

}  // namespace

void check_shown(const text::ChatTemplate& chat_template, const text::ChatInput& input,
                 const std::string& full) {
  if (!input.tools.empty()) {
    text::ChatInput without = input;
    without.tools = nullptr;
    if (try_render(chat_template, without) == full) {
      fail(ErrorKind::kMalformed, "\"tools\" are left out by the chat template ",
           quoted(chat_template.name()), ": use another template, or rows without them");
    }
  }
  for (size_t i = 0; i < input.messages.size(); ++i) {
    const std::string role = io::get_string(input.messages[i], "role");
    const io::Json* calls = io::find_value(input.messages[i], "tool_calls");
    if (calls != nullptr && !calls->empty()) {
      text::ChatInput silent = input;
      silent.messages[i].erase("tool_calls");
      if (!io::find_value(silent.messages[i], "content")) silent.messages[i]["content"] = "";
      if (try_render(chat_template, silent) == full) {
        fail(ErrorKind::kMalformed, "the calls of tools of message ", i + 1,
             " are left out by the chat template ", quoted(chat_template.name()),
             ": use another template");
      }
    }
    if (role == "system" || role == "user" || role == "assistant") continue;
    if (io::get_string(input.messages[i], "content", "").empty()) continue;
    text::ChatInput without = input;
    without.messages.erase(i);
    if (try_render(chat_template, without) != full) continue;
    fail(ErrorKind::kMalformed, "message ", i + 1, " (", quoted(role), ") is left out by the chat ",
         "template ", quoted(chat_template.name()),
         ", which has no such role: give it another, or use another template");
  }
}

namespace {

// A role that is not learned must not be a slip in writing one that is: nobody would notice.
void check_spelling(size_t message, const std::string& role,
                    const std::vector<std::string>& learned) {
  constexpr const char* kOthers[] = {"system", "developer", "user",
                                     "tool",   "function",  "assistant"};
  if (std::find(std::begin(kOthers), std::end(kOthers), role) != std::end(kOthers)) return;
  const std::string meant = nearest(role, learned);
  if (meant.empty()) return;
  fail(ErrorKind::kMalformed, "message ", message + 1, " has the role ", quoted(role),
       ", which is not learned; did you mean ", meant, "?");
}

bool is_of(const io::Json& message, const std::vector<std::string>& roles) {
  return std::find(roles.begin(), roles.end(), io::get_string(message, "role")) != roles.end();
}

[[noreturn]] void refuse_hidden(const text::ChatTemplate& chat_template,
                                const text::ChatInput& input, size_t number) {
  fail(ErrorKind::kMalformed, "message ", number + 1, " (",
       quoted(io::get_string(input.messages[number], "role")),
       ") cannot be found in what the chat template ", quoted(chat_template.name()),
       " makes of the conversation: it is changed, repeated or left out there, so what is to be "
       "learned is not certain; use another template, or one with generation blocks");
}

}  // namespace

bool has_weight(const io::Json& message) {
  const io::Json* weight = io::find_value(message, "weight");
  return weight == nullptr || *weight != 0;
}

bool is_learned(const io::Json& message, const std::vector<std::string>& roles) {
  return is_of(message, roles) && has_weight(message);
}

std::vector<ByteRange> said_without_weight(const text::ChatTemplate& chat_template,
                                           const text::ChatInput& input, const std::string& full) {
  Beginnings beginnings(chat_template, input, full);
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < input.messages.size(); ++i) {
    if (has_weight(input.messages[i])) continue;
    const auto range = said(chat_template, input, i, full, beginnings);
    if (!range) refuse_hidden(chat_template, input, i);
    ranges.push_back(*range);
  }
  return ranges;
}

std::vector<ByteRange> said_by(const std::vector<std::string>& roles,
                               const text::ChatTemplate& chat_template,
                               const text::ChatInput& input, const std::string& full) {
  Beginnings beginnings(chat_template, input, full);
  std::vector<ByteRange> ranges;
  const bool left_out = std::ranges::any_of(input.messages, [&](const io::Json& message) {
    return is_of(message, roles) && !has_weight(message);
  });
  for (size_t i = 0; i < input.messages.size(); ++i) {
    const std::string role = io::get_string(input.messages[i], "role");
    if (!is_of(input.messages[i], roles)) {
      check_spelling(i, role, roles);
      continue;
    }
    if (!has_weight(input.messages[i])) continue;
    const auto range = said(chat_template, input, i, full, beginnings);
    if (range) {
      ranges.push_back(*range);
      continue;
    }
    // The author of the template may have marked what cannot be found from outside, of all answers.
    if (roles.size() == 1 && role == "assistant" && !left_out) {
      auto marked = marked_by_template(chat_template, input);
      if (!marked.empty()) return marked;
    }
    refuse_hidden(chat_template, input, i);
  }
  if (ranges.empty()) {
    std::vector<std::string> found;
    for (const io::Json& message : input.messages) {
      const std::string role = quoted(io::get_string(message, "role"), 40);
      if (std::find(found.begin(), found.end(), role) == found.end()) found.push_back(role);
      if (found.size() == 5) break;
    }
    fail(ErrorKind::kMalformed, "no message of the roles that are learned (", join(roles, ", "),
         left_out ? ") has another weight than 0" : ")", "; there are messages of ",
         join(found, ", "));
  }
  return ranges;
}

}  // namespace lumen::data
