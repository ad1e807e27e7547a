#include "lib/text/added_tokens.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "lib/base/strings.h"
#include "lib/text/unicode.h"

namespace lumen::text {
namespace {

// Where the last character of `text` begins.
size_t last_character_begin(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t pos = last_character_begin(text);
  return is_word(next_code_point(text, pos));
}

bool starts_with_word(std::string_view text) {
  size_t pos = 0;
  return !text.empty() && is_word(next_code_point(text, pos));
}

// Where the white space at the end of `text` begins.
size_t trailing_space(std::string_view text) {
  while (!text.empty()) {
    const size_t begin = last_character_begin(text);
    size_t pos = begin;
    if (!is_whitespace(next_code_point(text, pos))) break;
    text = text.substr(0, begin);
  }
  return text.size();
}

// Length of the white space at the beginning of `text`.
size_t leading_space(std::string_view text) {
  size_t length = 0;
  for (size_t pos = 0; pos < text.size() && is_whitespace(next_code_point(text, pos));) {
    length = pos;
  }
  return length;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer)
    : tokens_(std::move(tokens)) {
  // Of tokens that look the same the first special one counts, else the first.
  std::vector<size_t> order;
  for (size_t i = 0; i < tokens_.size(); ++i) order.push_back(i);
  std::stable_partition(order.begin(), order.end(), [&](size_t i) { return tokens_[i].special; });
  std::reverse(order.begin(), order.end());  // in a trie the last wins
  std::vector<std::pair<std::string_view, int32_t>> raw, normalized;
  std::deque<std::string> contents;
  for (const size_t i : order) {
    const AddedToken& token = tokens_[i];
    std::string& content = contents.emplace_back(token.content);
    if (token.normalized && normalizer != nullptr) normalizer->apply(content);
    if (!content.empty()) {
      (token.normalized ? normalized : raw).emplace_back(content, static_cast<int32_t>(i));
    }
  }
  // A search for the longest token sees a byte more than it has; what stands behind a token is
  // asked for one character.
  constexpr size_t kCharacter = 4;
  for (const auto& [content, index] : raw) lookahead_ = std::max(lookahead_, content.size() + 1);
  lookahead_ += kCharacter;
  raw_ = Trie(std::move(raw));
  normalized_ = Trie(std::move(normalized));
  for (size_t i = 0; i < tokens_.size(); ++i) {
    by_id_.insert_or_assign(tokens_[i].id, i);
    by_content_.emplace(tokens_[i].content, i);
  }
}

void AddedTokens::split(std::string_view text, bool normalized, bool parse_special,
                        FunctionRef<void(const Fragment&)> found, size_t from) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  size_t done = from;
  for (size_t pos = from; pos < text.size();) {
    if (!trie.starts(text[pos])) {
      ++pos;
      continue;
    }
    const auto [length, index] = trie.longest(text.substr(pos));
    if (length == 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = pos, end = pos + length;
    pos = end;
    if (token.special && !parse_special) continue;
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = std::max(trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (begin >= end) continue;  // blanks that the token before took along
    if (done < begin) found({-1, done, begin});
    found({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) found({-1, done, text.size()});
}

// Blanks that the token took along are searched for tokens too, which must find none.
bool AddedTokens::is_boundary(std::string_view text, const Fragment& fragment) const {
  for (size_t pos = fragment.end; pos > fragment.begin;) {
    pos = last_character_begin(text.substr(0, pos));
    size_t end = pos;
    if (!is_whitespace(next_code_point(text, end))) return true;
    if (raw_.starts(text[pos])) return false;
  }
  return true;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &tokens_[at->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto at = by_content_.find(content);
  return at == by_content_.end() ? nullptr : &tokens_[at->second];
}

}  // namespace lumen::text
