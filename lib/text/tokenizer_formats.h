// Loaders of the single formats, for load_tokenizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lib/io/gguf.h"
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

// The same as the vocabulary of a GGUF file, which gives the tokens of plain text, or null where it
// cannot: a token is there twice, …. Throws Error(kMalformed).
std::shared_ptr<const io::GgufFile> llama2c_as_gguf(std::string_view bytes);

// What tokenizer.json would say for the files from before it in `directory`: vocab.json with
// merges.txt (GPT-2, or Qwen2 where tokenizer_config.json says so), or vocab.txt (BERT). Throws
// Error(kMissing, kMalformed).
io::Json legacy_tokenizer_json(const std::string& directory, const TokenizerConfig& config);

// The vocabulary of a Hugging Face directory as its files state it: `json`, or a sentencepiece
// model.
struct DirectoryVocabulary {
  std::string path;                          // of the file, or the directory where it is several
  io::Json json;                             // tokenizer.json, or what it would say
  std::optional<std::string> sentencepiece;  // the bytes of tokenizer.model
  TokenizerConfig config;
};

// Reads what load_tokenizer(directory) takes. Throws Error as that.
DirectoryVocabulary read_directory_vocabulary(const std::string& directory);
std::shared_ptr<const Tokenizer> parse_tokenizer(const DirectoryVocabulary& vocabulary);

}  // namespace lumen::text
