#include "lib/runtime/generation/prompt.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/chat/conversation.h"

namespace lumen::runtime {

std::string dropped_notice(const std::string& dropped) {
  return str("the vocabulary has no token for ", dropped, ": the model does not see that");
}

Prompt chat_prompt(const Session& session, const std::vector<Message>& messages,
                   const io::Json& variables) {
  std::string rendered = session.format.render(messages, /*begins_answer=*/true, variables);
  auto ids = session.format.encode(rendered);
  std::string written;
  for (const Message& message : messages) written += message.content;
  return {std::move(rendered), std::move(ids), !session.format.chat_template(),
          session.format.dropped_characters(written)};
}

Prompt raw_prompt(const Session& session, const std::string& text) {
  return {text, session.format.encode(text), true, session.format.dropped_characters(text)};
}

void check_prompt(const Prompt& prompt, const LanguageModel& model) {
  check_prompt_size(prompt.ids.size(), model);
  for (const int32_t id : prompt.ids) {
    if (id >= model.vocab()) {
      fail(ErrorKind::kMalformed, "token id ", id, " of the prompt is not below the model's ",
           model.vocab(), " tokens");
    }
  }
}

}  // namespace lumen::runtime
