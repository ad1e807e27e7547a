// Recipes written out: as JSON, as TOML, and the schema of all of them.
#include <algorithm>
#include <map>

#include "lib/base/strings.h"
#include "lib/io/toml.h"
#include "lib/runtime/tool/command_docs.h"
#include "lib/runtime/training/recipe.h"
#include "lib/runtime/training/recipe_keys.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

using io::Json;

// The value of `key` if it is to be shown.
Json shown(const RecipeTable& table, const RecipeKey& key) {
  return table.applies(key) ? key.get() : Json();
}

// visit(table, key, value) for every key, the value as shown. Tables are bound to a copy, since
// binding wants something that can be changed.
template <class Visit>
void for_each_key(const Recipe& recipe, Visit&& visit) {
  Recipe copy = recipe;
  for (const RecipeTable& table : recipe_tables(copy)) {
    for (const RecipeKey& key : table.keys) visit(table, key, shown(table, key));
  }
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
      schema["pattern"] = "^[0-9.]+([eE][-+]?[0-9]+)?[smhd]$";
      break;
    case KeyType::kText:
      schema["type"] = "string";
      break;
  }
  const KeyLimits& limits = key.limits;
  if (!limits.choices.empty()) schema["enum"] = limits.choices;
  if (limits.min_length > 0) schema["minLength"] = limits.min_length;
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
    if (key.limits.min_items > 1) {
      schema.update(list);
    } else {
      schema["anyOf"] = Json::array({list, element});
    }
  } else {
    schema.update(element);
  }
  const Json value = key.get();
  if (!value.is_null()) schema["default"] = value;
  return schema;
}

constexpr const char* kManBegin = R"(.SH NAME
lumen\-train.toml \- recipe of a network and how it is trained
.SH DESCRIPTION
A recipe is a TOML file that
.BR lumen\-train (1)
reads. Every key has one meaning and is checked; an unknown one is an error. A key that is left out
has its default, given in parentheses or below.
.B lumen\-train NAME \-\-print\-config
prints a recipe with all of them filled in, and
.B \-\-set TABLE.KEY=VALUE
changes one. Durations are seconds, or a text such as "90s", "30m", "2h".
)";
constexpr const char* kManEnd = R"(.SH EXAMPLES
.nf
[model]
type = "mlp"
hidden = [128]

[[data.train]]
format = "digits"

[train]
epochs = 5
.fi
.SH "SEE ALSO"
.BR lumen\-train (1)
)";

// All tables, one element of those that are repeated.
std::vector<RecipeTable> every_table(Recipe& recipe) {
  recipe.data.train.resize(1);
  recipe.data.eval.resize(1);
  recipe.optimizer.groups.resize(1);
  recipe.lora.groups.resize(1);
  return recipe_tables(recipe);
}

// What `key` of `table` takes, its default, and what it belongs to.
std::string key_sentence(const RecipeTable& table, const RecipeKey& key) {
  std::string out = "Takes " + expected(key);
  const Json value = key.get();
  if (!value.is_null() && value != "") out += "; default " + io::toml_value(value);
  if (!key.used_by.empty()) out += str("; for ", table.selector, " ", join(key.used_by, ", "));
  if (!key.partner.empty()) out += "; with " + key.partner;
  return out + ".";
}

}  // namespace

Json to_json(const Recipe& recipe) {
  Json out = Json::object();
  for_each_key(recipe, [&](const RecipeTable& table, const RecipeKey& key, const Json& value) {
    if (!value.is_null()) out[Json::json_pointer(table.pointer + "/" + key.name)] = value;
  });
  return out;
}

