// Tokenizers made from text: characters, byte-level BPE, sentencepiece unigram and BPE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"

namespace lumen::text {

enum class TokenizerKind {
  kCharacters,            // one token per character of the text, ids by code point; tokenizer.json
  kByteLevelBpe,          // GPT-2's alphabet and split, merges counted on the text; tokenizer.json
  kSentencePieceUnigram,  // by libsentencepiece; tokenizer.model, and tokenizer.json of the same
  kSentencePieceBpe,
};

struct TokenizerTraining {
  TokenizerKind kind = TokenizerKind::kCharacters;
  // Tokens, special ones included. characters: a limit, the rarest characters beyond it become
  // "<unk>"; 0: no limit. bpe and the others: fewer come out if the text gives no more.
  int64_t vocab_size = 0;
  // Control tokens: behind the others in the vocabulary (characters, bpe), or before them, behind
  // <unk>, <s> and </s> (sentencepiece). Text that spells one is not trained on.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  // Which of them these are; "" for none, with sentencepiece <s> and </s>. BOS is put before every
  // text if there is one and it was named here.
  std::string bos, eos = "<|endoftext|>", pad;
  std::string chat_template;  // for tokenizer_config.json; "" for none
  uint64_t seed = 42;         // sentencepiece: which lines of a large text are used
};

// An option that cannot be as it is, kUsage: `option` is its name in TokenizerTraining, so that a
// caller can say where its value came from.
class TokenizerOptionError : public Error {
 public:
  TokenizerOptionError(std::string option, std::string message)
      : Error(ErrorKind::kUsage, std::move(message)), option_(std::move(option)) {}

  const std::string& option() const { return option_; }

 private:
  std::string option_;
};

// A file to be written: its name and content.
struct TokenizerFile {
  std::string name, content;
};

// A tokenizer for `texts` (documents, or one long text): tokenizer.json, of sentencepiece also
// tokenizer.model, and tokenizer_config.json last. load_tokenizer and Hugging Face's AutoTokenizer
// open the directory that has them. encode, then decode gives a text back exactly: with characters
// if it has no others, with bpe always, with sentencepiece (identity normalization, byte fallback,
// "▁" put before a text) unless it has a "▁", which becomes a space. Deterministic. Throws Error:
// kMalformed (no text, or some that is not UTF-8), kResource (more than limits::kPromptBytes in
// all), TokenizerOptionError (vocab_size too small: says what is possible; special tokens that
// cannot be).
std::vector<TokenizerFile> make_tokenizer(const std::vector<std::string_view>& texts,
                                          const TokenizerTraining& options);

// Writes these files into the existing `directory`. Throws also kCannotCreate, kIo.
void train_tokenizer(const std::vector<std::string_view>& texts, const TokenizerTraining& options,
                     const std::string& directory);

}  // namespace lumen::text
