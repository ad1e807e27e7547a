#include "lib/text/grammar/schema_not.h"

#include <algorithm>

namespace lumen::text::grammar {
namespace {

using io::Json;

[[noreturn]] void refuse_not(Place place) {
  unsupported(place, "not is supported only of {}, of a type, and, beside enum, of values (const ",
              "or enum); leave it out, and check the values yourself");
}

// The types that are left; integers are numbers.
Json other_types(const Json& schema, const Json& excluded, Place place) {
  std::vector<std::string> types = types_of(schema, place);
  if (types.empty()) types = {"object", "array", "string", "number", "boolean", "null"};
  const std::vector<std::string> others = types_of(excluded, place + "/not");
  const auto is_in = [](const std::vector<std::string>& list, const char* type) {
    return std::find(list.begin(), list.end(), type) != list.end();
  };
  if (is_in(others, "integer") && !is_in(others, "number") && is_in(types, "number")) {
    refuse_not(place);
  }
  Json left = Json::array();
  for (const std::string& type : types) {
    const bool is_excluded =
        is_in(others, type.c_str()) || (type == "integer" && is_in(others, "number"));
    if (!is_excluded) left.push_back(type);
  }
  return left;
}

}  // namespace

Json without_not(const Json& schema, Place place) {
  const Json& excluded = schema["not"];
  Json rest = schema;
  rest.erase("not");
  if (excluded == false) return rest;
  if (excluded == true) return false;
  if (!excluded.is_object()) {
    malformed(place, "not: expected a schema, found ", io::describe(&excluded));
  }
  if (says_only(excluded, {})) return false;
  check_keywords(excluded, place + "/not");
  if (says_only(excluded, {"type"})) {
    rest["type"] = other_types(rest, excluded, place);
    rest.erase("nullable");
    return rest["type"].empty() ? Json(false) : rest;
  }
  const Json* values = array_member(rest, "enum", place);
  if (!values || !says_only(excluded, {"enum", "const"}) || excluded.size() != 1) refuse_not(place);
  const Json* constant = io::find(excluded, "const");
  const Json listed =
      constant ? Json::array({*constant}) : *array_member(excluded, "enum", place + "/not");
  Json left = Json::array();
  for (const Json& value : *values) {
    if (std::find(listed.begin(), listed.end(), value) == listed.end()) left.push_back(value);
  }
  rest["enum"] = left;
  return left.empty() ? Json(false) : rest;
}

}  // namespace lumen::text::grammar
