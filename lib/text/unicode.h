// Unicode properties, case mapping and normalization (UAX #15) over generated tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::text {

// General categories, in the order of the tables.
enum class Category : uint8_t {
  kCn,
  kCc,
  kCf,
  kCo,
  kCs,
  kLl,
  kLm,
  kLo,
  kLt,
  kLu,
  kMc,
  kMe,
  kMn,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPe,
  kPf,
  kPi,
  kPo,
  kPs,
  kSc,
  kSk,
  kSm,
  kSo,
  kZl,
  kZp,
  kZs,
};

// All take any 32-bit value; beyond U+10FFFF is unassigned.
Category category(uint32_t c);
// Whether the valid UTF-8 `text` has an assigned character that Unicode 14, which the PCRE2 of
// Debian 12 knows, does not have, but 16 has.
bool has_young(std::string_view text);
bool is_whitespace(uint32_t c);   // property White_Space
bool is_mark(uint32_t c);         // M*
bool is_number(uint32_t c);       // N* of Unicode 17
bool is_punctuation(uint32_t c);  // P* of Unicode 8, the ASCII symbols $+<=>^`|~
bool is_control(uint32_t c);      // Cc, Cf, Co, Cs: not the unassigned
bool is_ideograph(uint32_t c);    // what BERT takes for a Chinese character
bool is_word(uint32_t c);         // Alphabetic, M*, Nd, Pc, joiners: \w of UTS #18

// A number that tells the scripts (Unicode 9's) apart that the pre-tokenizer UnicodeScripts splits
// at, for which Hiragana and Katakana are Han; 0 of the space and of what has no script, which go
// with any.
int script(uint32_t c);

// Appends the lower case of `c`, without regard to its neighbours.
void append_lower(std::string& out, uint32_t c);

// The first code point of the canonical decomposition of `c`: a letter without its accents.
uint32_t decomposition_base(uint32_t c);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };

// `text`, which is valid UTF-8, in a normal form. Linear but for sorting long runs of marks.
std::string normalize(std::string_view text, Form form);

}  // namespace lumen::text
