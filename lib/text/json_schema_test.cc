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
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}}, "minProperties": 1})",
       {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {"{}", R"({"c":1})"}},
      // As Pydantic has numbers of type Decimal, and Zod addresses.
      {R"x({"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"})x",
       {R"("12.50")", R"("-3")"},
       {R"("")", R"("-")", R"("1e5")"}},
      {R"x({"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})x",
       {R"("a.b@c.org")"},
       {R"("a..b@c.org")"}},
      {R"x({"type": "string", "pattern": "^(?=.*[a-z])(?=.*\\d)(?!.*\\s)[ -~]{4,}$"})x",
       {R"("pass1")", R"("1\"\\a")", R"("0000x")"},
       {R"("pass")", R"("1234")", R"("a1")", R"("pa ss1")", R"("pass1é")"}},
      {R"x({"type": "string", "pattern": "^(?!con$|aux)[a-z]+$", "maxLength": 5})x",
       {R"("cons")", R"("co")", R"("a")", R"("bauxi")"},
       {R"("con")", R"("aux")", R"("auxi")", R"("bauxit")", R"("")"}},
      {R"x({"type": "string", "pattern": "(?!b)a|^(?=.x)"})x",
       {R"("bba")", R"("a")", R"("bx")", R"("\"xy")"},
       {R"("bb")", R"("x")", R"("")", R"("xbx")"}},
      // Python's \d, \w, \s, . and $ take more: what they exclude is excluded.
      {R"x({"type": "string", "pattern": "^(?!.*\\d)"})x", {R"("a")"}, {R"("a1")", R"("a٣")"}},
      {R"x({"type": "string", "pattern": "^(?!\\w)"})x", {R"("-")"}, {R"("a")", R"("é")"}},
      {R"x({"type": "string", "pattern": "^(?![^\\w])"})x", {R"("a")"}, {R"("-")", R"("é")"}},
      {R"x({"type": "string", "pattern": "^(?!\\W)"})x", {R"("a")"}, {R"("-")", R"("é")"}},
      {R"x({"type": "string", "pattern": "^(?!a$)"})x",
       {R"("ab")", R"("")"},
       {R"("a")", R"("a\n")"}},
      {R"x({"type": "string", "pattern": "^(?!.a)"})x", {R"("\na")"}, {R"("xa")", R"("\ra")"}},
      // Lengths that no single character decides.
      {R"({"type": "string", "pattern": "^a*b*$", "maxLength": 3})",
       {R"("aab")", R"("bbb")", R"("")"},
       {R"("aabb")", R"("ba")"}},
      {R"x({"type": "string", "pattern": "^(ab|c)*d+$", "minLength": 3, "maxLength": 4})x",
       {R"("abd")", R"("ccdd")", R"("dddd")"},
       {R"("cd")", R"("ababd")", R"("abdab")", R"("ab")"}},
      {R"x({"type": "string", "pattern": "b", "maxLength": 3})x",
       {R"("b")", R"("abc")", R"("\n\nb")"},
       {R"("abcd")", R"("aaa")", R"("")"}},
      {R"({"type": "string", "format": "email"})",
       {R"("a.b+c@x-y.example.org")", R"("q@a.io")"},
       {R"("a@b")", R"(".a@b.org")", R"("a b@c.org")", R"("a@-b.org")"}},
      {R"({"type": "string", "format": "ipv4"})",
       {R"("127.0.0.1")", R"("255.255.255.255")"},
       {R"("256.0.0.1")", R"("01.0.0.1")", R"("1.2.3")"}},
      {R"({"type": "string", "format": "ipv6"})", {R"("2001:db8:0:0:0:0:0:1")"}, {R"("::g")"}},
      {R"({"type": "string", "format": "hostname"})", {R"("a.b.org")"}, {R"("a_b.org")", R"("")"}},
      {R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
       {R"("https://example.org/a/b.html?c=d#e")", R"("http://a.bc:8080")"},
       {R"("example.org")", R"("https://")", R"("https://a b.org")"}},
      {R"({"type": "string", "format": "duration"})",
       {R"("P3D")", R"("P1DT2H")", R"("PT1H30M5S")", R"("P2W")", R"("PT0S")"},
       {R"("P")", R"("PT")", R"("3D")"}},
      {R"({"type": "string", "format": "byte"})",
       {R"("")", R"("aGk=")", R"("YQ==")"},
       {R"("aGk")"}},
      {R"({"type": "string", "format": "password", "minLength": 2})", {R"("ab")"}, {R"("a")"}},
      {R"({"type": "string", "format": "uuid", "pattern": "^[0-9a-f]{4}$"})",
       {R"("01af")"},
       {R"("d588a22e-1588-6077-1d77-7270b45c136f")"}},
      {R"({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("abc")"},
       {R"("a")", R"("abcd")", R"("A1")"}},
      {R"({"type": "string", "pattern": "^[A-Z]{2}\\d+$|^x*$", "minLength": 4, "maxLength": 5})",
       {R"("AB12")", R"("AB123")", R"("xxxx")"},
       {R"("AB1")", R"("AB1234")", R"("xxx")", R"("xxxxxx")"}},
      {R"({"type": "string", "pattern": "^(a|bc)d?$", "minLength": 1, "maxLength": 3})",
       {R"("ad")", R"("bcd")"},
       {R"("d")"}},
      {R"({"type": "integer", "multipleOf": 5})",
       {"0", "-15", "1234567890123455"},
       {"1", "-4", "05", "12345678901234560"}},
      {R"({"type": "integer", "multipleOf": 2.5})", {"5", "0", "-10"}, {"2", "7"}},
      {R"({"type": "number", "multipleOf": 0.01, "minimum": 0})",
       {"0", "1.2", "19.99", "5.00"},
       {"0.001", "-1", "1e2", "1.234"}},
      {R"({"type": "number", "multipleOf": 0.25, "exclusiveMinimum": 1, "maximum": 3})",
       {"1.25", "1.5", "1.50", "2", "2.75", "3.0", "3"},
       {"1", "1.0", "1.2", "3.25", "0.5"}},
      {R"({"type": "number", "multipleOf": 0.5, "minimum": 0.25, "exclusiveMaximum": 2.5})",
       {"0.5", "1", "1.0", "2.0"},
       {"0", "0.25", "2.5", "1.25"}},
      {R"({"type": "number", "minimum": 0.01})", {"0.01", "0.5", "19.99"}, {"0", "0.009", "-1"}},
      {R"({"type": "number", "multipleOf": 10})", {"20", "0", "-130"}, {"5", "20.0"}},
      {R"({"type": "array", "uniqueItems": true, "minItems": 1, "items": {"$ref": "#/$defs/c"},
           "$defs": {"c": {"enum": ["a", "b", "c"]}}})",
       {R"(["a"])", R"(["c", "a"])", R"(["b","c","a"])"},
       {"[]", R"(["a","a"])", R"(["a","b","a"])", R"(["d"])"}},
      {R"({"items": {"type": "boolean"}, "uniqueItems": true, "maxItems": 1})",
       {"[]", "[true]"},
       {"[true,false]"}},
      {R"({"items": {"type": "boolean"}, "uniqueItems": true})",
       {"[]", "[false, true]"},
       {"[true,true]"}},
      {R"({"properties": {"a": {"not": {}}, "b": {"not": {"type": ["null", "string"]}}}})",
       {"{}", R"({"b":1.5})", R"({"b":[null]})"},
       {R"({"a":1})", R"({"b":null})", R"({"b":""})"}},
      {R"({"type": ["integer", "string"], "not": {"type": "number"}})", {R"("")"}, {"1"}},
      {R"({"enum": [1, 2, 3], "not": {"enum": [2, 4]}})", {"1", "3"}, {"2", "4"}},
      {R"({"type": "string", "enum": ["x", "y"], "not": {"const": "y"}})", {R"("x")"}, {R"("y")"}},
      {R"({"patternProperties": {"^x-[a-z]+$": {"type": "integer"}},
           "additionalProperties": false})",
       {"{}", R"({"x-a":1,"x-bc":2})"},
       {R"({"a":1})", R"({"x-a":""})"}},
      {R"({"type": "object", "propertyNames": {"type": "string", "maxLength": 2},
           "additionalProperties": {"type": "null"}})",
       {"{}", R"({"ab":null})"},
       {R"({"abc":null})", R"({"a":1})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "required": ["a"],
           "additionalProperties": {"type": "integer"}})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"b":2})", R"({"a":1,"c":2})", R"({"a":1,"a":2})"}},
      {R"({"propertyNames": {"type": "string"}, "properties": {"a": {}}})", {R"({"a":1})"}, {"1"}},
      {R"({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}],
           "unevaluatedProperties": false})",
       {R"({"a":1,"b":2})", "{}"},
       {R"({"a":1,"c":2})"}},
      {R"({"type": "object", "unevaluatedProperties": false})", {"{}"}, {R"({"a":1})"}},
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
      {R"({"type": "array", "uniqueItems": true, "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]}})",
       {"[]", "[3]", "[1, 2, 9]"},
       {"[1,1]", "[10]", "[2,1]"}},  // in the order of the schema
      {R"({"type": ["integer", "string"], "not": {"enum": ["a", "ab", null]}})",
       {"1", R"("b")", R"("abc")", R"("")"},
       {R"("a")", R"("ab")", "null"}},
      {R"({"not": {"const": "a"}})", {"1", "null", R"("b")", "[]"}, {R"("a")"}},
      {R"({"not": {"type": "integer"}})", {"\"\"", "{}"}, {"1"}},
      {R"({"type": "object", "not": {"required": ["b"]}})", {"{}", R"({"a":1})"}, {R"({"b":1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
           "not": {"properties": {"a": {"enum": ["x", "y"]}}, "required": ["b"]}})",
       {"{}", R"({"a":"z"})", R"({"a":"z","b":1})", R"({"a":"x"})"},
       {R"({"a":"x","b":1})", R"({"b":1})"}},
      {R"({"allOf": [{"not": {"required": ["a"]}}, {"not": {"required": ["b"]}}],
           "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}})",
       {"{}", R"({"c":3})"},
       {R"({"a":1})", R"({"b":2,"c":3})"}},
      {R"({"type": "string", "not": {"anyOf": [{"maxLength": 1}, {"minLength": 4}]}})",
       {R"("ab")", R"("abc")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "integer", "minimum": 0, "not": {"maximum": 3}})", {"4"}, {"3", "-1"}},
      {R"({"anyOf": [{"type": "string", "maxLength": 1}, {"minimum": 2, "type": "integer"}],
           "enum": ["a", "bc", 1, 2]})",
       {R"("a")", "2"},
       {R"("bc")", "1"}},
      {R"({"enum": ["a", "b"], "if": {"const": "c"}, "then": {"const": "d"}})",
       {R"("a")"},
       {R"("c")"}},
      {R"({"type": "number", "not": {"minimum": 2}})", {"1.5", "-3"}, {"2", "7"}},
      // Every kind has a size of its own.
      {R"({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"},
           "s": {"type": "string"}}, "required": ["kind"], "additionalProperties": false,
           "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
           "then": {"required": ["n"]}, "else": {"required": ["s"], "properties": {"n": false}}})",
       {R"({"kind":"a","n":1})", R"({"kind":"b","s":""})", R"({"kind":"a","n":1,"s":""})"},
       {R"({"kind":"a"})", R"({"kind":"b"})", R"({"kind":"b","n":1,"s":""})", R"({"n":1,"s":""})"}},
      {R"({"properties": {"t": {"type": "string"}, "x": {"type": "integer"}}, "allOf": [
           {"if": {"properties": {"t": {"const": "p"}}, "required": ["t"]},
            "then": {"required": ["x"]}},
           {"if": {"properties": {"t": {"const": "q"}}, "required": ["t"]},
            "then": {"properties": {"x": {"minimum": 5}}}}]})",
       {"{}", R"({"t":"r"})", R"({"t":"p","x":1})", R"({"t":"q"})", R"({"t":"q","x":5})",
        R"({"x":1})"},
       {R"({"t":"p"})", R"({"t":"q","x":4})"}},
      {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
           "dependentRequired": {"a": ["b", "c"]},
           "dependencies": {"b": {"required": ["c"]}}})",
       {"{}", R"({"c":3})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"},
       {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"}},
      {R"({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 10}})",
       {"[10]", "[1, 12]", "[12,1,1]"},
       {"[]", "[1]", "[1,2,3]"}},
      {R"({"items": {"type": "integer"}, "contains": {"minimum": 10}, "minContains": 2,
           "maxContains": 2, "minItems": 3, "maxItems": 4})",
       {"[10,11,1]", "[1,10,2,10]"},
       {"[10,11]", "[10,11,12]", "[1,2,10]", "[1,2,3,10,10]"}},
      {R"({"items": {"enum": ["a", "b"]}, "contains": {"const": "a"}, "minContains": 0,
           "maxContains": 1})",
       {"[]", R"(["b","a","b"])", R"(["b"])"},
       {R"(["a","a"])", R"(["a","b","a"])"}},
      {R"({"properties": {"name": {"type": "string"}}, "required": ["x-b"],
           "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false})",
       {R"({"x-b":1})", R"({"name":"","x-b":1})"},
       {"{}", R"({"x-b":""})", R"({"x-b":1,"y":2})"}},
      {R"({"properties": {"name": {"type": "string"}},
           "patternProperties": {"^x-": {"type": "integer"}, "^y-": {"type": "integer"}}})",
       {"{}", R"({"name":"","x-b":1,"y-":2})", R"({"x-b":1})"},
       {R"({"name":1})", R"({"x-b":""})", R"({"z":1})"}},
      {R"({"properties": {"a": {"type": "integer"}}, "patternProperties": {".": {"minimum": 3}}})",
       {"{}", R"({"a":3})"},
       {R"({"a":2})"}},
      {R"({"anyOf": [{"required": ["a"]}, {"required": ["b"]}],
           "oneOf": [{"required": ["c"]}, {"required": ["d"]}],
           "properties": {"a": {"const": 1}, "b": {"const": 1}, "c": {"const": 1},
                          "d": {"const": 1}}})",
       {R"({"a":1,"c":1})", R"({"b":1,"d":1})"},
       {R"({"a":1})", R"({"a":1,"b":1})", R"({"c":1})"}},
      {R"({"format": "uuid4"})",
       {R"("d588a22e-1588-4077-9d77-7270b45c136f")"},
       {R"("d588a22e-1588-6077-1d77-7270b45c136f")"}},
      {R"({"format": "ipvanyaddress"})", {R"("10.0.0.1")"}, {R"("10.0.0.256")"}},
      {R"({"format": "base64"})", {R"("YQ==")"}, {R"("YQ=")"}},
      {R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
       {"0", "-12"},
       {"1.5"}},
      {R"({"type": "integer", "format": "uint8"})", {"0", "255"}, {"-1", "256"}},
      {R"({"format": "regex"})", {R"("ab-c")"}, {R"("(")"}},
      {R"({"format": "path"})", {R"("/a b")"}, {"1"}},
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

TEST_CASE("numbers in a range whose bounds are not whole are those in it") {
  constexpr double kBounds[] = {-2.5, -1, -0.25, 0, 0.05, 0.5, 0.75, 1.25, 2};
  for (const double least : kBounds) {
    for (const double most : kBounds) {
      if (least >= most) continue;
      for (const bool is_open : {false, true}) {
        const Grammar grammar = grammar_of(io::Json{
            {"type", "number"},
            {is_open ? "exclusiveMinimum" : "minimum", least},
            {is_open ? "exclusiveMaximum" : "maximum",
             most}}.dump());
        for (int i = -300; i <= 300; ++i) {
          const double value = i / 100.0;
          const std::string text = io::Json(value).dump();
          const bool is_one =
              is_open ? least < value && value < most : least <= value && value <= most;
          CAPTURE(least, most, is_open, text);
          REQUIRE(grammar.matches(text) == is_one);
          REQUIRE(grammar.matches(text + "00") == is_one);
        }
      }
    }
  }
}

TEST_CASE("multiples in a range are those in it") {
  for (const int divisor : {1, 3, 7, 10, 25, 48, 100}) {
    for (const auto& [least, most] : {std::pair(-1, 1), {5, 15}, {-205, 310}, {98, 1203}}) {
      if (most / divisor < (least + divisor - 1) / divisor) continue;  // none
      const Grammar grammar =
          grammar_of(str(R"({"type": "integer", "multipleOf": )", divisor, R"(, "minimum": )",
                         least, R"(, "maximum": )", most, "}"));
      for (int value = -1300; value <= 1300; ++value) {
        const bool is_one = least <= value && value <= most && value % divisor == 0;
        if (grammar.matches(str(value)) == is_one) continue;
        CAPTURE(divisor, least, most, value);
        REQUIRE(grammar.matches(str(value)) == is_one);
      }
    }
  }
}

TEST_CASE("what is not supported or makes no sense is refused with its place") {
  const struct {
    const char* schema;
    ErrorKind kind;
    const char* expected;
  } cases[] = {
      {"[]", ErrorKind::kMalformed, "S: #: expected a schema"},
      {R"({"properties": {"a": {"not": {"pattern": "b"}}}})", ErrorKind::kUnsupported,
       "S: #/properties/a/not: what is not so is not known of the keyword 'pattern'"},
      {R"({"type": "integer", "not": {"const": 3}})", ErrorKind::kUnsupported,
       "S: #/not: single values of the type integer can be excluded only from an enum"},
      {R"({"type": "string", "minLength": 1, "not": {"const": "a"}})", ErrorKind::kUnsupported,
       "only from an enum or all texts"},
      {R"({"not": true})", ErrorKind::kMalformed, "allows no value"},
      {R"({"type": "string", "not": {"maxLength": 9223372036854775807}})", ErrorKind::kMalformed,
       "S: #/not: maxLength: the number 9223372036854775807 is more than"},
      {R"({"not": {"minItems": -1}})", ErrorKind::kMalformed, "expected a whole number from 0"},
      {R"({"if": {"properties": {"a": {"multipleOf": 3}}}})", ErrorKind::kUnsupported,
       "S: #/if/properties: what is not so is not known of the keyword 'multipleOf'"},
      {R"({"patternProperties": {"a": {}, "b": {"type": "null"}}})", ErrorKind::kUnsupported,
       "patternProperties of several patterns"},
      {R"({"contains": {"pattern": "a"}, "maxContains": 1})", ErrorKind::kUnsupported,
       "of the keyword 'pattern'"},
      {R"({"contains": {"const": 1}, "minContains": 3, "maxContains": 2})", ErrorKind::kMalformed,
       "minContains 3 is more than maxContains 2"},
      {R"({"contains": {"const": 1}, "minItems": 5000})", ErrorKind::kUnsupported,
       "contains is not supported of so many items"},
      {R"({"propertyNames": {"anyOf": [{"pattern": "a"}, {"pattern": "b"}]}})",
       ErrorKind::kUnsupported, "S: #/propertyNames: names may only have"},
      {R"({"uniqueItems": true, "items": {"type": "string"}})", ErrorKind::kUnsupported,
       "items are of given values"},
      {R"({"uniqueItems": true, "items": {"type": "boolean", "not": {"const": true}}})",
       ErrorKind::kUnsupported, "items are of given values"},
      {R"({"properties": {"a": {}}, "propertyNames": {"pattern": "a"}})", ErrorKind::kUnsupported,
       "propertyNames are supported only"},
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
       "S: #/pattern: byte 1 of 'a(?=b)': '(?=', a look ahead, is supported only at the "
       "beginning; leave this condition out, and check the values yourself"},
      {R"x({"type": "string", "pattern": "(?=^a)b"})x", ErrorKind::kUnsupported, "'^a'"},
      {R"x({"type": "string", "pattern": "^(?=a(?=b))b"})x", ErrorKind::kUnsupported, "byte 5"},
      {R"x({"type": "string", "pattern": "^(?=a"})x", ErrorKind::kMalformed, "is missing at the"},
      {R"x({"type": "string", "pattern": "(?=a)b", "maxLength": 3})x", ErrorKind::kUnsupported,
       "write the length into the pattern"},
      {R"x({"type": "string", "pattern": "^(a|bc)*$", "maxLength": 9999})x",
       ErrorKind::kUnsupported, "write the length into the pattern"},
      {R"x({"type": "string", "pattern": "^(?=.{4999}b).{9999}$"})x", ErrorKind::kUnsupported,
       "the conditions together are too long"},
      {R"x({"type": "string", "pattern": "^(?=a)b$"})x", ErrorKind::kMalformed, "allows no value"},
      {R"x({"type": "string", "pattern": "(?<!a)b"})x", ErrorKind::kUnsupported,
       "'(?<!', a look behind, is not supported"},
      {R"x({"type": "string", "pattern": "(?<a>b)"})x", ErrorKind::kUnsupported,
       "'(?' is not supported here; write the pattern with"},
      {R"({"type": "string", "pattern": "a(b"})", ErrorKind::kMalformed, "byte 3"},
      {R"({"type": "string", "pattern": "a^b"})", ErrorKind::kUnsupported, "'^b'"},
      {R"({"type": "string", "pattern": "\\bx"})", ErrorKind::kUnsupported, "'\\b'"},
      {R"({"type": "string", "pattern": "*"})", ErrorKind::kMalformed, "nothing to repeat"},
      {R"({"type": "string", "pattern": "^a{4}$", "maxLength": 3})", ErrorKind::kMalformed,
       "allows no value"},
      {R"({"type": "string", "format": "emoji"})", ErrorKind::kUnsupported,
       "S: #: the format 'emoji' is not supported for texts"},
      {R"({"type": "string", "minLength": 4, "maxLength": 3})", ErrorKind::kMalformed,
       "minLength 4 is more than maxLength 3"},
      {R"({"type": "string", "maxLength": -1})", ErrorKind::kMalformed, "maxLength: expected"},
      {R"({"type": "string", "maxLength": 99999999})", ErrorKind::kMalformed, "the limit"},
      {R"({"type": "integer", "minimum": 4, "maximum": 3})", ErrorKind::kMalformed,
       "no number is from 4 to 3"},
      {R"({"type": "number", "exclusiveMinimum": 0.5, "maximum": 0.5})", ErrorKind::kMalformed,
       "no number is from 0.5 to 0.5"},
      {R"({"type": "number", "minimum": 1e-20})", ErrorKind::kUnsupported, "16 digits after the"},
      {R"({"type": "number", "multipleOf": 0.3})", ErrorKind::kUnsupported,
       "multipleOf: found the number 0.3, supported are whole numbers up to 1000"},
      {R"({"name": "x", "strict": true, "schema": {}})", ErrorKind::kUnsupported,
       "S: #: 'schema' holds another schema, as in a request of OpenAI's API: give that alone"},
      {R"({"type": "integer", "multipleOf": 0})", ErrorKind::kMalformed, "a number above 0"},
      {R"({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6})", ErrorKind::kMalformed,
       "allows no value"},
      {R"({"uniqueItems": true, "minItems": 3, "items": {"enum": [1, 2]}})", ErrorKind::kMalformed,
       "minItems 3 cannot be reached: there are 2 different values"},
      {R"({"uniqueItems": true})", ErrorKind::kUnsupported, "uniqueItems"},
      {R"({"prefixItems": [{}], "minItems": 2})", ErrorKind::kMalformed, "cannot be reached"},
      {R"({"required": ["a"], "additionalProperties": false})", ErrorKind::kMalformed,
       "'a' is not among the properties"},
      {R"({"type": "object", "additionalProperties": false, "minProperties": 1})",
       ErrorKind::kMalformed, "allows no value"},
      {R"({"type": "object", "minProperties": 1, "maxProperties": 0})", ErrorKind::kMalformed,
       "allows no value"},
      {R"({"properties": {"a": {}, "b": {}}, "minProperties": 2})", ErrorKind::kUnsupported,
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

TEST_CASE("a list of a hundred thousand values is followed; one of too many bytes says so") {
  io::Json values = io::Json::array({"", "a\"b"});
  std::string longer;
  for (int i = 0; i < 1000; ++i) values.push_back(longer += 'a');
  for (uint64_t i = 0; i < 100'000; ++i) values.push_back(str("w", i * 2'654'435'761 % 99991));
  values.push_back(12);
  const Grammar grammar = json_schema_grammar({{"properties", {{"x", {{"enum", values}}}}}}, "S");
  for (size_t i = 0; i < values.size(); i += 97) {
    REQUIRE(grammar.matches(R"({"x":)" + values[i].dump() + "}"));
  }
  for (const char* other : {R"("w")", R"("w99991")", "1", R"("a)", R"("b")", "null"}) {
    CAPTURE(other);
    CHECK_FALSE(grammar.matches(str(R"({"x":)", other, "}")));
  }
  CHECK_FALSE(grammar.matches(R"({"x":")" + longer + R"(a"})"));
  CHECK(grammar.program()->positions.size() < 500'000);
  io::Json large = io::Json::array();
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) large.push_back(str(random(), random()));
  const std::string message = refusal(ErrorKind::kMalformed, [&] {
    json_schema_grammar({{"enum", large}}, "S");
  });
  CHECK(contains(message, "S: the grammar has more than 1048576 positions"));
  CHECK(contains(message, "name fewer texts"));
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
