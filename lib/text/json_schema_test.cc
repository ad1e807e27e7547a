// JSON Schemas as grammars: values that they allow and others; what is refused, and where.
#include "lib/text/json_schema.h"

#include <random>

#include "lib/base/testing.h"
#include "lib/text/grammar/automaton.h"

namespace lumen::text {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

Grammar grammar_of(const std::string& schema) {
  return json_schema_grammar(io::parse_json(schema, "test"), "S");
}

struct SchemaCase {
  const char* schema;
  std::vector<std::string> values, others;
};

const std::vector<SchemaCase>& schema_cases() {
  static const std::vector<SchemaCase> kCases = {
      {"{}",
       {"1", "-0.5e-10", "\"\"", "[1, {\"a\":[]}]", "{\n  \"a\": null\n}", "true",
        R"("\u00e9\ud83d\ude00\"\/é😀")"},
       {"", "01", "+1", "1.", "1e999", R"("\ud83d")", R"("\ude00x")", "\"\n\"", "[1,]", "nul",
        "{\"a\"}", "  1", "[   1]"}},
      {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"1", "\"null\""}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"},
           "c": {}}, "required": ["b"]})",
       {R"({"b":"x"})", R"({"a":1,"b":""})", R"({"a":1, "b": "y", "c": [1]})", R"({"b":"","c":0})"},
       {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":1})", R"({"b":"x","d":1})",
        R"({"b":"x",})"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}}})",
       {"{}", "{ }", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"},
       {R"({"b":1,"a":2})", R"({,"b":1})", R"({"c":1})"}},
      {R"({"properties": {"a": {"type": "null"}, "ab": {"type": "null"}},
           "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a":null,"x":1})", R"({"x":1,"":2,"abc":3,"b":4})", R"({"ab":null})"},
       {R"({"a":1})", R"({"ab":1})", R"({"x":null})", R"({"\u0061":1})"}},
      {R"({"type": "object", "required": ["z"], "additionalProperties": {"type": "integer"},
           "properties": {"a": {"type": "null"}}})",
       {R"({"z":1})", R"({"a":null,"z":1,"y":2})"},
       {"{}", R"({"a":null})", R"({"z":null})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type": "object", "maxProperties": 2, "minProperties": 1})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":2,"c":3})"}},
      {R"({"items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1,2]", "[ 1, 2,3 ]"},
       {"[]", "[1,2,3,4]", "[null]"}},
      {R"({"prefixItems": [{"type": "string"}, {"type": "null"}], "items": {"type": "integer"},
           "maxItems": 4})",
       {"[]", R"(["a"])", R"(["a",null])", R"(["a",null,1,2])"},
       {"[1]", R"(["a",1])", R"(["a",null,1,2,3])"}},
      {R"({"items": [{"const": 1}, {"const": 2}], "additionalItems": false, "minItems": 1})",
       {"[1]", "[1,2]"},
       {"[]", "[2]", "[1,2,3]"}},
      {R"({"enum": ["a\"b", 1.5, {"x": [1]}, null]})",
       {R"("a\"b")", "1.5", R"({"x":[1]})", "null"},
       {"\"a\"", "1", "[1]"}},
      {R"({"type": "string", "enum": ["x", 1]})", {"\"x\""}, {"1"}},
      {R"({"const": -7})", {"-7"}, {"7", "-70"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("é😀\n")", R"("\ud83d\ude00x")"},
       {R"("a")", R"("abcd")", R"("\ud83d\ude00")"}},
      {R"({"type": "string", "pattern": "^[a-z]{2}(-\\d+)?$"})",
       {R"("ab")", R"("ab-12")"},
       {R"("abc")", R"("ab-")", R"("x ab")"}},
      {R"({"type": "string", "pattern": "b\\\\c|^\"$"})",
       {R"("xxb\\cyy")", R"("\"")"},
       {R"("bc")", R"("\"x")"}},
      {R"({"type": "string", "pattern": "^(?:\\w|[^\\x00-@\\]])*.$"})",
       {R"("abÄ.")", R"("x")"},
       {R"("")", R"("a]b")", R"("a\n")"}},
      {R"({"format": "date"})",
       {R"("2024-12-31")", R"("1999-02-28")"},
       {R"("2024-02-30")", R"("2024-13-01")", R"("2024-04-31")", R"("24-01-01")"}},
      {R"({"type": "string", "format": "date-time"})",
       {R"("2024-12-31T23:59:59Z")", R"("2024-01-01T00:00:00.25+02:30")"},
       {R"("2024-12-31")", R"("2024-12-31T24:00:00Z")", R"("2024-12-31T10:00:00")"}},
      {R"({"type": "string", "format": "uuid"})",
       {R"("d588a22e-1588-6077-1d77-7270b45c136f")"},
       {R"("d588a22e15886077-1d77-7270b45c136f")"}},
      {R"({"type": "integer"})",
       {"0", "-12", "1234567890123456"},
       {"1.0", "01", "12345678901234567"}},
      {R"({"type": "integer", "format": "int32"})",
       {"2147483647", "-2147483648"},
       {"2147483648", "-2147483649"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 10})",
       {"0.01", "10", "10.00", "9.999", "1"},
       {"0", "0.0", "-1", "10.01", "11", "1e0"}},
      {R"({"type": "number", "minimum": -2, "exclusiveMaximum": 0})",
       {"-2", "-2.0", "-1.99", "-0.5"},
       {"-2.01", "0", "-0", "-0.0", "1"}},
      {R"({"type": "string", "nullable": true})", {"\"\"", "null"}, {"1"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", {"1", "null"}, {"true"}},
      {R"({"properties": {"a": {"const": 1}}, "oneOf": [{"required": ["a"]},
           {"properties": {"b": {"const": 2}}, "required": ["b"]}]})",
       {R"({"a":1})", R"({"a":1,"b":2})", R"({"b":2})"},
       {"{}", R"({"b":1})"}},
      {R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"y": {"type": "null"}},
           "required": ["y"]}], "$defs": {"a": {"type": "object", "properties": {"x": {"const": 1}},
           "required": ["x"]}}})",
       {R"({"x":1,"y":null})"},
       {R"({"x":1})", R"({"y":null,"x":1})"}},
      {R"({"allOf": [{"type": "number", "minimum": 3}, {"type": ["integer", "null"], "maximum": 5}]})",
       {"3", "5"},
       {"2", "6", "null", "3.5"}},
      {R"({"$ref": "#/definitions/tree", "definitions": {"tree": {"type": "object", "properties":
           {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref":
           "#/definitions/tree"}}}, "required": ["v"]}}})",
       {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]})"},
       {R"({"kids":[]})", R"({"v":1,"kids":[1]})"}},
      // Joined at every level anew, so only equal results end the recursion.
      {R"({"allOf": [{"$ref": "#/$defs/t"}], "$defs": {"t": {"type": "object", "properties":
           {"c": {"allOf": [{"$ref": "#/$defs/t"}, {"required": ["d"]}]}, "d": {"const": 0}}}}})",
       {"{}", R"({"c":{"c":{"d":0},"d":0}})"},
       {R"({"c":{}})"}},
      {R"({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"const": 1}}})", {"1"}, {"2"}},
      {R"({"type": "object", "properties": {"a": {"type": "object", "properties":
           {"a": {"$ref": "#/properties/a"}}}}})",
       {R"({"a":{"a":{"a":{}}}})"},
       {R"({"b":1})"}},
  };
  return kCases;
}

