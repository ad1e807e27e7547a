// What a model is given to read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/runtime/generation/session.h"

namespace lumen::runtime {

struct Prompt {
  std::string text;  // rendered; "" if it was given as ids
  std::vector<int32_t> ids;
  bool is_continued = false;  // the answer continues the text, no chat template
  std::string dropped = "";   // what people wrote and encode() dropped: dropped_characters()
};

// A sentence for people about characters that PromptFormat::dropped_characters named.
std::string dropped_notice(const std::string& dropped);

inline constexpr const char* kNoTemplateNotice =
    "the model has no chat template: the prompt is continued as it is";

// The messages as the session's model wants them, with further `variables` of its chat template;
// see PromptFormat::render.
Prompt chat_prompt(const Session& session, const std::vector<Message>& messages,
                   const io::Json& variables = io::Json::object());
// The text as it is.
Prompt raw_prompt(const Session& session, const std::string& text);

// Refuses what `model` cannot read: as check_prompt_size, and Error(kMalformed) for an id that is
// not below its vocabulary.
void check_prompt(const Prompt& prompt, const LanguageModel& model);

}  // namespace lumen::runtime
