// The kinds of tokenizer training, one function each. For this room only.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::text {

using Texts = std::vector<std::string_view>;

// Throws TokenizerOptionError; `message` is a sentence, in parts.
template <typename... Parts>
[[noreturn]] void fail_option(const char* option, const Parts&... message) {
  throw TokenizerOptionError(option, str(message...));
}

// Calls `visit` for the parts of `texts` between the special tokens that they spell.
void for_each_part(const Texts& texts, const std::vector<std::string>& special_tokens,
                   const std::function<void(std::string_view)>& visit);

// The contents of tokenizer.json.
std::string characters_json(const Texts& texts, const TokenizerTraining& options);
std::string byte_level_bpe_json(const Texts& texts, const TokenizerTraining& options);

// Parts of a tokenizer.json.
struct TokenizerJson {
  io::Json model;  // has "vocab" in the order of ids
  io::Json normalizer, pre_tokenizer, decoder;
  std::vector<std::string> special_tokens;  // added to the vocabulary where it lacks them
  std::vector<std::string> user_defined;    // of the vocabulary: found whole in every text
  std::string bos;                          // put before every text, unless empty
  std::string eos = "";                     // the same behind it
};
std::string tokenizer_json(TokenizerJson parts);

// TokenizerJson::model of byte-pair encoding, without more than `vocab` and `merges`.
io::Json bpe_model(io::Json vocab, io::Json merges);
// The parts of one whose tokens are single characters, those of `vocab`; special ones not yet.
TokenizerJson parts_of_characters(io::Json vocab);
// Sets normalizer and decoder to those that mark spaces (kSpaceMark), with `add_prefix` one before
// every text too.
void set_space_marks(bool add_prefix, TokenizerJson& parts);

// The tokenizer.json that gives the ids of a sentencepiece model, unigram or BPE, which normalizes
// no more than spaces. Throws as check_sentencepiece.
std::string sentencepiece_json(std::string_view model, const std::string& bos);

// The content of tokenizer.model.
std::string sentencepiece_model(const Texts& texts, const TokenizerTraining& options);

// Adds to an object without looking for the key, which is linear.
inline void append_member(io::Json& object, std::string key, io::Json value) {
  object.get_ref<io::Json::object_t&>().push_back({std::move(key), std::move(value)});
}

}  // namespace lumen::text
