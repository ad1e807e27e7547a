// The result of a run as a GGUF file beside its Hugging Face directory: export.format.
#pragma once

#include <string>

#include "lib/runtime/training/recipe.h"
#include "lib/runtime/training/train_options.h"

namespace lumen::runtime {

// Whether `recipe` wants one.
bool wants_gguf(const Recipe& recipe);

// Its name in the directory: "model.gguf", or of an adapter "adapter.gguf".
std::string gguf_name(const Recipe& recipe);

// Throws Error at export.format if the model that `recipe` goes on with has no name in GGUF: before
// the run, not at its end.
void check_gguf_result(const Recipe& recipe);

// Makes the file of the result in `directory`. Returns 0, or 128 + N after signal N, which leaves
// no file. Throws Error as convert().
int write_gguf_result(const Recipe& recipe, const std::string& directory,
                      const TrainOptions& options);

}  // namespace lumen::runtime
