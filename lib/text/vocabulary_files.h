// A vocabulary in a file of any name as the files of a Hugging Face directory.
#pragma once

#include <string>
#include <vector>

#include "lib/text/train/train_tokenizer.h"

namespace lumen::text {

// The files by which load_tokenizer of a directory finds the vocabulary that the file `path` holds:
// a tokenizer.json with what is configured beside it, a sentencepiece model as tokenizer.model (the
// content of both is not looked into), of a GGUF tokenizer_files, and of llama2.c's those of the
// same vocabulary in a GGUF. Empty where that has none. Throws Error: kMissing (no such file), and
// of these two as load_tokenizer.
std::vector<TokenizerFile> vocabulary_files(const std::string& path);

}  // namespace lumen::text
