#include "lib/text/unicode.h"

#include "lib/base/strings.h"
#include "lib/base/testing.h"

namespace lumen::text {

TEST_CASE("Text is normalized as UAX #15 says", "[unicode]") {
  CHECK(normalize("e\u0301", Form::kNfc) == "\u00E9");
  CHECK(normalize("\u00E9", Form::kNfd) == "e\u0301");
  CHECK(normalize("\uAC01", Form::kNfd) == "\u1100\u1161\u11A8");
  CHECK(normalize("\u1100\u1161\u11A8", Form::kNfc) == "\uAC01");
  CHECK(normalize("\uFB01\u00BD\u3000", Form::kNfkc) == "fi1\u20442 ");
  CHECK(normalize("\uFB01", Form::kNfd) == "\uFB01");
  // Marks are ordered by class, and a blocked mark does not compose.
  CHECK(normalize("a\u0301\u0323", Form::kNfd) == "a\u0323\u0301");
  CHECK(normalize("a\u0301\u0323", Form::kNfc) == "\u1EA1\u0301");
  CHECK(normalize("a\u0302\u0301", Form::kNfc) == "\u1EA5");
  // Excluded from composition.
  CHECK(normalize("\u0958", Form::kNfc) == "\u0915\u093C");
  CHECK(normalize("plain ASCII", Form::kNfkd) == "plain ASCII");
  CHECK(normalize("", Form::kNfc) == "");
}

TEST_CASE("Characters have their properties", "[unicode]") {
  CHECK(category('a') == Category::kLl);
  CHECK(category(0x10FFFF) == Category::kCn);
  CHECK(category(0xFFFFFFFF) == Category::kCn);
  CHECK(is_whitespace(0x85));
  CHECK(is_whitespace(0x3000));
  CHECK_FALSE(is_whitespace(0x180E));
  CHECK_FALSE(is_whitespace(0x200B));
  CHECK(is_punctuation('$'));
  CHECK_FALSE(is_punctuation(0x20AC));
  CHECK(is_number(0xBD));
  CHECK(is_word('_'));
  CHECK(is_word(0x24B6));
  CHECK_FALSE(is_word('-'));
  std::string lower;
  for (const uint32_t c : {0x130u, 0x3A3u, 0x41u, 0x1E9Eu}) append_lower(lower, c);
  CHECK(lower == "i\u0307\u03C3a\u00DF");
}

// What the tokenizers library of Hugging Face, 0.23.3, matches with \p{…}, and makes of a character
// alone, over all code points but surrogates.
TEST_CASE("Characters are of the Unicode version of the witness", "[unicode]") {
  const auto count = [](Category first, Category last) {
    int found = 0;
    for (uint32_t c = 0; c < 0x110000; ++c) {
      found += category(c) >= first && category(c) <= last ? 1 : 0;
    }
    return found;
  };
  CHECK(count(Category::kLl, Category::kLu) == 141'028);
  CHECK(count(Category::kMc, Category::kMn) == 2'501);
  CHECK(count(Category::kNd, Category::kNo) == 1'911);
  CHECK(count(Category::kPc, Category::kPs) == 855);
  CHECK(count(Category::kSc, Category::kSo) == 8'514);
  CHECK(count(Category::kNd, Category::kNd) == 760);
  CHECK(category(0x10D40) == Category::kNd);  // of Unicode 16
  const auto count_all = [](bool (*is_one)(uint32_t)) {
    int found = 0;
    for (uint32_t c = 0; c < 0x110000; ++c) found += is_one(c) ? 1 : 0;
    return found;
  };
  // What the pre-tokenizers Digits and Punctuation, and BERT's, split off.
  CHECK(count_all(is_number) == 1'924);
  CHECK(is_number(0x11DE0));  // of Unicode 17
  CHECK(count_all(is_punctuation) == 726);
  CHECK(is_punctuation(0x166D));              // a symbol since Unicode 12
  CHECK_FALSE(is_punctuation(0x061D));        // of Unicode 14
  CHECK(category(0x11DE0) == Category::kCn);  // of Unicode 17
  std::string lower;
  for (const uint32_t c : {0x1C89u, 0xA7CBu, 0x10D50u, 0x16EA0u}) append_lower(lower, c);
  CHECK(lower == "\u1C8A\u0264\U00010D70\U00016EBB");
}

// What the same library makes of every code point but surrogates, twice with a mark of class 1
// between: a digest (FNV-1a) of its four normal forms, which are of Unicode 12.
TEST_CASE("Normal forms are the witness's", "[unicode]") {
  const auto digest = [](Form form) {
    uint64_t hash = 0xCBF29CE484222325;
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if (c - 0xD800 < 0x800) continue;
      std::string text;
      append_utf8(text, c);
      append_utf8(text, 0x334);
      append_utf8(text, c);
      for (const char byte : normalize(text, form)) {
        hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
      }
    }
    return hash;
  };
  CHECK(digest(Form::kNfc) == 0xB47DE1C83B153707);
  CHECK(digest(Form::kNfd) == 0x8AB087C13ADADD57);
  CHECK(digest(Form::kNfkc) == 0x71A4C6D9CD573FE3);
  CHECK(digest(Form::kNfkd) == 0x95FDCAEF93B2CE3F);
  // Younger characters: U+11938 is of Unicode 13, U+10781 of 14.
  CHECK(normalize("\U00011935\U00011930", Form::kNfc) == "\U00011935\U00011930");
  CHECK(normalize("\U00010781", Form::kNfkc) == "\U00010781");
}

TEST_CASE("Bytes become characters as they arrive", "[unicode]") {
  std::string out;
  CHECK(append_valid_utf8(out, "a\xE2\x96", false) == 1);
  CHECK(out == "a");
  CHECK(append_valid_utf8(out, "\xE2\x96", true) == 2);
  CHECK(out == "a\uFFFD");
  out.clear();
  // One replacement for each maximal part, none for what may still come.
  CHECK(append_valid_utf8(out, "\xF0\x9F\x98\xE2\x82\xAC\xED\xA0\x80\xFF\xC3", false) == 10);
  CHECK(out == "\uFFFD\u20AC\uFFFD\uFFFD\uFFFD\uFFFD");
}

}  // namespace lumen::text
