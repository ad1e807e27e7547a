#include "lib/text/vocabulary_trie.h"

#include <algorithm>

#include "lib/base/limits.h"

namespace lumen::text {

static_assert(limits::kPieceBytes <= UINT16_MAX);

VocabularyTrie::VocabularyTrie(const Tokenizer& tokenizer, std::span<const int32_t> excluded)
    : alike_(static_cast<size_t>(tokenizer.vocab_size()), -1), bytes_(tokenizer.token_bytes()) {
  for (const int32_t id : excluded) {
    if (id >= 0 && id < size()) bytes_[static_cast<size_t>(id)].clear();
  }
  std::vector<int32_t> order;
  for (int32_t id = 0; id < size(); ++id) {
    if (!bytes(id).empty()) order.push_back(id);
  }
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int compared = bytes(a).compare(bytes(b));
    return compared != 0 ? compared < 0 : a < b;
  });
  std::vector<uint32_t> open;  // the nodes of the token before
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  int32_t before = -1;
  for (const int32_t id : order) {
    const std::string_view text = bytes(id), last = bytes(before);
    if (text == last) {
      alike_[static_cast<size_t>(before)] = id;
      before = id;
      continue;
    }
    const auto common = std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first;
    close(static_cast<size_t>(common - text.begin()));
    for (size_t depth = open.size(); depth < text.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, -1, static_cast<uint16_t>(depth + 1), static_cast<uint8_t>(text[depth])});
    }
    nodes_.back().token = id;
    longest_ = std::max(longest_, text.size());
    before = id;
  }
  close(0);
  // Whichever token begins with a space and goes on tells.
  const auto spaced = std::find_if(order.begin(), order.end(), [&](int32_t id) {
    return bytes(id).size() > 1 && bytes(id)[0] == ' ' && bytes(id)[1] > ' ';
  });
  drops_first_space_ =
      spaced != order.end() && tokenizer.decode(std::span(&*spaced, 1)) == bytes(*spaced).substr(1);
}

}  // namespace lumen::text
