#include "lib/text/unicode.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "lib/base/strings.h"
#include "lib/text/unicode_data.h"

namespace lumen::text {
namespace {

constexpr uint32_t kCodePoints = 0x110000;

// One byte per code point, filled from the runs when first needed.
std::vector<uint8_t> expand(const uint32_t* runs, size_t size, int value_bits) {
  std::vector<uint8_t> table(kCodePoints);
  for (size_t i = 0; i < size; ++i) {
    const uint32_t begin = runs[i] >> value_bits;
    const uint32_t end = i + 1 < size ? runs[i + 1] >> value_bits : kCodePoints;
    std::fill(table.begin() + begin, table.begin() + end,
              static_cast<uint8_t>(runs[i] & ((1u << value_bits) - 1)));
  }
  return table;
}

uint8_t combining_class(uint32_t c) {
  if (c < 0x300) return 0;
  static const std::vector<uint8_t> table =
      expand(unicode_data::combining_runs, unicode_data::combining_runs_size, 8);
  return table[c];
}

// The value of `key` in a sorted table of (key, value) pairs, or 0.
uint32_t find_pair(const uint32_t* table, size_t size, uint32_t key) {
  size_t low = 0, high = size / 2;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (table[2 * middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return 2 * low < size && table[2 * low] == key ? table[2 * low + 1] : 0;
}

// Hangul syllables are composed by formula (Unicode 15, section 3.12).
constexpr uint32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTrails = 28;

void append_decomposed(std::vector<uint32_t>& out, uint32_t c, bool compatibility) {
  if (c - kHangul < kLeads * kVowels * kTrails) {
    const uint32_t index = c - kHangul;
    out.push_back(kLead + index / (kVowels * kTrails));
    out.push_back(kVowel + index / kTrails % kVowels);
    if (index % kTrails != 0) out.push_back(kTrail + index % kTrails);
    return;
  }
  namespace data = unicode_data;
  uint32_t entry = 0;
  if (compatibility) entry = find_pair(data::compatibility, data::compatibility_size, c);
  if (entry == 0) entry = find_pair(data::canonical, data::canonical_size, c);
  if (entry == 0) {
    out.push_back(c);
  } else {
    const uint32_t* mapped = data::pool + (entry >> 5);
    out.insert(out.end(), mapped, mapped + (entry & 31));
  }
}

// The canonical composite of two code points, or 0.
uint32_t composite(uint32_t first, uint32_t second) {
  if (first - kLead < kLeads && second - kVowel < kVowels) {
    return kHangul + ((first - kLead) * kVowels + (second - kVowel)) * kTrails;
  }
  if (first - kHangul < kLeads * kVowels * kTrails && (first - kHangul) % kTrails == 0 &&
      second - kTrail - 1 < kTrails - 1) {
    return first + (second - kTrail);
  }
  const uint32_t* table = unicode_data::compositions;
  size_t low = 0, high = unicode_data::compositions_size / 3;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const uint32_t* triple = table + 3 * middle;
    if (triple[0] < first || (triple[0] == first && triple[1] < second)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const uint32_t* triple = table + 3 * low;
  const bool found =
      3 * low < unicode_data::compositions_size && triple[0] == first && triple[1] == second;
  return found ? triple[2] : 0;
}

// Canonical Ordering Algorithm: sorts every run of marks by combining class.
void order_marks(std::vector<uint32_t>& text) {
  for (size_t i = 0; i < text.size();) {
    if (combining_class(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(
        text.begin() + static_cast<ptrdiff_t>(i), text.begin() + static_cast<ptrdiff_t>(end),
        [](uint32_t a, uint32_t b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

// Canonical Composition Algorithm, in place.
void compose(std::vector<uint32_t>& text) {
  size_t starter = text.size(), length = 0;  // no starter yet
  uint8_t previous_class = 0;
  for (const uint32_t c : text) {
    const uint8_t mark_class = combining_class(c);
    const bool adjacent = starter + 1 == length;
    const bool blocked = !adjacent && (previous_class == 0 || previous_class >= mark_class);
    if (starter < length && !blocked) {
      if (const uint32_t joined = composite(text[starter], c)) {
        text[starter] = joined;
        continue;
      }
    }
    if (mark_class == 0) starter = length;
    previous_class = mark_class;
    text[length++] = c;
  }
  text.resize(length);
}

// Code points below this neither change nor interact with what is before them in the form.
uint32_t first_unstable(Form form) {
  return form == Form::kNfc ? 0x300 : 0x80;
}

}  // namespace

Category category(uint32_t c) {
  static const std::vector<uint8_t> table =
      expand(unicode_data::category_runs, unicode_data::category_runs_size, 5);
  return c < kCodePoints ? static_cast<Category>(table[c]) : Category::kCn;
}

bool is_whitespace(uint32_t c) {
  if (c < 0x85) return c == ' ' || c - '\t' < 5;
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool has_young(std::string_view text) {
  // By 256 characters whether any of them is young: hardly any text comes further than that.
  static const std::vector<bool> blocks = [] {
    std::vector<bool> result(kCodePoints / 256);
    for (size_t i = 0; i < unicode_data::young_size; i += 3) {
      const uint32_t* range = unicode_data::young + i;
      for (uint32_t block = range[0] / 256; block <= range[1] / 256; ++block) result[block] = true;
    }
    return result;
  }();
  constexpr uint8_t kFirstLead = 0xE0;  // of the first of them, U+0897
  for (size_t pos = 0; pos < text.size();) {
    if (static_cast<uint8_t>(text[pos]) < kFirstLead) {
      ++pos;
      continue;
    }
    const uint32_t c = next_code_point(text, pos);
    if (c >= kCodePoints || !blocks[c / 256]) continue;
    for (size_t i = 0; i < unicode_data::young_size; i += 3) {
      if (c >= unicode_data::young[i] && c <= unicode_data::young[i + 1]) return true;
    }
  }
  return false;
}

bool is_mark(uint32_t c) {
  const Category found = category(c);
  return found >= Category::kMc && found <= Category::kMn;
}

bool is_number(uint32_t c) {
  static const std::vector<uint8_t> table =
      expand(unicode_data::number_runs, unicode_data::number_runs_size, 1);
  return c < kCodePoints && table[c] != 0;
}

bool is_punctuation(uint32_t c) {
  static const std::vector<uint8_t> table =
      expand(unicode_data::punctuation_runs, unicode_data::punctuation_runs_size, 1);
  return c < kCodePoints && table[c] != 0;
}

int script(uint32_t c) {
  static const std::vector<uint8_t> table =
      expand(unicode_data::script_runs, unicode_data::script_runs_size, 8);
  return table[std::min(c, kCodePoints - 1)];
}

bool is_control(uint32_t c) {
  const Category found = category(c);
  return found >= Category::kCc && found <= Category::kCs;
}

bool is_ideograph(uint32_t c) {
  // U+2B920 instead of U+2B820 is a slip of Hugging Face's that all others follow.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_word(uint32_t c) {
  const Category found = category(c);
  if (found >= Category::kLl && found <= Category::kNl) return true;
  // Alphabetic symbols: circled, squared and negative circled Latin letters.
  return found == Category::kPc || c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

void append_lower(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c - 'A' < 26u ? c | 0x20 : c);
  } else if (c == 0x130) {
    out += "i\u0307";
  } else {
    const uint32_t mapped = find_pair(unicode_data::lower, unicode_data::lower_size, c);
    append_utf8(out, mapped != 0 ? mapped : c);
  }
}

uint32_t decomposition_base(uint32_t c) {
  if (c - kHangul < kLeads * kVowels * kTrails) return kLead + (c - kHangul) / (kVowels * kTrails);
  const uint32_t entry = find_pair(unicode_data::canonical, unicode_data::canonical_size, c);
  return entry == 0 ? c : unicode_data::pool[entry >> 5];
}

std::string normalize(std::string_view text, Form form) {
  const bool compatibility = form == Form::kNfkc || form == Form::kNfkd;
  const bool composed = form == Form::kNfc || form == Form::kNfkc;
  const uint32_t unstable = first_unstable(form);
  std::string out;
  out.reserve(text.size());
  std::vector<uint32_t> segment;
  // A segment is a stable character with all unstable ones that follow it.
  for (size_t pos = 0; pos < text.size();) {
    size_t next = pos;
    const uint32_t c = next_code_point(text, next);
    size_t end = next;
    while (end < text.size()) {
      size_t after = end;
      if (next_code_point(text, after) < unstable) break;
      end = after;
    }
    if (end == next && c < unstable) {
      out.append(text, pos, end - pos);
    } else {
      segment.clear();
      for (size_t i = pos; i < end;) {
        append_decomposed(segment, next_code_point(text, i), compatibility);
      }
      order_marks(segment);
      if (composed) compose(segment);
      for (const uint32_t point : segment) append_utf8(out, point);
    }
    pos = end;
  }
  return out;
}

}  // namespace lumen::text
