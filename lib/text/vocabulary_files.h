// A vocabulary as the files of a Hugging Face directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/text/tokenizer.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::text {

// The files by which load_tokenizer of a directory finds the vocabulary that the file `path` holds:
// a tokenizer.json with what is configured beside it, a sentencepiece model as tokenizer.model (the
// content of both is not looked into), of a GGUF tokenizer_files, and of llama2.c's those of the
// same vocabulary in a GGUF. Empty where that has none. Throws Error: kMissing (no such file), and
// of these two as load_tokenizer.
std::vector<TokenizerFile> vocabulary_files(const std::string& path);

// The tokenizer that load_tokenizer finds in a directory of `files`, a tokenizer.json or a
// tokenizer.model with what is configured beside it: as make_tokenizer and vocabulary_files give
// them. Throws Error as load_tokenizer, with the names of files as their places.
std::shared_ptr<const Tokenizer> parse_files(const std::vector<TokenizerFile>& files);

}  // namespace lumen::text
