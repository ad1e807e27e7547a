#include "lib/text/bpe.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "lib/base/strings.h"
#include "lib/text/byte_level.h"
#include "lib/text/hash.h"
#include "lib/text/utf8.h"
#include "lib/text/word_cache.h"

namespace lumen::text {
namespace {

std::string_view character_at(std::string_view text, size_t pos) {
  return text.substr(pos, character_bytes(text[pos]));
}

std::string_view last_character(std::string_view text) {
  size_t begin = text.empty() ? 0 : text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

}  // namespace

// Where a long word may be cut: between two known characters such that no merge has a left part
// that ends in the first and a right part that begins with the second. Pairs are kept in a bit set
// by hash, so a few cuts may be missed; characters of three bytes at most, the rest is never cut.
class Bpe::Cuts {
 public:
  void add_pair(std::string_view left, std::string_view right) {
    pairs_.set(index(pack(last_character(left)), pack(character_at(right, 0))));
  }
  void add_known(std::string_view character) {
    const uint32_t packed = pack(character);
    if (character == character_at(character, 0) && packed < kKnown) known_.set(packed);
  }
  bool between(std::string_view left, std::string_view right) const {
    const uint32_t a = pack(left), b = pack(right);
    return a < kKnown && b < kKnown && known_[a] && known_[b] && !pairs_[index(a, b)];
  }

 private:
  static constexpr size_t kPairs = 1 << 20, kKnown = 1 << 17;
  // The code point for up to three bytes; at least kKnown for more.
  static uint32_t pack(std::string_view character) {
    if (character.size() > 3 || !is_valid_utf8(character)) return kKnown;
    size_t pos = 0;
    return next_code_point(character, pos);
  }
  static size_t index(uint32_t a, uint32_t b) {
    return hash_mix(uint64_t{a} << 32 | b, 0xE7037ED1A0B428DB) % kPairs;
  }
  std::bitset<kPairs> pairs_;
  std::bitset<kKnown> known_;
};

struct Bpe::WorkSpace : Model::State {
  WordCache cache;
  std::vector<int32_t> symbols;
};

bool covers_bytes(const Vocabulary& vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    if (!never_in_utf8(byte) && vocabulary.find(byte_character(static_cast<uint8_t>(byte))) < 0) {
      return false;
    }
  }
  return true;
}

Bpe::Bpe(BpeTables tables) : tables_(std::move(tables)) {
  const Vocabulary& vocabulary = *tables_.vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    plain_symbols_[b] = find_symbol(byte_character(b));
    fallback_tokens_[b] = vocabulary.find(byte_token(b));
  }
  if (tables_.plain_bytes && tables_.ignore_merges) {
    whole_words_.reserve(static_cast<size_t>(vocabulary.size()));
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view token = vocabulary.text(id);
      const std::optional<std::string> bytes = bytes_of_spelling(token);
      if (bytes && !bytes->empty() && vocabulary.find(token) == id) whole_words_.set(id, *bytes);
    }
  }
  const bool affixes = !tables_.continuing_prefix.empty() || !tables_.end_of_word_suffix.empty();
  if (!tables_.long_words || tables_.plain_bytes || affixes) return;
  cuts_ = std::make_unique<Cuts>();
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.text(id).empty()) cuts_->add_known(vocabulary.text(id));
  }
  const auto spelling = [&](int32_t symbol) {
    return symbol < tables_.first_virtual
               ? vocabulary.text(symbol)
               : tables_.virtual_symbols.text(symbol - tables_.first_virtual);
  };
  tables_.merges.for_each([&](int32_t left, int32_t right, const MergeTable::Merge&) {
    if (!spelling(left).empty() && !spelling(right).empty()) {
      cuts_->add_pair(spelling(left), spelling(right));
    }
  });
}

Bpe::~Bpe() = default;

std::unique_ptr<Model::State> Bpe::make_state() const {
  return std::make_unique<WorkSpace>();
}

int32_t Bpe::find_symbol(std::string_view text) const {
  const int32_t id = tables_.vocabulary->find(text);
  if (id >= 0) return id;
  const int32_t index = tables_.virtual_symbols.find(text);
  return index < 0 ? -1 : tables_.first_virtual + index;
}

