// The vocabulary of a GGUF file as the files of a Hugging Face directory.
#pragma once

#include <vector>

#include "lib/io/gguf.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::text {

// tokenizer.json for byte-level BPE ("gpt2"), sentencepiece BPE ("llama") and unigram ("t5"), for
// "llama" tokenizer.model too, which also stands for a tokenizer.json that would not be the same,
// and tokenizer_config.json last: load_tokenizer of a directory with them
// gives the tokens of `file`. Empty for the other kinds, and where reading the files back was seen
// to give other tokens. Throws Error as load_tokenizer(file).
std::vector<TokenizerFile> tokenizer_files(const io::GgufFile& file);

}  // namespace lumen::text
