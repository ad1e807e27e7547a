#include "lib/io/json.h"

#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"

namespace lumen::io {
namespace {

using testing::contains;

std::string json_refusal(const std::string& text, const JsonLimits& limits = {}) {
  return testing::refusal(ErrorKind::kMalformed, [&] { parse_json(text, "t.json", limits); });
}

TEST_CASE("JSON values") {
  const Json json = parse_json(
      R"( {"z": [1, -2, 1.5, 1e3, true, false, null, [], {}], "a": "\u00e9\ud83d\ude00\n\"\\\/",
          "big": 18446744073709551615, "more": 18446744073709551616, "m": {"x": {"y": []}}} )",
      "t.json");
  CHECK(json.begin().key() == "z");  // order is kept
  CHECK(json["z"].size() == 9);
  CHECK(json["z"][0].is_number_unsigned());
  CHECK(json["z"][1] == -2);
  CHECK(json["z"][2] == 1.5);
  CHECK(json["z"][3] == 1000.0);
  CHECK(json["z"][6].is_null());
  CHECK(json["a"] == "é😀\n\"\\/");
  CHECK(json["big"] == ~uint64_t{0});
  CHECK(json["more"].is_number_float());
  CHECK(json["m"]["x"]["y"].is_array());
  CHECK(parse_json("3", "t") == 3);
  CHECK(parse_json("-9223372036854775808", "t") == std::numeric_limits<int64_t>::min());
  CHECK(parse_json("1e-400", "t") == 0.0);
  CHECK(parse_json("0." + std::string(400, '0') + "1", "t") == 0.0);
}

TEST_CASE("JSON that is refused, with its place") {
  CHECK(contains(json_refusal("{\"a\": 1,\n \"é\": x}"), "t.json: line 2, column 7"));
  CHECK(contains(json_refusal("{\"a\": 1, \"b\": 2, \"a\": 3}"), "'a' twice"));
  CHECK(contains(json_refusal("[1, 2"), "too early"));
  CHECK(contains(json_refusal(""), "too early"));
  CHECK(contains(json_refusal("[\"\xff\"]"), "UTF-8"));
  CHECK(contains(json_refusal("[\"\\ud800\"]"), "surrogate"));
  CHECK(contains(json_refusal("[\"\\ud800\\u0041\"]"), "surrogate"));
  CHECK(contains(json_refusal("1e999"), "too large"));
  CHECK(contains(json_refusal(std::string(400, '1') + ".5e-1"), "too large"));
  CHECK(contains(json_refusal("[1] x"), "follows"));
  CHECK(contains(json_refusal(std::string(20'000, '[')), "deeper than 32"));
  CHECK(contains(json_refusal("[[1]]", {100, 1}), "deeper than 1"));
  CHECK(contains(json_refusal("[1,2,3]", {3, 9}), "limit is 3"));
  for (const char* text : {"[1,]",    "{\"a\":1,}", "{a:1}",    "[1 2]",     "01",
                           "1.",      ".5",         "-",        "+1",        "tru",
                           "nan",     "'a'",        "[\"\t\"]", "[\"\\x\"]", "[\"\\u12g4\"]",
                           "{\"a\"}", "{\"a\":}",   "[}",       "\"abc",     "[\"\\u-123\"]",
                           "1e",      "//\n1",      "{,}",      "]"}) {
    CAPTURE(text);
    CHECK(contains(json_refusal(text), "line 1"));
  }
}

TEST_CASE("numbers that JSON has not are read where Python may have written them") {
  const JsonLimits python = {.special_numbers = true};
  const std::string text =
      R"({"a": [0.0, Infinity], "b": -Infinity, "c": NaN, "Infinity": "-Infinity, NaN", "d": -1})";
  const Json json = parse_json(text, "t", python);
  const Json endless = {{"__float__", "Infinity"}};
  CHECK(json["a"] == Json{0.0, endless});
  CHECK(json["b"] == Json{{"__float__", "-Infinity"}});
  CHECK(json["Infinity"] == "-Infinity, NaN");  // in strings they are text
  CHECK(json["d"] == -1);
  CHECK(*special_number(json["c"]) == "NaN");
  CHECK(*special_number(json["a"][1]) == "Infinity");
  CHECK(special_number(json["a"]) == nullptr);
  CHECK(special_number(json) == nullptr);
  CHECK(parse_json(json.dump(), "t") == json);  // what is written again is JSON
  CHECK(contains(json_refusal(text), "line 1, column 13"));
  for (const char* wrong :
       {"[Infinit]", "[-Inf]", "[nan]", "[Infinity1]", "[+Infinity]", "{NaN: 1}"}) {
    CAPTURE(wrong);
    CHECK(contains(json_refusal(wrong, python), "line 1"));
  }
}

TEST_CASE("typed members explain themselves") {
  const Json json = parse_json(
      R"({"n": 5, "f": 2.5, "i": 3.0, "s": "x", "b": true, "null": null, "neg": -1})", "t");
  CHECK(get_int(json, "n", 0, 9) == 5);
  CHECK(get_int(json, "i", 0, 9) == 3);
  CHECK(get_int(json, "absent", 0, 9, 7) == 7);
  CHECK(get_int(json, "null", 0, 9, 7) == 7);
  CHECK(get_number(json, "n", 0, 9) == 5);
  CHECK(get_bool(json, "b"));
  CHECK(get_string(json, "s") == "x");
  CHECK(find(json, "null") != nullptr);
  CHECK(find_value(json, "null") == nullptr);
  CHECK_THROWS_WITH(get_int(json, "f", 0, 9),
                    "key 'f': found the number 2.5, expected an integer from 0 to 9");
  CHECK_THROWS_WITH(get_int(json, "neg", 0, 9),
                    "key 'neg': found the number -1, expected an integer from 0 to 9");
  CHECK_THROWS_WITH(get_int(json, "absent", 0, 9),
                    "key 'absent': found nothing, expected an integer from 0 to 9");
  CHECK_THROWS_AS(get_string(json, "n"), Error);
  CHECK_THROWS_AS(get_bool(json, "n"), Error);
  CHECK_THROWS_AS(get_number(json, "s", 0, 1), Error);
}

TEST_CASE("values are found again in the text they were parsed from") {
  const std::string text = R"( {"a": [1, {"]": "x}"}, {"b" : null}], "c": {"a": -2.5e3}})";
  const auto at = [&](std::vector<std::string> path) {
    return text.substr(json_position(text, path));
  };
  CHECK(at({}) == text.substr(1));
  CHECK(at({"a", "0"}).starts_with("1,"));
  CHECK(at({"a", "2", "b"}).starts_with("null"));
  CHECK(at({"c", "a"}) == "-2.5e3}}");
  CHECK(at({"c", "missing"}) == R"({"a": -2.5e3}})");
  CHECK(at({"a", "7"}).starts_with("[1,"));
  CHECK(at({"a", "0", "deeper"}).starts_with("1,"));
}

TEST_CASE("messages count lines from where the text begins") {
  JsonLimits limits;
  limits.first_line = 41;
  const std::string why = lumen::testing::refusal(ErrorKind::kMalformed,
                                                  [&] { parse_json("{\n\"a\": x}", "F", limits); });
  CHECK(lumen::testing::contains(why, "line 42, column 6"));
}

}  // namespace
}  // namespace lumen::io
