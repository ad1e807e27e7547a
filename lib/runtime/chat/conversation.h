// A chat with a model: messages, their place in the context, and the answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/generation/generation.h"
#include "lib/runtime/generation/prompt_format.h"

namespace lumen::runtime {

// Turns and their answers. The KV cache is kept between turns: only tokens that the last prompt
// and answer did not have are computed. Not thread-safe.
class Conversation {
 public:
  // `format` and `generator` must outlive it. `on_drop`, if given, is told how many turns were
  // dropped, before the answer begins.
  Conversation(const PromptFormat& format, Generator& generator, std::string system_prompt,
               std::function<void(int turns)> on_drop = nullptr);

  // The system message, if there is one, then user and assistant in turn.
  const std::vector<Message>& messages() const { return messages_; }
  std::string system_prompt() const;

  // Adds the user's message and the model's answer to it, which is kept as far as it came if it
  // was interrupted. When the whole does not fit with room for an answer, the oldest turns (a
  // user's message and what follows it, never the system prompt, never the newest) are dropped
  // first, until the rest takes half of the context. On an error the conversation is as before.
  // Throws Error(kMalformed) if system prompt and message alone are too long.
  GenerationResult answer(const std::string& user_text, Sampler& sampler,
                          const GenerationOptions& options, TextSink sink,
                          const std::atomic<bool>* stop = nullptr);

  // Answers the last user message anew. Throws Error(kUsage) if there is none.
  GenerationResult retry(Sampler& sampler, const GenerationOptions& options, TextSink sink,
                         const std::atomic<bool>* stop = nullptr);

  // Answers `user_text` in the place of the last user message. Throws Error(kUsage) as retry.
  GenerationResult answer_instead(const std::string& user_text, Sampler& sampler,
                                  const GenerationOptions& options, TextSink sink,
                                  const std::atomic<bool>* stop = nullptr);

  // The last user message, null if there is none.
  const Message* last_question() const;

  // Removes the last user message and its answer; false if there is none.
  bool undo();

  // Forgets everything but the system prompt.
  void reset();
  void set_system_prompt(std::string system_prompt);

  // A line of JSON {"messages": [{"role": …, "content": …}, …]}, as training data have it. load
  // replaces the conversation; see read_messages. Throw Error: kCannotCreate, kIo; kMissing,
  // kMalformed.
  void save(const std::string& path) const;
  void load(const std::string& path);

  // The messages as the model reads them, up to the last one's end if that is an answer, else up to
  // where an answer begins.
  std::string text() const;

  // The tokens of the messages as the next answer would read them.
  std::vector<int32_t> prompt() { return format_.encode(format_.render(messages_), tokens_); }

 private:
  std::vector<int32_t> fit_prompt(const GenerationOptions& options);
  bool drop_oldest_turn();

  const PromptFormat& format_;
  Generator& generator_;
  std::function<void(int)> on_drop_;
  std::vector<Message> messages_;
  text::GrowingText tokens_;  // of the last prompt
};

// The messages of a JSON Lines file: lines as `save` writes them or single messages, all of one
// conversation. Throws as append_messages, naming the line.
std::vector<Message> read_messages(const std::string& path);

// Appends the messages of an array of {"role": …, "content": …, …}. A content is a text, or
// OpenAI's array of parts {"type": "text", "text": …}, which are joined by newlines; beside
// tool_calls it may be null. Arguments of tool_calls that are JSON as a text, as in OpenAI's API,
// become what they say. Throws Error naming the message: kMalformed unless roles are known and
// system comes only first, kUnsupported for images and other parts that are no text.
void append_messages(const io::Json& list, std::vector<Message>& messages);

// Refuses a prompt that has more tokens than the context of `model`: Error(kMalformed) with both
// numbers and what helps, or kUsage if it has no token at all.
void check_prompt_size(size_t prompt_tokens, const LanguageModel& model);

}  // namespace lumen::runtime
