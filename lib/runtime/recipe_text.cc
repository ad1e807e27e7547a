// Recipes written out: as JSON, as TOML, and the schema of all of them.
#include <map>

#include "lib/base/strings.h"
#include "lib/io/toml.h"
#include "lib/runtime/recipe.h"
#include "lib/runtime/recipe_keys.h"

namespace lumen::runtime {
namespace {

using io::Json;

// The value of `key` if it is to be shown.
Json shown(const RecipeTable& table, const RecipeKey& key) {
  return table.applies(key) ? key.get() : Json();
}

// Tables bound to a copy, since binding wants something that can be changed.
std::vector<RecipeTable> tables_of(Recipe& copy) {
  return recipe_tables(copy);
}

std::string header(const RecipeTable& table) {
  const std::string name = table.name.substr(0, table.name.find('['));
  return table.repeated ? "[[" + name + "]]" : "[" + name + "]";
}

Json type_schema(const RecipeKey& key) {
  Json schema = Json::object();
  switch (key.type) {
    case KeyType::kInteger:
      schema["type"] = "integer";
      break;
    case KeyType::kNumber:
      schema["type"] = "number";
      break;
    case KeyType::kBoolean:
      schema["type"] = "boolean";
      break;
    case KeyType::kDuration:
      schema["type"] = {"number", "string"};
      break;
    case KeyType::kText:
      schema["type"] = "string";
      break;
  }
  const KeyLimits& limits = key.limits;
  if (!limits.choices.empty()) schema["enum"] = limits.choices;
  const auto bound = [&](const char* name, double value) {
    if (std::abs(value) > 1e300) return;
    if (key.type == KeyType::kInteger) {
      schema[name] = static_cast<int64_t>(value);
    } else {
      schema[name] = value;
    }
  };
  bound(limits.above_min ? "exclusiveMinimum" : "minimum", limits.min);
  bound("maximum", limits.max);
  return schema;
}

Json key_schema(const RecipeKey& key) {
  Json schema = Json::object();
  schema["description"] = key.help;
  const Json element = type_schema(key);
  if (key.list) {
    Json list = {{"type", "array"}, {"items", element}};
    if (key.limits.min_items > 0) list["minItems"] = key.limits.min_items;
    if (key.limits.max_items < 1'000'000) list["maxItems"] = key.limits.max_items;
    schema["anyOf"] = Json::array({list, element});
  } else {
    schema.update(element);
  }
  const Json value = key.get();
  if (!value.is_null()) schema["default"] = value;
  return schema;
}

}  // namespace

Json to_json(const Recipe& recipe) {
  Recipe copy = recipe;
  Json out = Json::object();
  for (const RecipeTable& table : tables_of(copy)) {
    for (const RecipeKey& key : table.keys) {
      const Json value = shown(table, key);
      if (!value.is_null()) out[Json::json_pointer(table.pointer + "/" + key.name)] = value;
    }
  }
  return out;
}

std::string to_toml(const Recipe& recipe) {
  Recipe copy = recipe;
  std::string out;
  for (const RecipeTable& table : tables_of(copy)) {
    std::string lines;
    for (const RecipeKey& key : table.keys) {
      const Json value = shown(table, key);
      if (value.is_null()) continue;
      std::string line = key.name + " = " + io::toml_value(value);
      if (line.size() < 32) line.resize(32, ' ');
      lines += line + "  # " + key.help + "\n";
    }
    if (lines.empty()) continue;
    if (!table.name.empty()) out += "\n# " + table.help + "\n" + header(table) + "\n";
    out += lines;
  }
  return out;
}

Json recipe_schema() {
  Recipe recipe;
  recipe.data.train.resize(1);
  recipe.data.eval.resize(1);
  recipe.optimizer.groups.resize(1);
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "Lumen recipe"},
                 {"type", "object"},
                 {"additionalProperties", false},
                 {"properties", Json::object()}};
  for (const RecipeTable& table : recipe_tables(recipe)) {
    // "/data/train/0" → the schema of an element of data's property train.
    Json* node = &schema;
    const std::string name = table.name.substr(0, table.name.find('['));
    for (size_t begin = 0; begin < name.size();) {
      const size_t end = std::min(name.find('.', begin), name.size());
      node = &(*node)["properties"][name.substr(begin, end - begin)];
      begin = end + 1;
    }
    Json keys = Json::object();
    for (const RecipeKey& key : table.keys) keys[key.name] = key_schema(key);
    Json* object = node;
    if (table.repeated) {
      *node = {{"description", table.help}, {"type", "array"}, {"items", Json::object()}};
      object = &(*node)["items"];
    } else if (!table.name.empty()) {
      (*node)["description"] = table.help;
    }
    (*object)["type"] = "object";
    (*object)["additionalProperties"] = false;
    (*object)["properties"].update(keys);
  }
  return schema;
}

std::vector<std::string> incompatible_keys(const Json& before, const Recipe& after) {
  Recipe copy = after;
  std::vector<std::string> differences;
  for (const RecipeTable& table : tables_of(copy)) {
    for (const RecipeKey& key : table.keys) {
      if (key.may_change_flag) continue;
      const Json now = shown(table, key);
      const Json::json_pointer pointer(table.pointer + "/" + key.name);
      const Json then = before.contains(pointer) ? before[pointer] : Json();
      if (now == then) continue;
      const std::string path = table.name.empty() ? key.name : table.name + "." + key.name;
      differences.push_back(str(path, " is ", then.is_null() ? "absent" : io::toml_value(then),
                                " there and ", now.is_null() ? "absent" : io::toml_value(now),
                                " here"));
    }
  }
  return differences;
}

}  // namespace lumen::runtime
