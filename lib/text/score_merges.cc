#include "lib/text/score_merges.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/trie.h"
#include "lib/text/utf8.h"

namespace lumen::text {
namespace {

class Builder {
 public:
  Builder(const Vocabulary& vocabulary, std::span<const float> scores,
          const std::array<int32_t, 256>& byte_ids)
      : vocabulary_(vocabulary), scores_(scores), byte_ids_(byte_ids) {
    tables_.vocabulary = &vocabulary;
    tables_.first_virtual = vocabulary.size();
    // The first virtual symbols are the bytes of unknown characters.
    std::array<int32_t, 256> symbols;
    for (size_t byte = 0; byte < 256; ++byte) {
      symbols[byte] = tables_.first_virtual + static_cast<int32_t>(byte);
      add_expansion(std::string(1, static_cast<char>(byte)));
    }
    tables_.byte_symbols = symbols;
    tables_.long_words = true;
  }

  BpeTables build() {
    std::vector<float> order(scores_.begin(), scores_.end());
    std::sort(order.begin(), order.end(), std::greater<>());
    order.erase(std::unique(order.begin(), order.end()), order.end());
    std::vector<std::pair<std::string_view, int32_t>> keys;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      if (is_found(id)) keys.emplace_back(vocabulary_.text(id), id);
    }
    prefixes_ = Trie(std::move(keys));
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      if (!is_found(id)) continue;
      const float score = scores_[static_cast<size_t>(id)];
      const auto at = std::lower_bound(order.begin(), order.end(), score, std::greater<>());
      add_merges(id, static_cast<uint32_t>(at - order.begin()));
    }
    return std::move(tables_);
  }

 private:
  // Whether this is the id of its spelling.
  bool is_found(int32_t id) const {
    const std::string_view text = vocabulary_.text(id);
    return !text.empty() && vocabulary_.find(text) == id;
  }

  void add_merges(int32_t id, uint32_t rank) {
    const std::string_view text = vocabulary_.text(id);
    const size_t first = character_bytes(text[0]);
    if (first >= text.size()) return;
    if (vocabulary_.find(text.substr(0, first)) < 0) add_merge(id, rank, first);
    prefixes_.walk(text, [&](size_t length, int32_t) {
      if (length < text.size()) add_merge(id, rank, length);
      return true;
    });
  }

  void add_merge(int32_t id, uint32_t rank, size_t cut) {
    const std::string_view text = vocabulary_.text(id);
    if (!is_boundary(text, cut)) return;
    const int32_t right = symbol(text.substr(cut));
    if (right < 0) return;
    const int32_t left = symbol(text.substr(0, cut));
    tables_.merges.set(left, right, {rank, id});
    if (tables_.merges.size() > limits::kMerges) {
      fail(ErrorKind::kMalformed, "the tokens can be put together in more than ", limits::kMerges,
           " ways");
    }
  }

  static bool is_boundary(std::string_view text, size_t cut) {
    size_t pos = 0;
    while (pos < cut) pos += character_bytes(text[pos]);
    return pos == cut;
  }

  // A token, or a character that is none but occurs inside of one; otherwise -1.
  int32_t symbol(std::string_view text) {
    const int32_t id = vocabulary_.find(text);
    if (id >= 0) return id;
    if (text.size() > character_bytes(text[0])) return -1;
    const int32_t known = tables_.virtual_symbols.find(text);
    if (known >= 0) return tables_.first_virtual + known;
    const auto index = static_cast<int32_t>(tables_.expansions.size());
    tables_.virtual_symbols.set(index, text);
    add_expansion(text);
    return tables_.first_virtual + index;
  }

  void add_expansion(std::string_view text) {
    std::vector<int32_t>& ids = tables_.expansions.emplace_back();
    for (const char c : text) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) ids.push_back(id);
    }
  }

  const Vocabulary& vocabulary_;
  std::span<const float> scores_;
  const std::array<int32_t, 256>& byte_ids_;
  Trie prefixes_;
  BpeTables tables_;
};

}  // namespace

BpeTables score_merges(const Vocabulary& vocabulary, std::span<const float> scores,
                       const std::array<int32_t, 256>& byte_ids) {
  return Builder(vocabulary, scores, byte_ids).build();
}

}  // namespace lumen::text