std::string to_toml(const Recipe& recipe) {
  Recipe copy = recipe;
  std::string out;
  for (const RecipeTable& table : recipe_tables(copy)) {
    std::string lines;
    for (const RecipeKey& key : table.keys) {
      const Json value = shown(table, key);
      if (value.is_null()) continue;
      std::string line = key.name + " = " + io::toml_value(value);
      if (line.size() < 32) line.resize(32, ' ');
      lines += line + "  # " + key.help + "\n";
    }
    if (lines.empty()) continue;
    if (!table.name.empty()) out += "\n# " + table.help + "\n" + table.header() + "\n";
    out += lines;
  }
  return out;
}

Json recipe_schema() {
  Recipe recipe;
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "Lumen recipe"},
                 {"type", "object"},
                 {"additionalProperties", false},
                 {"properties", Json::object()}};
  for (const RecipeTable& table : every_table(recipe)) {
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
    if (!table.name.empty()) (*node)["description"] = table.help;
    if (table.repeated) {  // one table may stand for a list of one
      const Json element = {
          {"type", "object"}, {"additionalProperties", false}, {"properties", keys}};
      const Json list = {{"type", "array"}, {"items", element}};
      (*node)["anyOf"] = Json::array({list, element});
      continue;
    }
    (*node)["type"] = "object";
    (*node)["additionalProperties"] = false;
    (*node)["properties"].update(keys);
  }
  return schema;
}

std::string recipe_man_page() {
  std::string version = version_line("Lumen");
  version.pop_back();
  std::string out = ".TH lumen\\-train.toml 5 \"\" \"" + version + "\"\n" + kManBegin;
  Recipe recipe;
  for (const RecipeTable& table : every_table(recipe)) {
    const std::string title = table.name.empty() ? "Top level" : table.header();
    out += ".SH \"" + roff(title) + "\"\n";
    out += roff(sentence(table.help)) + "\n";
    for (const RecipeKey& key : table.keys) {
      out += ".TP\n.B " + roff(key.name) + "\n" + roff(sentence(key.help)) + "\n" +
             roff(key_sentence(table, key)) + "\n";
    }
  }
  return out + kManEnd;
}

Json step_settings(const Recipe& recipe) {
  Json settings = Json::object();
  for_each_key(recipe, [&](const RecipeTable& table, const RecipeKey& key, const Json& value) {
    if (!key.may_change_flag && !value.is_null()) settings[table.path_of(key.name)] = value;
  });
  return settings;
}

std::vector<std::string> incompatible_keys(const Json& before, const Recipe& after) {
  std::vector<std::string> differences;
  Recipe defaults;
  const std::vector<RecipeTable> tables = recipe_tables(defaults);
  for_each_key(after, [&](const RecipeTable& table, const RecipeKey& key, const Json& now) {
    if (key.may_change_flag || !table.applies(key)) return;  // what decides it differs itself
    const Json::json_pointer pointer(table.pointer + "/" + key.name);
    const Json then = before.contains(pointer) ? before[pointer] : Json();
    if (now == then) return;
    // Keys that came later are not in a checkpoint of an older version, which did as by default.
    const RecipeKey* const usual = find_key(tables, table.path_of(key.name));
    if (then.is_null() && usual != nullptr && now == usual->get()) return;
    differences.push_back(str(table.path_of(key.name), " is ",
                              then.is_null() ? "absent" : io::toml_value(then), " there and ",
                              now.is_null() ? "absent" : io::toml_value(now), " here"));
  });
  // Elements that are gone have no table to ask.
  const struct {
    const char *name, *pointer;
    size_t count;
  } lists[] = {{"data.train", "/data/train", after.data.train.size()},
               {"data.eval", "/data/eval", after.data.eval.size()},
               {"optimizer.groups", "/optimizer/groups", after.optimizer.groups.size()},
               {"lora.groups", "/lora/groups", after.lora.groups.size()}};
  for (const auto& list : lists) {
    const Json::json_pointer place(list.pointer);
    const size_t then = before.contains(place) ? before[place].size() : 0;
    if (then > list.count) {
      differences.push_back(str(list.name, " has ", then, " there and ", list.count, " here"));
    }
  }
  return differences;
}

}  // namespace lumen::runtime