TEST_CASE("the grammar of a schema matches its values and no others") {
  for (const SchemaCase& one : schema_cases()) {
    const Grammar grammar = grammar_of(one.schema);
    for (const std::string& value : one.values) {
      CAPTURE(one.schema, value);
      CHECK(grammar.matches(value));
    }
    for (const std::string& value : one.others) {
      CAPTURE(one.schema, value);
      CHECK_FALSE(grammar.matches(value));
    }
  }
}

TEST_CASE("whole numbers in a range are those in it") {
  for (const auto& [least, most] : {std::pair(0, 0),
                                    {-1, 1},
                                    {0, 9},
                                    {5, 15},
                                    {-13, -7},
                                    {98, 1203},
                                    {-205, 310},
                                    {10, 100},
                                    {199, 200}}) {
    const Grammar grammar =
        grammar_of(str(R"({"type": "integer", "minimum": )", least, R"(, "maximum": )", most, "}"));
    for (int value = -1300; value <= 1300; ++value) {
      if (grammar.matches(str(value)) == (least <= value && value <= most)) continue;
      CAPTURE(least, most, value);
      REQUIRE(grammar.matches(str(value)) == (least <= value && value <= most));
    }
  }
  const Grammar large = grammar_of(R"({"type": "integer", "minimum": 99999999999999999})");
  CHECK(large.matches("99999999999999999"));
  CHECK(large.matches("9223372036854775807"));
  CHECK_FALSE(large.matches("99999999999999998"));
  CHECK_FALSE(large.matches("9223372036854775808"));
}

