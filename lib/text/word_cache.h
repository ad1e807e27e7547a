// Remembers the ids of words seen before: text repeats its words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::text {

// A bounded map from short words to their ids. Not thread-safe: one per encode call.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 64;

  // Whether `word` was stored; if so its ids are appended.
  bool find(std::string_view word, std::vector<int32_t>& ids) const;
  // Remembers a word that is not yet stored; does nothing for long words or when full.
  void store(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t word = 0;   // into words_
    uint32_t ids = 0;    // into ids_
    uint16_t bytes = 0;  // of the word; 0 for a free slot
    uint16_t count = 0;  // of the ids
  };
  size_t find_slot(std::string_view word, uint64_t hash) const;
  void grow();

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t used_ = 0;
  std::string words_;
  std::vector<int32_t> ids_;
};

}  // namespace lumen::text
