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

namespace lumen::runtime {

// What a run reads. Immutable once made.
struct TrainingData {
  data::DataOptions options;  // batches of recipe.train.micro_batch samples
  data::Data data;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null for images, tables and bin
  std::string tokenizer_directory;                   // of its files, to be copied into the result
  std::optional<text::ChatTemplate> chat_template;
  std::vector<std::string> notices;  // one sentence each: built-in data used, …

  DataShape shape() const;
};

// Finds and reads the data that `recipe` names. A tokenizer that the recipe wants trained is
// trained on them, into `work_directory`/tokenizer, unless it is there already from an earlier
// start of this run. `base` is the model that is fine-tuned, or null. Throws Error as data,
// tokenizer training and tokenizer loading do; kUsage if what the recipe says does not fit
// together.
TrainingData open_training_data(const Recipe& recipe, const std::string& work_directory,
                                const io::ModelFiles* base);

}  // namespace lumen::runtime
