// What a language model writes while it is trained.
#pragma once

#include <string>
#include <vector>

#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/training/train_task.h"
#include "lib/runtime/training/training_data.h"

namespace lumen::runtime {

// For each of `prompts` that is not continued in `context` positions, a sentence that says why: it
// has no token, too many, or characters that the vocabulary has no token for, so that the model
// would continue another text than the one shown.
std::vector<std::string> obstacles_of(const TrainingData& data,
                                      const std::vector<std::string>& prompts, int64_t context);

struct ContinuationOptions {
  int64_t context = 0;     // positions, prompt and answer together
  int64_t max_tokens = 0;  // of an answer
  uint64_t seed = 0;
  int threads = 1;
};

// Each of `prompts` with what the model answers or, without a chat template, how it goes on; alone
// where there are obstacles_of it. Fewer than asked for where `stops` said so.
std::vector<std::string> continue_prompts(const models::CausalLm& model, const TrainingData& data,
                                          const std::vector<std::string>& prompts,
                                          const ContinuationOptions& options,
                                          const StopCheck& stops);

}  // namespace lumen::runtime
