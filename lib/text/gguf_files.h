// The vocabulary of a GGUF file as the files of a Hugging Face directory.
#pragma once

#include <vector>

#include "lib/io/gguf.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::text {

// tokenizer.json for byte-level BPE ("gpt2"), sentencepiece BPE ("llama"), Gemma 4's BPE and
// unigram ("t5"), of "llama" tokenizer.model too, and tokenizer_config.json last: load_tokenizer of
// a directory with them gives the tokens of `file`. Where a tokenizer.json would not, "llama" and
// "t5" have tokenizer.model alone. Empty for the other kinds, for tokens that are not UTF-8, and
// where reading the files back was seen to give other tokens. Throws Error as load_tokenizer(file).
std::vector<TokenizerFile> tokenizer_files(const io::GgufFile& file);

}  // namespace lumen::text
