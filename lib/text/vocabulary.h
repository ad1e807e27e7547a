// The tokens of a vocabulary: id to spelling and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::text {

// A table of tokens. Ids may have gaps and several ids one spelling, of which `find` gives the one
// set last. Filled once, then read from any number of threads.
class Vocabulary {
 public:
  // Gives `id` its spelling. Throws Error(kMalformed) if id is not in [0, limits::kVocab), the text
  // is longer than limits::kPieceBytes, or all texts together are absurdly long.
  void set(int64_t id, std::string_view text);
  void reserve(size_t tokens);

  // The id of `text`, or -1.
  int32_t find(std::string_view text) const;
  // The spelling of `id`, "" if it has none.
  std::string_view text(int32_t id) const {
    return contains(id) ? std::string_view(arena_).substr(tokens_[id].offset, tokens_[id].size)
                        : std::string_view();
  }
  bool contains(int32_t id) const {
    return static_cast<uint32_t>(id) < tokens_.size() && tokens_[id].size != kAbsent;
  }
  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
  // Distinct spellings.
  int32_t count() const { return static_cast<int32_t>(used_); }

 private:
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  struct Token {
    uint32_t offset = 0, size = kAbsent;
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  size_t find_slot(std::string_view text, uint64_t hash) const;
  void rehash(size_t slots);

  std::string arena_;
  std::vector<Token> tokens_;
  std::vector<Slot> slots_;  // open addressing, a power of two, at most two thirds full
  size_t used_ = 0;
};

// "<0x0A>" for a byte: how vocabularies with byte fallback spell their byte tokens.
std::string byte_token(uint8_t byte);
// The byte of such a token in upper-case hex, or -1.
int byte_of_token(std::string_view text);

}  // namespace lumen::text
