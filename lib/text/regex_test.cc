#include "lib/text/regex.h"

#include <vector>

#include "lib/base/error.h"
#include "lib/base/testing.h"

namespace lumen::text {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern);
  std::vector<std::string> found;
  RegexMatcher(regex).find_all(
      text, [&](size_t begin, size_t end) { found.emplace_back(text.substr(begin, end - begin)); });
  return found;
}

using Texts = std::vector<std::string>;

ErrorKind pattern_refusal(std::string_view pattern) {
  try {
    Regex{pattern};
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::kInternal;
}

}  // namespace

TEST_CASE("Patterns mean what they mean to Oniguruma", "[regex]") {
  CHECK(matches("\\s+", "a\u0085b\u180Ec \n") == Texts{"\u0085", " \n"});
  CHECK(matches("\\w+", "n\u0303o_1-\u24B6") == Texts{"n\u0303o_1", "\u24B6"});
  CHECK(matches("\\p{Han}+", "漢、字") == Texts{"漢", "字"});
  CHECK(matches("[[:punct:]]+", "a$.\u20AC1b") == Texts{"$.\u20AC"});
  CHECK(matches("[^[:punct:]]", "\U0001CC00").empty());  // a symbol of Unicode 16
  // Of Unicode 15 and 16: a digit, a letter and a symbol.
  for (const char* text : {"\U0001D2C0", "\U00031350", "\U0001CC00"}) {
    CAPTURE(text);
    CHECK((matches("\\p{N}|\\p{L}|[\\p{S}]", text) == Texts{text}));
    CHECK(matches("[^\\p{N}\\p{Letter}\\p{S}]", text).empty());
  }
  CHECK(matches("\\P{N}", "\U0001D2C0a") == Texts{"a"});
  CHECK(matches("\\p{^L}", "\U000313501") == Texts{"1"});
  CHECK(matches("\\w+", "a\U00031350b") == Texts{"a\U00031350b"});
  CHECK(matches("\\w+", "x\u00B2-\u2460") == Texts{"x\u00B2"});
  CHECK(matches("\\h+", "xyz09af") == Texts{"09af"});
  CHECK(matches("[\\p{L}&&[^\\p{Han}]]+", "ab漢字c") == Texts{"ab", "c"});
  CHECK(matches("[^\\p{L}&&[a-z]]", "a1") == Texts{"1"});
  CHECK(matches("[a-c[x-z1]]+", "ab1q") == Texts{"ab1"});
  CHECK(matches("\\p{Letter}+", "ab1") == Texts{"ab"});
  CHECK(matches("(?i:'s|'t)", "'S'\u017F") == Texts{"'S", "'\u017F"});
  CHECK(matches("^.", "ab\ncd") == Texts{"a", "c"});
  CHECK(matches("(?m:.+)", "a\nb") == Texts{"a\nb"});
  CHECK(matches("\\bb", "b ab b") == Texts{"b", "b"});
  CHECK(matches("\\u00e9", "caf\u00e9") == Texts{"\u00e9"});
}

// What the tokenizers library 0.23.3 removes with Split(Regex("[[:CLASS:]]")).
TEST_CASE("POSIX classes hold the characters of the witness", "[regex]") {
  const std::string text =
      "aZ\u00e90_ \t\n\u00a0\u01c5\u00b2\u00bd\u0663\u03a9!$`\u00ad\u200b\u0301\u00aa\u2163"
      "\u24b6\u4e2d\u203f\u20ac\x7f\u0085\u2028\U0001f600";
  const auto chosen = [&](const std::string& set) {
    std::string all;
    for (const std::string& one : matches("[[:" + set + ":]]", text)) all += one;
    return all;
  };
  CHECK(chosen("alpha") == "aZ\u00e9\u01c5\u03a9\u00aa\u2163\u24b6\u4e2d");
  CHECK(chosen("digit") == "0\u0663");
  CHECK(chosen("alnum") == "aZ\u00e90\u01c5\u0663\u03a9\u00aa\u2163\u24b6\u4e2d");
  CHECK(chosen("upper") == "Z\u03a9\u2163\u24b6");
  CHECK(chosen("lower") == "a\u00e9\u00aa");
  CHECK(chosen("punct") == "_!$`\u24b6\u203f\u20ac\U0001f600");
  CHECK(chosen("space") == " \t\n\u00a0\u0085\u2028");
  CHECK(chosen("blank") == " \t\u00a0");
  CHECK(chosen("cntrl") == "\t\n\x7f\u0085");
  CHECK(chosen("^graph") == " \t\n\u00a0\x7f\u0085\u2028");
  CHECK(chosen("^print") == "\t\n\x7f\u0085\u2028");
  CHECK(chosen("xdigit") == "a0");
  CHECK(chosen("word") == "aZ\u00e90_\u01c5\u0663\u03a9\u0301\u00aa\u2163\u24b6\u4e2d\u203f");
  CHECK(chosen("ascii") == "aZ0_ \t\n!$`\x7f");
  CHECK(matches("[[:upper:][:digit:]-]+", "aB1-c") == Texts{"B1-"});
  CHECK(matches("[^[:upper:]]+", "aB1") == Texts{"a", "1"});
  CHECK(matches("[[:^upper:]]+", "aB1") == Texts{"a", "1"});
  CHECK(pattern_refusal("[[:^upper:]B]") == ErrorKind::kUnsupported);
  CHECK(pattern_refusal("[[:kana:]]") == ErrorKind::kUnsupported);
  CHECK(pattern_refusal("[[:upper]]") == ErrorKind::kMalformed);
}

TEST_CASE("Empty matches split but never touch the match before", "[regex]") {
  CHECK(matches("x*", "axxb") == Texts{"", "xx", ""});
  CHECK(matches("(?=[A-Z])", "aBC") == Texts{"", ""});
}

TEST_CASE("What cannot be translated is refused", "[regex]") {
  CHECK(pattern_refusal("[\\W]") == ErrorKind::kUnsupported);
  CHECK(pattern_refusal("(a") == ErrorKind::kUnsupported);
  CHECK(pattern_refusal("[a") == ErrorKind::kMalformed);
  CHECK(pattern_refusal("a\\") == ErrorKind::kMalformed);
  CHECK(pattern_refusal("\xFF") == ErrorKind::kMalformed);
  CHECK(pattern_refusal(std::string(100'000, 'a')) == ErrorKind::kMalformed);
  CHECK(pattern_refusal(std::string(1000, '[')) == ErrorKind::kMalformed);
  CHECK(pattern_refusal(std::string(1000, '(')) == ErrorKind::kUnsupported);
}

TEST_CASE("Patterns that explode are stopped", "[regex]") {
  const std::string text(200, 'a');
  try {
    matches("(?:a|aa)+[b-c]", text);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kResource);
  }
}

}  // namespace lumen::text
