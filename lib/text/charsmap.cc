#include "lib/text/charsmap.h"

#include <cstring>

#include "lib/base/error.h"
#include "lib/text/regex.h"
#include "lib/text/utf8.h"

namespace lumen::text {
namespace {

// Units of the double array (darts-clone): a label in bits 0-7, bit 8 "has a leaf", and an offset
// to the children in bits 10-30, times 256 if bit 9 is set. Leaves have bit 31 and the value below.
constexpr uint32_t kLeaf = 1u << 31;

// The longest of Unicode's own has 33 bytes.
constexpr size_t kMaxReplacementBytes = 256;

bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & 1u << 9) >> 6);
}
uint32_t label_of(uint32_t unit) {
  return unit & (kLeaf | 0xFF);
}

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  if (blob.empty()) return;
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof trie_bytes) {
    fail(ErrorKind::kMalformed, "the character map has ", blob.size(),
         " bytes, expected 4 or more");
  }
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  blob.remove_prefix(sizeof trie_bytes);
  if (trie_bytes > blob.size() || trie_bytes % 1024 != 0 || trie_bytes == 0) {
    fail(ErrorKind::kMalformed, "the trie of the character map has ", trie_bytes,
         " bytes, expected a positive multiple of 1024 of at most ", blob.size());
  }
  units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data(), trie_bytes);
  replacements_ = blob.substr(trie_bytes);
  if (replacements_.empty() || replacements_.back() != '\0') {
    fail(ErrorKind::kMalformed, "the replacements of the character map do not end in a zero byte");
  }
  for (size_t begin = 0; begin < replacements_.size();) {
    const size_t end = replacements_.find('\0', begin);
    if (end - begin > kMaxReplacementBytes) {
      fail(ErrorKind::kMalformed, "a replacement of the character map has ", end - begin,
           " bytes, the limit is ", kMaxReplacementBytes);
    }
    begin = end + 1;
  }
  for (size_t i = 0; i < units_.size(); ++i) {
    if ((units_[i] & kLeaf) != 0) continue;
    const size_t children = i ^ offset_of(units_[i]);
    const bool inside = (children | 0xFF) < units_.size();
    if (!inside || (has_leaf(units_[i]) && (units_[children] & ~kLeaf) >= replacements_.size())) {
      fail(ErrorKind::kMalformed, "unit ", i, " of the character map's trie points outside");
    }
  }
}

Charsmap::Match Charsmap::find(std::string_view text, bool longest) const {
  Match match;
  if (units_.empty()) return match;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    const uint32_t unit = units_[node];
    if (label_of(unit) != byte) break;
    node ^= offset_of(unit);
    if (has_leaf(unit)) {
      match = {i + 1, std::string_view(replacements_.data() + (units_[node] & ~kLeaf))};
      if (!longest) break;
    }
  }
  return match;
}

namespace {

// The first part of `text`, which ends between grapheme clusters. Regional indicators (flags) are
// clusters in pairs, for which PCRE2 counts those before each: so a part has not more than 64 in
// one run.
std::string_view first_part(std::string_view text) {
  constexpr std::string_view kLead = "\xF0\x9F\x87";  // of U+1F1C0 to U+1F1FF
  constexpr size_t kBytes = 4, kMost = 64;
  size_t in_run = 0;
  for (size_t at = text.find(kLead), last = 0; at != text.npos; at = text.find(kLead, last)) {
    const bool continues = in_run > 0 && at == last;
    if (continues && in_run == kMost) return text.substr(0, at);
    last = at + kBytes;
    const bool is_indicator = last <= text.size() && static_cast<uint8_t>(text[at + 3]) >= 0xA6;
    in_run = is_indicator ? (continues ? in_run : 0) + 1 : 0;
  }
  return text;
}

}  // namespace

std::string normalize_by_grapheme(const Charsmap& map, std::string_view text) {
  static const Regex kGrapheme("\\X");
  std::string out;
  out.reserve(text.size());
  const auto by_character = [&](std::string_view cluster) {
    for (size_t pos = 0; pos < cluster.size();) {
      const size_t begin = pos;
      next_code_point(cluster, pos);
      const std::string_view character = cluster.substr(begin, pos - begin);
      const Charsmap::Match match = map.shortest(character);
      out += match.length > 0 ? match.replacement : character;
    }
  };
  RegexMatcher matcher(kGrapheme);
  while (!text.empty()) {
    const std::string_view part = first_part(text);
    matcher.find_all(part, [&](size_t begin, size_t end) {
      check_normalized_size(out.size());
      const std::string_view cluster = part.substr(begin, end - begin);
      const Charsmap::Match match = cluster.size() < 6 ? map.shortest(cluster) : Charsmap::Match();
      if (match.length > 0) {
        out += match.replacement;
      } else {
        by_character(cluster);
      }
    });
    text.remove_prefix(part.size());
  }
  return out;
}

}  // namespace lumen::text
