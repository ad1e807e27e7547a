// The kinds of tokenizer training, one function each. For this room only.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::text {

using Texts = std::vector<std::string_view>;

// Calls `visit` for the parts of `texts` between the special tokens that they spell.
void for_each_part(const Texts& texts, const std::vector<std::string>& special_tokens,
                   const std::function<void(std::string_view)>& visit);

// The contents of tokenizer.json.
std::string characters_json(const Texts& texts, const TokenizerTraining& options);
std::string byte_level_bpe_json(const Texts& texts, const TokenizerTraining& options);

// A tokenizer.json around `model`, which has "vocab" in the order of ids; special tokens that it
// lacks are added to it. `pre_tokenizer` and `decoder` may be null; `bos`, unless empty, is put
// before every text.
std::string tokenizer_json(io::Json model, io::Json pre_tokenizer, io::Json decoder,
                           std::vector<std::string> special_tokens, const std::string& bos);

// The content of tokenizer.model.
std::string sentencepiece_model(const Texts& texts, const TokenizerTraining& options);

// Adds to an object without looking for the key, which is linear.
inline void append_member(io::Json& object, std::string key, io::Json value) {
  object.get_ref<io::Json::object_t&>().push_back({std::move(key), std::move(value)});
}

}  // namespace lumen::text
