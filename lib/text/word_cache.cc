#include "lib/text/word_cache.h"

#include <algorithm>
#include <utility>

#include "lib/text/hash.h"

namespace lumen::text {
namespace {

constexpr size_t kMaxWords = 1 << 17;

}  // namespace

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) const {
  if (slots_.empty() || word.size() > kMaxWordBytes) return false;
  const Slot& slot = slots_[find_slot(word, hash_bytes(word))];
  if (slot.bytes == 0) return false;
  const int32_t* begin = ids_.data() + slot.ids;
  ids.insert(ids.end(), begin, begin + slot.count);
  return true;
}

void WordCache::store(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kMaxWordBytes || word.empty() || used_ == kMaxWords) return;
  if (ids.size() > UINT16_MAX) return;
  if (2 * (used_ + 1) > slots_.size()) grow();
  const uint64_t hash = hash_bytes(word);
  slots_[find_slot(word, hash)] = {
      static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(words_.size()),
      static_cast<uint32_t>(ids_.size()), static_cast<uint16_t>(word.size()),
      static_cast<uint16_t>(ids.size())};
  words_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++used_;
}

size_t WordCache::find_slot(std::string_view word, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].bytes != 0 &&
         (slots_[i].hash != static_cast<uint32_t>(hash >> 32) ||
          std::string_view(words_).substr(slots_[i].word, slots_[i].bytes) != word)) {
    i = (i + 1) & mask;
  }
  return i;
}

void WordCache::grow() {
  const std::vector<Slot> old =
      std::exchange(slots_, std::vector<Slot>(std::max<size_t>(256, 4 * slots_.size())));
  for (const Slot& slot : old) {
    if (slot.bytes == 0) continue;
    const std::string_view word = std::string_view(words_).substr(slot.word, slot.bytes);
    slots_[find_slot(word, hash_bytes(word))] = slot;
  }
}

}  // namespace lumen::text
