// Which part of a rendered conversation each message is. Templates are programs, so the answer is
// found by rendering beginnings of the conversation and checking that each continues the other.
#include <algorithm>
#include <optional>

#include "lib/base/error.h"
#include "lib/data/language.h"

namespace lumen::data {
namespace {

using text::ByteRange;

// The first `count` messages rendered; nullopt if the template refuses such a conversation.
std::optional<std::string> render_first(const text::ChatTemplate& chat_template,
                                        const text::ChatInput& input, size_t count,
                                        bool generation_prompt) {
  text::ChatInput part = input;
  part.messages = io::Json::array();
  for (size_t i = 0; i < count; ++i) part.messages.push_back(input.messages[i]);
  part.add_generation_prompt = generation_prompt;
  try {
    return text::render_chat(chat_template, part, {.now = kTemplateDate});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kMalformed) throw;
    return std::nullopt;
  }
}

// The one place of the message's content in what its turn added to the text.
std::optional<size_t> content_begin(const io::Json& message, std::string_view added) {
  const io::Json* content = io::find_value(message, "content");
  if (content == nullptr || !content->is_string()) return std::nullopt;
  std::string_view wanted = content->get_ref<const std::string&>();
  // Templates commonly trim what they are given.
  const size_t first = wanted.find_first_not_of(" \t\r\n");
  if (first == wanted.npos) return std::nullopt;
  wanted = wanted.substr(first, wanted.find_last_not_of(" \t\r\n") - first + 1);
  const size_t at = added.find(wanted);
  if (at == added.npos || added.find(wanted, at + 1) != added.npos) return std::nullopt;
  return at;
}

// What message `number` said.
std::optional<ByteRange> said(const text::ChatTemplate& chat_template, const text::ChatInput& input,
                              size_t number, const std::string& full) {
  const io::Json& message = input.messages[number];
  const bool is_last = number + 1 == input.messages.size();
  const auto after =
      is_last ? std::optional(full) : render_first(chat_template, input, number + 1, false);
  if (!after || !full.starts_with(*after)) return std::nullopt;
  if (io::get_string(message, "role") == "assistant") {
    // The prompt that the model is given is where its answer begins.
    const auto prompt = render_first(chat_template, input, number, true);
    if (prompt && after->starts_with(*prompt)) return ByteRange{prompt->size(), after->size()};
  }
  const auto before = number == 0 ? std::optional(std::string())
                                  : render_first(chat_template, input, number, false);
  if (!before || !after->starts_with(*before)) return std::nullopt;
  const auto at = content_begin(message, std::string_view(*after).substr(before->size()));
  if (!at) return std::nullopt;
  return ByteRange{before->size() + *at, after->size()};
}

// What `{% generation %}` blocks mark, if the template has them.
std::vector<ByteRange> marked_by_template(const text::ChatTemplate& chat_template,
                                          const text::ChatInput& input) {
  std::vector<ByteRange> ranges;
  text::render_chat(chat_template, input, {.now = kTemplateDate, .generation = &ranges});
  return ranges;
}

}  // namespace

std::vector<ByteRange> said_by(const std::vector<std::string>& roles,
                               const text::ChatTemplate& chat_template,
                               const text::ChatInput& input, const std::string& full) {
  std::vector<ByteRange> ranges;
  for (size_t i = 0; i < input.messages.size(); ++i) {
    const std::string role = io::get_string(input.messages[i], "role");
    if (std::find(roles.begin(), roles.end(), role) == roles.end()) continue;
    const auto range = said(chat_template, input, i, full);
    if (range) {
      ranges.push_back(*range);
      continue;
    }
    // The author of the template may have marked what cannot be found from outside.
    if (roles.size() == 1 && role == "assistant") {
      auto marked = marked_by_template(chat_template, input);
      if (!marked.empty()) return marked;
    }
    fail(ErrorKind::kMalformed, "message ", i + 1, " (", quoted(role),
         ") cannot be found in what the chat template ", quoted(chat_template.name()),
         " makes of the conversation: it changes earlier turns when later ones follow, so what is "
         "to be learned is not certain; use another template, or rows of one turn");
  }
  if (ranges.empty()) {
    fail(ErrorKind::kMalformed, "no message of the roles that are learned (", join(roles, ", "),
         ")");
  }
  return ranges;
}

}  // namespace lumen::data
