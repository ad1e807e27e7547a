// From a conversation to the tokens a model reads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/model_files.h"
#include "lib/runtime/chat/answer_channels.h"
#include "lib/text/chat_template.h"
#include "lib/text/growing_text.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {

// One message; `role` is "system", "user", "assistant" or "tool" (what a tool gave back).
struct Message {
  std::string role;
  std::string content = "";
  io::Json more = io::Json::object();  // further keys for the chat template, such as tool_calls
  friend bool operator==(const Message&, const Message&) = default;
};

// The message as chat templates and saved conversations have it: `more` last, which wins.
io::Json to_json(const Message& message);

// What the user wants of a chat template.
struct TemplateOptions {
  std::optional<std::string> file;     // in place of the model's own
  std::vector<std::string> arguments;  // "KEY=VALUE", further variables: JSON, else text
};

// How a model wants to be spoken to: its tokenizer, chat template and end tokens. Immutable.
class PromptFormat {
 public:
  // `tokenizer_path` replaces the model's own vocabulary; "" uses that of the files. Throws Error:
  // kUsage if neither exists or the template does not use an argument, kMalformed if the chat
  // template or the vocabulary is broken.
  static PromptFormat load(const io::ModelFiles& files, const std::string& tokenizer_path,
                           const TemplateOptions& options = {});

  // For models that are no files; tests use it.
  PromptFormat(std::shared_ptr<const text::Tokenizer> tokenizer,
               std::optional<text::ChatTemplate> chat_template,
               std::vector<io::EndToken> end_tokens, bool always_bos = false);

  const std::shared_ptr<const text::Tokenizer>& tokenizer() const { return tokenizer_; }
  const std::optional<text::ChatTemplate>& chat_template() const { return chat_template_; }

  // Every token that ends an answer and who says so, without duplicates: the files', the
  // vocabulary's, and control tokens that close a turn in the chat template.
  const std::vector<io::EndToken>& end_tokens() const { return end_tokens_; }
  std::vector<int32_t> end_token_ids() const;

  // The control tokens of answers in channels, if the model gives such: of them <|return|> and
  // <|call|> end an answer, <|end|> does not.
  const std::optional<ChannelTokens>& channels() const { return channels_; }

  // The conversation as text, up to where the assistant's next answer begins or, without
  // `begins_answer`, to the end of the last message. Without a chat template that is the contents
  // of all messages, separated by newlines. `variables` of the template (see require_variable) come
  // before those of TemplateOptions. Throws Error(kMalformed) if the template refuses the messages.
  std::string render(const std::vector<Message>& messages, bool begins_answer = true,
                     const io::Json& variables = io::Json::object()) const;

  // Throws Error(kUsage) if nothing would come of a variable `name`: the chat template does not
  // read it, the conversation decides it, or there is no template.
  void require_variable(const std::string& name) const;

  // The tokens of a rendered or raw prompt. Control tokens in it count as such. BOS comes first if
  // the model wants one and the text does not itself begin with it.
  std::vector<int32_t> encode(std::string_view prompt) const;
  // The same for one prompt after the other that begins like it: `growing` is of this tokenizer and
  // parses control tokens.
  std::vector<int32_t> encode(std::string_view prompt, text::GrowingText& growing) const;

  // The characters of `text` that encode() drops: text::dropped_characters.
  std::string dropped_characters(std::string_view text) const {
    return text::dropped_characters(*tokenizer_, text);
  }

  // Checks that the vocabulary belongs to a model with `rows` embedding rows. `place`: where it is
  // from, for messages. Throws Error(kMismatch) with both numbers: tokens other than control tokens
  // have no rows, nor has the one that begins every prompt, or (`exact`) the numbers differ. More
  // rows than tokens are usual, as embeddings are padded; with fewer than half as many tokens it
  // returns a note that tells so, else "".
  std::string check_vocabulary(int64_t rows, bool exact, const std::string& place) const;

 private:
  void add_end_token(int32_t id, std::string source);
  std::vector<int32_t> with_bos(std::vector<int32_t> ids) const;

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> chat_template_;
  // The files' template "tool_use", which renders conversations with tools, and its place; parsed
  // when it is needed, as the model speaks without it too.
  std::string tool_template_, tool_template_place_;
  io::Json template_variables_ = io::Json::object();  // beside those of a conversation
  std::vector<io::EndToken> end_tokens_;
  std::optional<ChannelTokens> channels_;
  bool wants_bos_;
};

}  // namespace lumen::runtime
