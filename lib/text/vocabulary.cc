#include "lib/text/vocabulary.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/hash.h"

namespace lumen::text {

void Vocabulary::set(int64_t id, std::string_view text) {
  if (id < 0 || id >= static_cast<int64_t>(limits::kVocab)) {
    fail(ErrorKind::kMalformed, "token ", quoted(text), " has id ", id, ", expected 0 to ",
         limits::kVocab - 1);
  }
  if (text.size() > limits::kPieceBytes) {
    fail(ErrorKind::kMalformed, "token ", id, " is ", text.size(), " bytes long, the limit is ",
         limits::kPieceBytes);
  }
  if (arena_.size() + text.size() > limits::kJsonBytes) {
    fail(ErrorKind::kMalformed, "the tokens are longer than ", human_bytes(limits::kJsonBytes),
         " together");
  }
  if (id >= static_cast<int64_t>(tokens_.size())) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = {static_cast<uint32_t>(arena_.size()),
                                      static_cast<uint32_t>(text.size())};
  arena_ += text;
  if (3 * (used_ + 1) > 2 * slots_.size()) rehash(std::max<size_t>(1024, 2 * slots_.size()));
  const uint64_t hash = hash_bytes(text);
  Slot& slot = slots_[find_slot(text, hash)];
  if (slot.id < 0) ++used_;
  slot = {static_cast<uint32_t>(hash >> 32), static_cast<int32_t>(id)};
}

void Vocabulary::reserve(size_t tokens) {
  tokens = std::min<size_t>(tokens, limits::kVocab);
  tokens_.reserve(tokens);
  size_t slots = 1024;
  while (2 * slots < 3 * tokens) slots *= 2;
  if (slots > slots_.size()) rehash(slots);
}

int32_t Vocabulary::find(std::string_view text) const {
  return slots_.empty() ? -1 : slots_[find_slot(text, hash_bytes(text))].id;
}

size_t Vocabulary::find_slot(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].id >= 0 && (slots_[i].hash != static_cast<uint32_t>(hash >> 32) ||
                               this->text(slots_[i].id) != text)) {
    i = (i + 1) & mask;
  }
  return i;
}

void Vocabulary::rehash(size_t slots) {
  std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  for (const Slot& slot : old) {
    if (slot.id >= 0) slots_[find_slot(text(slot.id), hash_bytes(text(slot.id)))] = slot;
  }
}

std::string byte_token(uint8_t byte) {
  constexpr char kHex[] = "0123456789ABCDEF";
  return str("<0x", kHex[byte >> 4], kHex[byte & 15], '>');
}

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace lumen::text
