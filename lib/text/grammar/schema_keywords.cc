#include "lib/text/grammar/schema_keywords.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lib/base/limits.h"

namespace lumen::text::grammar {
namespace {

using io::Json;

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

// Keywords and the types of values that they are about ("": any), beside annotations.
constexpr std::pair<std::string_view, std::string_view> kKeywords[] = {
    {"type", ""},
    {"nullable", ""},
    {"enum", ""},
    {"const", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"not", ""},
    {"$ref", ""},
    {"if", ""},
    {"then", ""},
    {"else", ""},
    {"dependentRequired", "object"},
    {"dependentSchemas", "object"},
    {"dependencies", "object"},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"unevaluatedProperties", "object"},
    {"patternProperties", "object"},
    {"propertyNames", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"additionalItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"contains", "array"},
    {"minContains", "array"},
    {"maxContains", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", ""},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
};

}  // namespace

bool is_annotation(std::string_view keyword) {
  constexpr std::string_view kNames[] = {
      "title", "description", "default", "examples", "example", "$schema", "$id", "id", "$comment",
      "$defs", "definitions", "components", "deprecated", "readOnly", "writeOnly", "$anchor",
      "$vocabulary", "contentMediaType", "contentEncoding", "discriminator", "externalDocs", "xml",
      "contentSchema",
      // Of editors and generators.
      "markdownDescription", "enumDescriptions", "markdownEnumDescriptions", "enumNames",
      "defaultSnippets", "deprecationMessage", "errorMessage", "doNotSuggest", "allowComments",
      "allowTrailingCommas", "tsType", "propertyOrdering"};
  return keyword.starts_with("x-") ||
         std::find(std::begin(kNames), std::end(kNames), keyword) != std::end(kNames);
}

void check_keywords(const Json& schema, Place place) {
  for (const char* wrapper : {"schema", "json_schema"}) {
    const Json* inner = io::find(schema, wrapper);
    if (!inner || !inner->is_object()) continue;
    unsupported(place, quoted(wrapper),
                " holds another schema, as in a request of OpenAI's API: ", "give that alone");
  }
  for (const auto& [key, value] : schema.items()) {
    if (is_annotation(key)) continue;
    const auto known =
        std::find_if(std::begin(kKeywords), std::end(kKeywords),
                     [name = std::string_view(key)](const auto& one) { return one.first == name; });
    if (known != std::end(kKeywords)) continue;
    std::vector<std::string> names;
    for (const auto& one : kKeywords) names.emplace_back(one.first);
    const std::string near = nearest(key, names);
    unsupported(place, "the keyword ", quoted(key), " is not supported; ",
                near.empty() ? "leave it out, and check the values yourself"
                             : str("did you mean ", near, "?"));
  }
}

bool says_only(const Json& schema, std::initializer_list<std::string_view> keywords) {
  for (const auto& [key, value] : schema.items()) {
    const bool is_one = std::find(keywords.begin(), keywords.end(), key) != keywords.end();
    if (!is_one && !is_annotation(key)) return false;
  }
  return true;
}

const Json* object_member(const Json& schema, const char* key, Place place) {
  const Json* value = io::find(schema, key);
  if (value && !value->is_object()) {
    malformed(place, key, ": expected an object, found ", io::describe(value));
  }
  return value;
}

const Json* array_member(const Json& schema, const char* key, Place place) {
  const Json* value = io::find(schema, key);
  if (value && (!value->is_array() || value->empty())) {
    malformed(place, key, ": expected an array that is not empty, found ", io::describe(value));
  }
  return value;
}

std::optional<uint32_t> count_member(const Json& schema, const char* key, Place place) {
  const Json* value = io::find(schema, key);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : -1;
  if (number < 0 || std::trunc(number) != number) {
    malformed(place, key, ": expected a whole number from 0, found ", io::describe(value));
  }
  if (number > static_cast<double>(limits::kGrammarPositions)) {
    malformed(place, key, ": ", io::describe(value), " is more than ", limits::kGrammarPositions,
              ", the limit");
  }
  return static_cast<uint32_t>(number);
}

std::string text_of(const Json& value, Place place) {
  if (!value.is_string()) malformed(place, "expected a text, found ", io::describe(&value));
  return value.get<std::string>();
}

bool is_nullable(const Json& schema, Place place) {
  const Json* value = io::find(schema, "nullable");
  if (value && !value->is_boolean()) {
    malformed(place, "nullable: expected true or false, found ", io::describe(value));
  }
  return value && *value == true;
}

std::vector<std::string> types_of(const Json& schema, Place place) {
  std::vector<std::string> types;
  const auto add = [&](std::string_view type) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.emplace_back(type);
  };
  if (const Json* named = io::find(schema, "type")) {
    const Json list = named->is_array() ? *named : Json::array({*named});
    for (const Json& type : list) {
      const std::string name = text_of(type, place + "/type");
      if (std::find(kTypes.begin(), kTypes.end(), name) == kTypes.end()) {
        malformed(place, "type: expected one of ", join({kTypes.begin(), kTypes.end()}, ", "),
                  ", found ", quoted(name));
      }
      add(name);
    }
    if (types.empty()) malformed(place, "no type is allowed, so no value is");
  } else {
    for (const auto& [key, type] : kKeywords) {
      if (!type.empty() && io::find(schema, key)) add(type);
    }
    if (io::find(schema, "format") && types.empty()) add("string");
  }
  if (is_nullable(schema, place) && !types.empty()) add("null");
  return types;
}

}  // namespace lumen::text::grammar
