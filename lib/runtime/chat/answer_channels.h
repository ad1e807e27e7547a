// Answers in channels, as gpt-oss gives them (OpenAI, "harmony response format", 2025): messages
//   <|start|>ROLE to=RECIPIENT<|channel|>CHANNEL TYPE<|message|>TEXT<|end|>
// of which the channel "analysis" is thought and not for the user, and the last ends with
// <|return|> or, where it calls a tool, with <|call|>.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lib/text/tokenizer.h"

namespace lumen::runtime {

struct ChannelTokens {
  int32_t start, channel, message, end, done, call;
};

// The control tokens of such messages, if a vocabulary has them all.
std::optional<ChannelTokens> channel_tokens(const text::Tokenizer& tokenizer);

// Tells which tokens of an answer the user is to read. Not thread-safe.
class ChannelReader {
 public:
  // Which messages the user is to read: all but thoughts, or only those of the channel "final" and
  // without a channel.
  enum class Shown { kAllButThoughts, kFinal };

  // Of the answer to `prompt`, which may end within a message: what follows its last <|start|> is
  // read. Without one everything is text.
  ChannelReader(std::shared_ptr<const text::Tokenizer> tokenizer, const ChannelTokens& tokens,
                std::span<const int32_t> prompt, Shown shown = Shown::kAllButThoughts);

  // Takes the next token. True if its text is for the user. Appends to `out` what comes before
  // that: an empty line after an earlier message, and the recipient of a call of a tool. Does not
  // allocate in the steady state.
  bool push(int32_t token, std::string& out);

  // Whether the text of the next token is for the user.
  bool in_shown_text() const { return state_ == State::kShown; }

  // The answer is over: appends what would be lost if no message of it has begun.
  void finish(std::string& out);

 private:
  enum class State { kHeader, kShown, kHidden };

  void begin_message(std::string& out);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  ChannelTokens tokens_;
  Shown which_;
  text::TokenStream stream_;  // of headers
  std::string header_;        // up to where the message begins, a line ending before the channel
  size_t of_prompt_ = 0;      // bytes of that
  State state_ = State::kShown;
  bool began_ = false;  // a message
  bool shown_ = false;  // of the answer
};

}  // namespace lumen::runtime
