#include "lib/text/word_piece.h"

#include <algorithm>
#include <utility>

#include "lib/base/error.h"

namespace lumen::text {

WordPiece::WordPiece(Tables tables) : tables_(std::move(tables)) {
  std::vector<std::pair<std::string_view, int32_t>> first, continuing;
  const Vocabulary& vocabulary = *tables_.vocabulary;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    if (text.empty() || vocabulary.find(text) != id) continue;
    first.emplace_back(text, id);
    if (text.starts_with(tables_.continuing_prefix) &&
        text.size() > tables_.continuing_prefix.size()) {
      continuing.emplace_back(text.substr(tables_.continuing_prefix.size()), id);
    }
  }
  first_ = Trie(std::move(first));
  continuing_ = Trie(std::move(continuing));
}

void WordPiece::tokenize(std::string_view word, State*, std::vector<int32_t>& ids) const {
  const auto characters = static_cast<size_t>(std::count_if(
      word.begin(), word.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
  const size_t first = ids.size();
  bool unknown = characters > tables_.max_characters;
  for (size_t pos = 0; pos < word.size() && !unknown;) {
    const auto [length, id] = (pos == 0 ? first_ : continuing_).longest(word.substr(pos));
    unknown = length == 0;
    pos += length;
    ids.push_back(id);
  }
  if (unknown) {
    ids.resize(first);
    ids.push_back(tables_.unk);
  }
}

void WordLevel::tokenize(std::string_view word, State*, std::vector<int32_t>& ids) const {
  int32_t id = vocabulary_.find(word);
  if (id < 0) {
    if (!unk_) {
      fail(ErrorKind::kMalformed, "word ", quoted(word),
           " has no token and the vocabulary no unknown token");
    }
    id = *unk_;
  }
  ids.push_back(id);
}

}  // namespace lumen::text
