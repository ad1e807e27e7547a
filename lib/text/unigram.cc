#include "lib/text/unigram.h"

#include <utility>

#include "lib/base/error.h"

namespace lumen::text {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

// The best way to reach a place of the text.
struct Unigram::Best {
  double score = 0;
  int32_t id = -1;  // of the last piece; -1 for an unknown character
  uint32_t begin = kUnreached;
  static constexpr uint32_t kUnreached = ~uint32_t{0};

  void offer(double new_score, int32_t new_id, uint32_t new_begin) {
    if (begin == kUnreached || new_score > score) *this = {new_score, new_id, new_begin};
  }
};

struct Unigram::WorkSpace : Model::State {
  std::vector<Best> best;
  std::vector<std::pair<uint32_t, int32_t>> path;  // (begin, id or -1), last first
};

Unigram::Unigram(UnigramTables tables) : tables_(std::move(tables)) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (const int32_t id : tables_.pieces) {
    const std::string_view text = tables_.vocabulary->text(id);
    if (!text.empty()) keys.emplace_back(text, id);
  }
  trie_ = Trie(std::move(keys));
}

std::unique_ptr<Model::State> Unigram::make_state() const {
  return std::make_unique<WorkSpace>();
}

void Unigram::tokenize(std::string_view word, State* state, std::vector<int32_t>& ids) const {
  auto& work = static_cast<WorkSpace&>(*state);
  std::vector<Best>& best = work.best;
  auto& path = work.path;
  best.assign(word.size() + 1, Best());
  best[0].begin = 0;
  const double unknown_score = tables_.min_score - kUnknownPenalty;
  for (size_t pos = 0; pos < word.size();) {
    size_t next = pos;
    next_code_point(word, next);
    const double score = best[pos].score;
    const auto begin = static_cast<uint32_t>(pos);
    bool has_single = false;
    trie_.walk(word.substr(pos), [&](size_t length, int32_t id) {
      best[pos + length].offer(score + tables_.scores[static_cast<size_t>(id)], id, begin);
      has_single = has_single || length == next - pos;
      return true;
    });
    if (!has_single) {
      if (!tables_.unk) {
        fail(ErrorKind::kMalformed, "character ", quoted(word.substr(pos, next - pos)),
             " has no token and the vocabulary no unknown token");
      }
      best[next].offer(score + unknown_score, -1, begin);
    }
    pos = next;
  }
  path.clear();
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    const int32_t id = best[end].id == tables_.unk ? -1 : best[end].id;
    if (id < 0 && !path.empty() && path.back().second < 0) {
      path.back().first = best[end].begin;  // unknown neighbours are one unknown text
    } else {
      path.emplace_back(best[end].begin, id);
    }
  }
  for (size_t i = path.size(); i-- > 0;) {
    const size_t end = i > 0 ? path[i - 1].first : word.size();
    if (path[i].second >= 0) {
      ids.push_back(path[i].second);
    } else {
      append_unknown(word.substr(path[i].first, end - path[i].first), ids);
    }
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  if (const int32_t id = tables_.joins_unknown ? tables_.vocabulary->find(text) : -1; id >= 0) {
    return ids.push_back(id);
  }
  if (tables_.byte_fallback) {
    const size_t first = ids.size();
    for (const char c : text) {
      const int32_t id = tables_.vocabulary->find(byte_token(static_cast<uint8_t>(c)));
      if (id < 0) {
        ids.resize(first);
        break;
      }
      ids.push_back(id);
    }
    if (ids.size() > first) return;
  }
  ids.push_back(*tables_.unk);
}

}  // namespace lumen::text
