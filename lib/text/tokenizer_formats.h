// Loaders of the single formats, for load_tokenizer.
#pragma once

#include <memory>
#include <string_view>

#include "lib/text/tokenizer.h"
#include "lib/text/tokenizer_json.h"

namespace lumen::text {

// A sentencepiece model. With `config` (of a Hugging Face directory, else null) control and added
// tokens in the text are recognised and BOS and EOS added as the configuration says; without it BOS
// is added if the model has one, otherwise EOS. Throws Error(kMalformed) for hostile files.
std::shared_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const TokenizerConfig* config);

// A tokenizer.bin of llama2.c: int32 length of the longest token, then for each token float score,
// int32 length, bytes. Throws Error(kMalformed).
std::shared_ptr<const Tokenizer> parse_llama2c(std::string_view bytes);

// The files from before tokenizer.json in `directory`: vocab.json with merges.txt (GPT-2, or Qwen2
// where tokenizer_config.json says so), or vocab.txt (BERT). Throws Error(kMissing, kMalformed).
std::shared_ptr<const Tokenizer> parse_legacy_files(const std::string& directory,
                                                    const TokenizerConfig& config);

}  // namespace lumen::text
