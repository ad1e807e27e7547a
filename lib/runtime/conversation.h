// A chat with a model: messages, their place in the context, and the answers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/runtime/generation.h"
#include "lib/runtime/prompt_format.h"

namespace lumen::runtime {

// Turns and their answers. The KV cache is kept between turns: only tokens that the last prompt
// and answer did not have are computed. Not thread-safe.
class Conversation {
 public:
  // All three must outlive it.
  Conversation(const PromptFormat& format, Generator& generator, std::string system_prompt);

  // The system message, if there is one, then user and assistant in turn.
  const std::vector<Message>& messages() const { return messages_; }
  std::string system_prompt() const;

  // Adds the user's message and the model's answer to it, which is kept as far as it came if it
  // was interrupted. When the whole no longer fits, the oldest turns (a user's message and what
  // follows it, never the system prompt, never the newest) are dropped first; `dropped_turns`, if
  // given, receives their number. On an error the conversation is as before.
  // Throws Error(kMalformed) if system prompt and message alone are too long.
  GenerationResult answer(const std::string& user_text, Sampler& sampler,
                          const GenerationOptions& options, TextSink sink,
                          const volatile bool* stop = nullptr, int* dropped_turns = nullptr);

  // Answers the last user message anew. Throws Error(kUsage) if there is none.
  GenerationResult retry(Sampler& sampler, const GenerationOptions& options, TextSink sink,
                         const volatile bool* stop = nullptr, int* dropped_turns = nullptr);

  // Removes the last user message and its answer; false if there is none.
  bool undo();

  // Forgets everything but the system prompt, which becomes `system_prompt`.
  void reset(std::string system_prompt);

  // One message a line, as JSON objects with "role" and "content". load replaces the conversation.
  // Throw Error: kCannotCreate and kIo; kMissing, and kMalformed naming the line.
  void save(const std::string& path) const;
  void load(const std::string& path);

  // The tokens of the messages as the next answer would read them.
  std::vector<int32_t> prompt() const { return format_.encode(format_.render(messages_)); }

 private:
  std::vector<int32_t> fit_prompt(int* dropped_turns);
  bool drop_oldest_turn();

  const PromptFormat& format_;
  Generator& generator_;
  std::vector<Message> messages_;
};

// Messages of a JSON Lines file, checked: roles known, contents text, system only first.
std::vector<Message> read_messages(const std::string& path);

// Refuses a prompt that cannot be continued within `context` positions: Error(kMalformed) with both
// numbers, or kUsage if it has no token at all.
void check_prompt_size(size_t prompt_tokens, int64_t context);

}  // namespace lumen::runtime
