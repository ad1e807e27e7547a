#include "lib/base/strings.h"

#include "lib/base/error.h"
#include "lib/base/testing.h"

using namespace lumen;

TEST_CASE("str concatenates literals, numbers and booleans") {
  CHECK(str("a", 1, ' ', 2.5, " ", true, std::string("z")) == "a1 2.5 truez");
}

TEST_CASE("quoted escapes what a terminal would obey") {
  CHECK(quoted("plain ü") == "'plain ü'");
  CHECK(quoted("a\x1b[31m\n") == "'a\\x1b[31m\\n'");
  CHECK(quoted("\xff\xfe") == "'\\xff\\xfe'");
  CHECK(quoted("\u202Eabc") == "'\\u{202e}abc'");
  CHECK(quoted(std::string(100, 'x'), 3) == "'xxx…'");
}

TEST_CASE("UTF-8 validity follows the Unicode table") {
  CHECK(is_valid_utf8("aü€😀"));
  CHECK_FALSE(is_valid_utf8("\xC0\x80"));          // overlong
  CHECK_FALSE(is_valid_utf8("\xED\xA0\x80"));      // surrogate
  CHECK_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));  // above U+10FFFF
  CHECK_FALSE(is_valid_utf8("\xE2\x82"));          // cut
  CHECK(to_valid_utf8("a\xE2\x82z") == "a\uFFFDz");
  CHECK(to_valid_utf8("\xFF\xFF") == "\uFFFD\uFFFD");
}

TEST_CASE("an incomplete sequence at the end is held back, a broken one is not") {
  CHECK(incomplete_utf8_suffix("abc") == 0);
  CHECK(incomplete_utf8_suffix("a\xE2\x82") == 2);
  CHECK(incomplete_utf8_suffix("a\xF0\x9F\x98") == 3);
  CHECK(incomplete_utf8_suffix("a\xE2\x82\xAC") == 0);
  CHECK(incomplete_utf8_suffix("a\x80\x80") == 0);
  CHECK(incomplete_utf8_suffix("a\xE0\x80") == 0);  // overlong whatever follows
}

TEST_CASE("code points round-trip") {
  for (uint32_t c : {0x24u, 0xA2u, 0x20ACu, 0x10348u}) {
    std::string text;
    append_utf8(text, c);
    size_t pos = 0;
    CHECK(next_code_point(text, pos) == c);
    CHECK(pos == text.size());
  }
}

TEST_CASE("nearest suggests typos and nothing else") {
  const std::vector<std::string> words = {"rope_theta", "hidden_size"};
  CHECK(nearest("rope_teta", words) == "rope_theta");
  CHECK(nearest("banana", words) == "");
  CHECK(nearest("HIDDEN_SIZE", words) == "hidden_size");
  CHECK(nearest("z", {"a", "b"}) == "");  // no letter is left
  CHECK(nearest("A", {"a", "b"}) == "a");
  CHECK(nearest("", {"a"}) == "");
}

TEST_CASE("context is prefixed outermost last") {
  try {
    with_context("file",
                 [] { with_context("tensor", [] { fail(ErrorKind::kIo, "cut at ", 7); }); });
    FAIL();
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "file: tensor: cut at 7");
    CHECK(error.exit_code() == 74);
  }
}

TEST_CASE("numbers are formatted and parsed without a locale") {
  CHECK(fixed(3.14159, 2) == "3.14");
  CHECK(human_bytes(1536) == "1.5 KiB");
  int64_t i;
  double d;
  CHECK(parse_number("12", i));
  CHECK_FALSE(parse_number("12x", i));
  CHECK_FALSE(parse_number("99999999999999999999", i));
  CHECK(parse_number("1e-5", d));
  CHECK_FALSE(parse_number("", d));
}

TEST_CASE("patterns with * and ? match whole names") {
  CHECK(matches_pattern("model.norm.weight", "*norm*"));
  CHECK(matches_pattern("a.b.a.c", "*a.?"));
  CHECK(matches_pattern("", "*"));
  CHECK(matches_pattern("bias", "bias"));
  CHECK_FALSE(matches_pattern("bias2", "bias"));
  CHECK_FALSE(matches_pattern("a.b", "?"));
  CHECK_FALSE(matches_pattern("weight", "*bias"));
  // No backtracking over more than one *.
  CHECK_FALSE(matches_pattern(std::string(100'000, 'a'), "*a*a*a*a*a*a*a*a*b"));
}