TEST_CASE("what is not supported or makes no sense is refused with its place") {
  const struct {
    const char* schema;
    ErrorKind kind;
    const char* expected;
  } cases[] = {
      {"[]", ErrorKind::kMalformed, "S: #: expected a schema"},
      {R"({"properties": {"a": {"not": {}}}})", ErrorKind::kUnsupported,
       "S: #/properties/a: the keyword 'not' is not supported"},
      {R"({"items": {"proprties": {}}})", ErrorKind::kUnsupported,
       "S: #/items: the keyword 'proprties' is not supported; did you mean properties?"},
      {R"({"type": "strin"})", ErrorKind::kMalformed, "S: #: type: expected one of object, array"},
      {R"({"type": []})", ErrorKind::kMalformed, "no type is allowed"},
      {R"({"$ref": "other.json"})", ErrorKind::kUnsupported, "only parts of this schema"},
      {R"({"$ref": "#/$defs/x", "$defs": {"y": {}}})", ErrorKind::kMalformed,
       "the schema has no '#/$defs/x'"},
      {R"({"$ref": "#"})", ErrorKind::kMalformed, "'#' allows no value"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", ErrorKind::kMalformed,
       "leads back to itself"},
      {R"({"allOf": [{"$ref": "#"}]})", ErrorKind::kMalformed, "leads back to itself"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", ErrorKind::kMalformed,
       "allows no value, or only ones without an end"},
      {"false", ErrorKind::kMalformed, "allows no value"},
      {R"x({"type": "string", "pattern": "a(?=b)"})x", ErrorKind::kUnsupported,
       "S: #/pattern: byte 1 of 'a(?=b)': '(?' is not supported here"},
      {R"({"type": "string", "pattern": "a(b"})", ErrorKind::kMalformed, "byte 3"},
      {R"({"type": "string", "pattern": "a^b"})", ErrorKind::kUnsupported, "'^b'"},
      {R"({"type": "string", "pattern": "\\bx"})", ErrorKind::kUnsupported, "'\\b'"},
      {R"({"type": "string", "pattern": "*"})", ErrorKind::kMalformed, "nothing to repeat"},
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", ErrorKind::kUnsupported,
       "write the length into the pattern"},
      {R"({"type": "string", "format": "email"})", ErrorKind::kUnsupported,
       "S: #: the format 'email' is not supported for texts"},
      {R"({"type": "string", "minLength": 4, "maxLength": 3})", ErrorKind::kMalformed,
       "minLength 4 is more than maxLength 3"},
      {R"({"type": "string", "maxLength": -1})", ErrorKind::kMalformed, "maxLength: expected"},
      {R"({"type": "string", "maxLength": 99999999})", ErrorKind::kMalformed, "the limit"},
      {R"({"type": "integer", "minimum": 4, "maximum": 3})", ErrorKind::kMalformed,
       "no number is from 4 to 3"},
      {R"({"type": "number", "minimum": 0.5})", ErrorKind::kUnsupported, "use a whole number"},
      {R"({"type": "number", "multipleOf": 2})", ErrorKind::kUnsupported, "multipleOf"},
      {R"({"uniqueItems": true})", ErrorKind::kUnsupported, "uniqueItems"},
      {R"({"prefixItems": [{}], "minItems": 2})", ErrorKind::kMalformed, "cannot be reached"},
      {R"({"required": ["a"], "additionalProperties": false})", ErrorKind::kMalformed,
       "'a' is not among the properties"},
      {R"({"properties": {"a": {}}, "minProperties": 1})", ErrorKind::kUnsupported,
       "minProperties"},
      {R"({"enum": [1], "minimum": 2})", ErrorKind::kUnsupported, "go together only with type"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", ErrorKind::kUnsupported,
       "'pattern' stands in two schemas"},
      {R"({"allOf": [{"required": ["a"]}, {"additionalProperties": false, "properties": {}},
           {"properties": {"a": {}}}]})",
       ErrorKind::kUnsupported, "does not know it"},
      {R"({"type": "array", "maxItems": 1000000, "items": {"maxItems": 1000000}})",
       ErrorKind::kMalformed, "positions, the limit"},
  };
  for (const auto& [schema, kind, expected] : cases) {
    const std::string message = refusal(kind, [&, text = schema] { grammar_of(text); });
    CAPTURE(schema, message);
    CHECK(contains(message, expected));
  }
}

TEST_CASE("random texts of a schema are JSON, end, and have what it requires") {
  const Grammar grammar = grammar_of(R"({"type": "object", "properties": {
      "name": {"type": "string", "maxLength": 5}, "any": {},
      "list": {"type": "array", "items": {"type": "number"}, "maxItems": 3}},
      "required": ["name", "any"], "additionalProperties": true})");
  std::mt19937 random(3);
  grammar::Automaton automaton(grammar.program());
  for (int i = 0; i < 300; ++i) {
    std::string text;
    grammar::State state = automaton.start();
    while (!automaton.may_end(state)) {
      std::vector<uint8_t> next, closing;
      for (int byte = 0; byte < 256; ++byte) {
        const auto b = static_cast<uint8_t>(byte);
        if (automaton.next(state, b) == grammar::kDead) continue;
        next.push_back(b);
        if (b == '"' || b == ']' || b == '}' || (b >= '0' && b <= '9')) closing.push_back(b);
      }
      REQUIRE(!next.empty());
      const auto& some =
          closing.empty() || (text.size() < 100 && random() % 2 == 0) ? next : closing;
      const uint8_t byte = some[random() % some.size()];
      text += static_cast<char>(byte);
      state = automaton.next(state, byte);
      REQUIRE(text.size() < 10'000);
    }
    CAPTURE(text);
    const io::Json value = io::Json::parse(text, nullptr, false);
    REQUIRE(value.is_object());
    REQUIRE(value["name"].is_string());
    REQUIRE(value.contains("any"));
  }
}

}  // namespace
}  // namespace lumen::text
