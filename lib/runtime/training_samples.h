// What a language model writes while it is trained.
#pragma once

#include <string>
#include <vector>

#include "lib/runtime/language_model.h"
#include "lib/runtime/train_task.h"
#include "lib/runtime/training_data.h"

namespace lumen::runtime {

// For each of `prompts` that the vocabulary of the data has no token for, a sentence that says so:
// the model would continue another text than the one shown.
std::vector<std::string> unreadable_prompts(const TrainingData& data,
                                            const std::vector<std::string>& prompts);

struct ContinuationOptions {
  int64_t context = 0;     // positions, prompt and answer together
  int64_t max_tokens = 0;  // of an answer
  uint64_t seed = 0;
  int threads = 1;
};

// Each of `prompts` with what the model answers or, without a chat template, how it goes on; alone
// if it has no token, does not fit or is unreadable. Fewer than asked for where `stops` said so.
std::vector<std::string> continue_prompts(const models::CausalLm& model, const TrainingData& data,
                                          const std::vector<std::string>& prompts,
                                          const ContinuationOptions& options,
                                          const StopCheck& stops);

}  // namespace lumen::runtime
