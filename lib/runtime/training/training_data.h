// From a recipe to its tokenizer and batches.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lib/data/data.h"
#include "lib/io/model_files.h"
#include "lib/runtime/training/network.h"
#include "lib/runtime/training/recipe.h"
#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::runtime {

// What a run reads. Immutable once made.
struct TrainingData {
  data::DataOptions options;  // batches of recipe.train.micro_batch samples
  data::Data data;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null for images, tables and bin
  std::vector<text::TokenizerFile> tokenizer_files;  // for the result; none if it has no such form
  std::optional<text::ChatTemplate> chat_template;
  std::vector<std::string> notices;  // one sentence each: built-in data used, …

  DataShape shape() const;
};

// The files in which a directory has its vocabulary, beside tokenizer_config.json.
inline constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer.model",         "spiece.model",     "vocab.json", "merges.txt",
    "vocab.txt",      "special_tokens_map.json", "added_tokens.json"};

// Finds and reads the data that `recipe` names; writes nothing. A tokenizer that the recipe wants
// trained is trained on them. `base` is the model that is fine-tuned, or null. Throws Error as
// data, tokenizer training and tokenizer loading do; kUsage if what the recipe says does not fit
// together.
TrainingData open_training_data(const Recipe& recipe, const io::ModelFiles* base);

}  // namespace lumen::runtime
