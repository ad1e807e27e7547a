#include "lib/io/toml.h"

#include "lib/base/testing.h"

namespace lumen::io {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

TEST_CASE("a TOML document becomes JSON values with their places") {
  const TomlDocument document = parse_toml(
      "a = 1\nb = [1.5, \"x\"]\n[t]\nflag = true\n[[t.list]]\nc = 'q'\n[[t.list]]\nc = -3\n", "f");
  CHECK(document.root["a"] == 1);
  CHECK(document.root["b"][0] == 1.5);
  CHECK(document.root["b"][1] == "x");
  CHECK(document.root["t"]["flag"] == true);
  CHECK(document.root["t"]["list"][1]["c"] == -3);
  CHECK(document.keys.at("/t/list/1/c").line == 8);
  CHECK(document.values.at("/t/list/1/c").column == 5);
  CHECK(document.values.at("/b/1").line == 2);
  CHECK(document.values.at("/b/1").column == 11);
}

TEST_CASE("what is no TOML is refused with line and column") {
  const auto message = [](std::string_view text) {
    return refusal(ErrorKind::kMalformed, [&] { parse_toml(text, "dir/f.toml"); });
  };
  CHECK(message("a = 1\nb = \n").starts_with("dir/f.toml:2:"));
  CHECK(message("a = 1\na = 2\n").starts_with("dir/f.toml:2:"));
  CHECK(message("[a]\n[a]\n").starts_with("dir/f.toml:2:"));
  CHECK(message("a = 99999999999999999999\n").starts_with("dir/f.toml:1:"));
  CHECK(message("a = \"\xff\"\n").starts_with("dir/f.toml:1:"));
  CHECK(contains(message("a = 1979-05-27\n"), "dates"));
  CHECK(contains(message("a = " + std::string(40, '[') + std::string(40, ']')), "deep"));
}

std::string chain_of(int keys) {
  std::string chain = "a";
  for (int i = 0; i < keys; ++i) chain += ".a";
  return chain;
}

TEST_CASE("deep nesting and long chains of keys end in an error, not in the stack") {
  for (const int depth : {40, 190, 1000, 100'000}) {
    const std::string chain = chain_of(depth);
    CHECK(refusal(ErrorKind::kMalformed, [&] { parse_toml(chain + " = 1", "f"); }) != "accepted");
    CHECK(refusal(ErrorKind::kMalformed, [&] { parse_toml("[" + chain + "]", "f"); }) !=
          "accepted");
    CHECK(refusal(ErrorKind::kMalformed, [&] {
            parse_toml("a = " + std::string(static_cast<size_t>(depth), '['), "f");
          }) != "accepted");
  }
  std::string nested;  // what both limits allow
  for (int i = 0; i < 60; ++i) nested += "{" + chain_of(120) + " = [\n";
  CHECK(refusal(ErrorKind::kMalformed, [&] { parse_toml("a = " + nested, "f"); }) != "accepted");
}

TEST_CASE("values are written so that they read the same") {
  for (const char* text : {"1", "-7", "0.1", "1e-05", "1e+30", "3.0", "true", "false", "[]",
                           "[1, 2]", "[\"a\", \"b\"]", "\"q\\\"\\\\ \\n\\t\\u0007 \u00e4\""}) {
    CAPTURE(text);
    const Json value = parse_toml_value(text, "v");
    CHECK(parse_toml_value(toml_value(value), "v") == value);
  }
  CHECK(toml_value(Json(3.0)) == "3.0");
  CHECK(toml_value(Json(1e30)) == "1e+30");
  CHECK_THROWS_AS(parse_toml_value("1\nb = 2", "v"), Error);
}

}  // namespace
}  // namespace lumen::io