int32_t Bpe::whole_word(std::string_view word) const {
  if (!tables_.ignore_merges) return -1;
  return (tables_.plain_bytes ? whole_words_ : *tables_.vocabulary).find(word);
}

void Bpe::tokenize(std::string_view word, State* state, std::vector<int32_t>& ids) const {
  auto& work = static_cast<WorkSpace&>(*state);
  if (cuts_ == nullptr) return tokenize_chunk(word, work, ids);
  if (const int32_t id = whole_word(word); id >= 0) return ids.push_back(id);
  size_t begin = 0;
  std::string_view previous = character_at(word, 0);
  for (size_t pos = previous.size(); pos < word.size();) {
    const std::string_view next = character_at(word, pos);
    if (cuts_->between(previous, next)) {
      tokenize_chunk(word.substr(begin, pos - begin), work, ids);
      begin = pos;
    }
    previous = next;
    pos += next.size();
  }
  tokenize_chunk(word.substr(begin), work, ids);
}

void Bpe::tokenize_chunk(std::string_view chunk, WorkSpace& work, std::vector<int32_t>& ids) const {
  if (work.cache.find(chunk, ids)) return;
  if (const int32_t id = cuts_ == nullptr ? whole_word(chunk) : -1; id >= 0) {
    ids.push_back(id);
    work.cache.store(chunk, std::span(&id, 1));
    return;
  }
  work.symbols.clear();
  to_symbols(chunk, work.symbols);
  tables_.merges.apply(work.symbols);
  const size_t first = ids.size();
  for (const int32_t symbol : work.symbols) {
    if (symbol < tables_.first_virtual) {
      ids.push_back(symbol);
    } else {
      const auto& expansion =
          tables_.expansions[static_cast<size_t>(symbol - tables_.first_virtual)];
      ids.insert(ids.end(), expansion.begin(), expansion.end());
    }
  }
  work.cache.store(chunk, std::span(ids).subspan(first));
}

void Bpe::to_symbols(std::string_view chunk, std::vector<int32_t>& symbols) const {
  if (!tables_.plain_bytes) return append_characters(chunk, symbols);
  symbols.reserve(chunk.size());
  for (const char c : chunk) {
    const int32_t symbol = plain_symbols_[static_cast<uint8_t>(c)];
    if (symbol >= 0) symbols.push_back(symbol);
  }
}

void Bpe::append_characters(std::string_view chunk, std::vector<int32_t>& symbols) const {
  bool unknown = false;  // an unknown token is due
  const auto flush = [&] {
    if (std::exchange(unknown, false)) symbols.push_back(*tables_.unk);
  };
  std::string affixed;
  for (size_t pos = 0; pos < chunk.size();) {
    std::string_view character = character_at(chunk, pos);
    const bool first = pos == 0;
    pos += character.size();
    const bool last = pos >= chunk.size();
    if ((!first && !tables_.continuing_prefix.empty()) ||
        (last && !tables_.end_of_word_suffix.empty())) {
      affixed = str(first ? "" : tables_.continuing_prefix, character,
                    last ? tables_.end_of_word_suffix : "");
      character = affixed;
    }
    if (const int32_t symbol = find_symbol(character); symbol >= 0) {
      flush();
      symbols.push_back(symbol);
      continue;
    }
    if (tables_.byte_symbols) {
      for (const char c : character) {
        symbols.push_back((*tables_.byte_symbols)[static_cast<uint8_t>(c)]);
      }
      continue;
    }
    const auto fallback = [&](char c) { return fallback_tokens_[static_cast<uint8_t>(c)]; };
    if (tables_.byte_fallback &&
        std::all_of(character.begin(), character.end(), [&](char c) { return fallback(c) >= 0; })) {
      // A pending unknown token stays pending: it comes after these, as in Hugging Face's.
      for (const char c : character) symbols.push_back(fallback(c));
    } else if (tables_.unk) {
      if (!tables_.fuse_unk) flush();
      unknown = true;
    }
  }
  flush();
}

}  // namespace lumen::text
