#include "lib/text/gguf_specials.h"

#include <algorithm>
#include <utility>

namespace lumen::text {
namespace {

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

GgufSpecials::GgufSpecials(const GgufVocabulary& vocabulary) {
  for (int32_t id = 0; id < vocabulary.tokens->size(); ++id) {
    const bool control =
        vocabulary.is(id, GgufTokenType::kControl) || vocabulary.is(id, GgufTokenType::kUnknown);
    if (!control && !vocabulary.is(id, GgufTokenType::kUserDefined)) continue;
    const auto i = static_cast<size_t>(id);
    tokens_.push_back(
        {vocabulary.tokens->text(id), id, control, vocabulary.lstrip[i], vocabulary.rstrip[i]});
    takes_blanks_before_ = takes_blanks_before_ || vocabulary.lstrip[i];
  }
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const Token& a, const Token& b) { return a.text.size() > b.text.size(); });
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (size_t i = tokens_.size(); i-- > 0;) {  // in a trie the last of equals wins
    keys.emplace_back(tokens_[i].text, static_cast<int32_t>(i));
  }
  trie_ = Trie(std::move(keys));
}

std::vector<Fragment> GgufSpecials::split(std::string_view text, bool parse_special,
                                          std::vector<size_t>* boundaries) const {
  std::vector<Fragment> parts;
  if (text.empty()) return parts;
  parts.push_back({-1, 0, text.size()});
  std::vector<bool> occurs(tokens_.size());
  // Which of the tokens that overlap are cut out is decided between them alone.
  std::vector<size_t> ends;
  size_t end = 0;  // of all tokens so far
  for (size_t pos = 0; pos < text.size(); ++pos) {
    if (!trie_.starts(text[pos])) continue;
    trie_.walk(text.substr(pos), [&](size_t length, int32_t index) {
      const Token& token = tokens_[static_cast<size_t>(index)];
      occurs[static_cast<size_t>(index)] = true;
      if (boundaries == nullptr || (token.control && !parse_special)) return true;
      if (end > 0 && pos >= end && (ends.empty() || ends.back() < end)) ends.push_back(end);
      size_t taken = pos + length;
      while (token.rstrip && taken < text.size() && is_space(text[taken])) ++taken;
      end = std::max(end, taken);
      return true;
    });
  }
  if (end > 0) ends.push_back(end);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (occurs[i] && (parse_special || !tokens_[i].control)) cut(text, tokens_[i], parts);
  }
  if (boundaries == nullptr || takes_blanks_before_) return parts;
  // Those where a token ends: what stands before the next part is blanks that it took along.
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].id < 0) continue;
    const size_t next = i + 1 < parts.size() ? parts[i + 1].begin : text.size();
    if (std::binary_search(ends.begin(), ends.end(), next)) boundaries->push_back(next);
  }
  return parts;
}

void GgufSpecials::cut(std::string_view text, const Token& token,
                       std::vector<Fragment>& parts) const {
  std::vector<Fragment> out;
  out.reserve(parts.size());
  for (const Fragment& part : parts) {
    if (part.id >= 0) {
      out.push_back(part);
      continue;
    }
    size_t begin = part.begin;
    const std::string_view inside = text.substr(0, part.end);
    for (size_t at = inside.find(token.text, begin); at != std::string_view::npos;
         at = inside.find(token.text, begin)) {
      size_t left_end = at;
      while (token.lstrip && left_end > begin && is_space(text[left_end - 1])) --left_end;
      if (left_end > begin) out.push_back({-1, begin, left_end});
      begin = at + token.text.size();
      out.push_back({token.id, at, begin});
      while (token.rstrip && begin < part.end && is_space(text[begin])) ++begin;
    }
    if (begin < part.end) out.push_back({-1, begin, part.end});
  }
  parts = std::move(out);
}

}  // namespace lumen::text
