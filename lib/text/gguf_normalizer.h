// How llama.cpp prepares text for the WordPiece and unigram vocabularies of GGUF files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/io/gguf.h"
#include "lib/text/charsmap.h"
#include "lib/text/pre_tokenizer.h"
#include "lib/text/trie.h"

namespace lumen::text {

// Lower-case words without accents and single punctuation characters of valid UTF-8, each with
// `mark` in front.
Words split_bert_words(std::string_view text, std::string_view mark);

// The bytes of an array of int8 or uint8, "" without the key. Throws Error(kMalformed).
std::string gguf_bytes(const io::GgufFile& file, const char* key);

// The normalization of a unigram vocabulary: character map, space marks, merged spaces. Immutable.
class GgufNormalizer {
 public:
  // Tokens of `user_defined` stay as they are.
  GgufNormalizer(const io::GgufFile& file, const std::vector<std::string_view>& user_defined,
                 bool add_space_prefix);
  std::string normalize(std::string_view text) const;

 private:
  Charsmap map_;
  Trie user_defined_;
  bool prefix_, merge_spaces_;
};

}  // namespace lumen::text
