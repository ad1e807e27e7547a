#include "lib/io/name_index.h"

#include <array>
#include <bit>
#include <cstring>
#include <random>

#include "lib/base/check.h"

namespace lumen::io {
namespace {

using Secret = std::array<uint64_t, 3>;

const Secret& secret() {
  static const Secret drawn = [] {
    std::random_device device;
    Secret words;
    for (uint64_t& word : words) word = uint64_t{device()} << 32 | device();
    return words;
  }();
  return drawn;
}

// High and low half of the 128-bit product: every bit of the result depends on every bit of a, b.
uint64_t fold_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash(std::string_view name) {
  const Secret& key = secret();
  uint64_t state = key[0] ^ name.size();
  while (!name.empty()) {
    uint64_t words[2] = {};
    const size_t bytes = name.size() < sizeof words ? name.size() : sizeof words;
    std::memcpy(words, name.data(), bytes);
    state = fold_product(words[0] ^ key[1], words[1] ^ state);
    name.remove_prefix(bytes);
  }
  return fold_product(state, key[2]);
}

}  // namespace

NameIndex::NameIndex(uint64_t count) {
  LUMEN_CHECK(count < kNone / 2);
  if (count > 0) slots_.assign(std::bit_ceil(2 * count), kNone);
}

uint32_t NameIndex::insert(std::string_view name, uint32_t number, NameOf name_of) {
  LUMEN_CHECK(!slots_.empty());
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash(name) & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == kNone) {
      slots_[slot] = number;
      return kNone;
    }
    if (name_of(slots_[slot]) == name) return slots_[slot];
  }
}

uint32_t NameIndex::find(std::string_view name, NameOf name_of) const {
  if (slots_.empty()) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash(name) & mask; slots_[slot] != kNone; slot = (slot + 1) & mask) {
    if (name_of(slots_[slot]) == name) return slots_[slot];
  }
  return kNone;
}

}  // namespace lumen::io
