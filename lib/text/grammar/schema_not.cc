#include "lib/text/grammar/schema_not.h"

#include <algorithm>

#include "lib/text/grammar/schema_merge.h"

namespace lumen::text::grammar {
namespace {

using io::Json;
using Schemas = std::vector<Json>;

constexpr const char* kDependencies[] = {"dependentRequired", "dependentSchemas", "dependencies"};

// The keyword that says the opposite of one of a number, and by how much that differs.
struct Opposite {
  std::string_view keyword;
  const char* type;
  const char* opposite;
  int step;
};
constexpr Opposite kOpposites[] = {
    {"minLength", "string", "maxLength", -1},     {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},        {"maxItems", "array", "minItems", 1},
    {"minimum", "number", "exclusiveMaximum", 0}, {"maximum", "number", "exclusiveMinimum", 0},
    {"exclusiveMinimum", "number", "maximum", 0}, {"exclusiveMaximum", "number", "minimum", 0},
};

Json any_of(Schemas ways) {
  if (ways.empty()) return false;
  return {{"anyOf", std::move(ways)}};
}

// The types that are not among those of `schema`; integers are numbers.
Json other_types(const Json& schema, Place place) {
  const std::vector<std::string> types = types_of(schema, place);
  const auto has = [&](const char* type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  Json others = Json::array();
  for (const char* type : {"object", "array", "string", "number", "boolean", "null"}) {
    const bool is_excluded = has(type) || (type == std::string_view("number") && has("integer"));
    if (!is_excluded) others.push_back(type);
  }
  return others;
}

// Objects that have the property `name`, of `content`.
Json with_property(const std::string& name, const Json& content) {
  Json schema = {{"type", "object"}, {"required", Json::array({name})}};
  schema["properties"][name] = content;
  return schema;
}

Json without_property(const std::string& name) {
  Json schema = {{"type", "object"}};
  schema["properties"][name] = false;
  return schema;
}

Schemas negated_number(const Opposite& one, const Json& schema, const std::string& key,
                       Place place) {
  Json bound = schema[key];
  if (!bound.is_number()) {
    malformed(place, key, ": expected a number, found ", io::describe(&bound));
  }
  if (one.step != 0) {
    const int64_t count = int64_t{*count_member(schema, key.c_str(), place)} + one.step;
    if (count < 0) return {};
    bound = count;
  }
  Json opposite = {{"type", one.type}};
  opposite[one.opposite] = bound;
  return {opposite};
}

// What is excluded by one keyword of `schema`.
Schemas negated_keyword(const Json& schema, const std::string& key, Place place) {
  const Json& value = schema[key];
  const std::string where = place + "/" + key;
  Json excluding = Json::object();
  if (key == "const") excluding["not"]["enum"] = Json::array({value});
  if (key == "enum") excluding["not"]["enum"] = *array_member(schema, "enum", place);
  if (key == "$ref") excluding["not"]["$ref"] = value;
  if (key == "not") excluding = value;
  if (key == "not" || !excluding.empty()) return {excluding};
  for (const Opposite& one : kOpposites) {
    if (one.keyword == key) return negated_number(one, schema, key, place);
  }
  Schemas ways;
  if (key == "type") {
    const Json others = other_types(schema, place);
    if (!others.empty()) ways.push_back({{"type", others}});
  } else if (key == "required") {
    for (const Json& name : value) ways.push_back(without_property(text_of(name, where)));
  } else if (key == "properties") {
    for (const auto& [name, content] : object_member(schema, "properties", place)->items()) {
      for (const Json& one : negated(content, where)) ways.push_back(with_property(name, one));
    }
  } else if (key == "allOf") {
    for (const Json& part : *array_member(schema, "allOf", place)) {
      for (Json& one : negated(part, where)) ways.push_back(std::move(one));
    }
  } else if (key == "anyOf" || key == "oneOf") {
    Json parts = Json::array();
    for (const Json& part : *array_member(schema, key.c_str(), place)) {
      parts.push_back(any_of(negated(part, where)));
    }
    ways.push_back({{"allOf", parts}});
  } else if (key == "items" && !value.is_array()) {
    ways.push_back({{"type", "array"}, {"contains", any_of(negated(value, where))}});
  } else {
    unsupported(place, "what is not so is not known of the keyword ", quoted(key),
                ", as not and if need it; leave them out, and check the values yourself");
  }
  return ways;
}

}  // namespace

Schemas negated(const Json& schema, Place place) {
  if (schema.is_boolean()) return schema == true ? Schemas{} : Schemas{Json::object()};
  if (!schema.is_object()) {
    malformed(place, "expected a schema, found ", io::describe(&schema));
  }
  check_keywords(schema, place);
  Schemas ways;
  for (const auto& [key, value] : schema.items()) {
    if (is_annotation(key) || key == "nullable") continue;  // of the type
    for (Json& one : negated_keyword(schema, key, place)) ways.push_back(std::move(one));
  }
  return ways;
}

bool excludes_values(const Json& schema) {
  const Json* excluded = io::find(schema, "not");
  return excluded && excluded->is_object() && excluded->size() == 1 && excluded->contains("enum") &&
         !io::find(schema, "enum") && !io::find(schema, "const");
}

Json without_not(const Json& schema, Place place) {
  const std::string where = place + "/not";
  Json rest = schema;
  rest.erase("not");
  const Schemas ways = negated(schema["not"], where);
  const bool is_list = ways.size() == 1 && io::find(ways[0], "not") && says_only(ways[0], {"not"});
  if (!is_list || !io::find(ways[0]["not"], "enum")) {
    return merge_schemas(rest, any_of(ways), place);
  }
  if (!io::find(rest, "enum") && !io::find(rest, "const")) {
    rest["not"] = ways[0]["not"];
    return rest;
  }
  const Json& listed = ways[0]["not"]["enum"];
  Json left = Json::array();
  const Json* constant = io::find(rest, "const");
  for (const Json& value : constant ? Json::array({*constant}) : rest["enum"]) {
    if (std::find(listed.begin(), listed.end(), value) == listed.end()) left.push_back(value);
  }
  rest.erase("const");
  rest["enum"] = left;
  return left.empty() ? Json(false) : rest;
}

bool has_conditions(const Json& schema) {
  return io::find(schema, "if") || io::find(schema, "then") || io::find(schema, "else") ||
         std::any_of(std::begin(kDependencies), std::end(kDependencies),
                     [&](const char* key) { return io::find(schema, key) != nullptr; });
}

Schemas take_conditions(Json& schema, Place place) {
  Schemas all;
  if (const Json* condition = io::find(schema, "if")) {
    const auto both = [&](const Json& one, const char* key) {
      const Json* other = io::find(schema, key);
      return other ? Json{{"allOf", Json::array({one, *other})}} : one;
    };
    Schemas ways = {both(*condition, "then")};
    for (const Json& one : negated(*condition, place + "/if")) ways.push_back(both(one, "else"));
    all.push_back(any_of(std::move(ways)));
  }
  for (const char* key : {"if", "then", "else"}) schema.erase(key);
  for (const char* key : kDependencies) {
    if (const Json* dependencies = object_member(schema, key, place)) {
      for (const auto& [name, needed] : dependencies->items()) {
        const Json rest = needed.is_array() ? Json{{"required", needed}} : needed;
        all.push_back(any_of({without_property(name), rest}));
      }
    }
    schema.erase(key);
  }
  return all;
}

}  // namespace lumen::text::grammar
