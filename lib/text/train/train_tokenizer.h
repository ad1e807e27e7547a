// Tokenizers made from text: characters, byte-level BPE, sentencepiece unigram and BPE.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::text {

enum class TokenizerKind {
  kCharacters,            // one token per character of the text, ids by code point; tokenizer.json
  kByteLevelBpe,          // GPT-2's alphabet and split, merges counted on the text; tokenizer.json
  kSentencePieceUnigram,  // by libsentencepiece; tokenizer.model
  kSentencePieceBpe,
};
inline constexpr std::array<std::string_view, 4> kTokenizerKindNames = {"characters", "bpe",
                                                                        "unigram", "spm-bpe"};

struct TokenizerTraining {
  TokenizerKind kind = TokenizerKind::kCharacters;
  // Tokens, special ones included. characters: the limit, the rarest characters beyond it become
  // the unknown token; 0: no limit. The result has fewer if the text gives no more (not unigram,
  // which is refused by libsentencepiece).
  int64_t vocab_size = 0;
  // Control tokens, after the others in the vocabulary (bpe, characters) or before them
  // (sentencepiece, behind <unk>, <s>, </s>). Those named bos, eos and pad must be among them, or
  // "" for none; sentencepiece has <s> and </s> of its own if they are "".
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::string bos, eos = "<|endoftext|>", pad;
  std::string chat_template;  // written into tokenizer_config.json unless ""
  uint64_t seed = 42;         // sentencepiece: which sentences are sampled from a large text
};

// Writes a tokenizer for `texts` (documents, or one long text) into the existing `directory`:
// tokenizer.json or tokenizer.model, and tokenizer_config.json. load_tokenizer and Hugging Face's
// AutoTokenizer open it. encode then decode gives the text back exactly with characters (of the
// vocabulary) and bpe; sentencepiece collapses nothing either but sees text in NFKC as its
// default rule has it. Deterministic. Throws Error: kUsage (no text, vocab_size too small or too
// large for the text: says what is possible), kMalformed (text that is not UTF-8 or over
// limits::kPromptBytes), kCannotCreate, kIo.
void train_tokenizer(const std::vector<std::string_view>& texts, const TokenizerTraining& options,
                     const std::string& directory);

}  // namespace lumen::text
