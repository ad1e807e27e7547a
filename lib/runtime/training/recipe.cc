#include "lib/runtime/training/recipe.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/io/toml.h"
#include "lib/runtime/tool/foreign_options.h"
#include "lib/runtime/training/recipe_check.h"
#include "lib/runtime/training/recipe_keys.h"

namespace lumen::runtime {
namespace {

using io::Json;

// Of the keys of one line at most one has a value; one that is overridden replaces the others.
const std::vector<std::vector<std::string>> kAlternatives = {
    {"train.epochs", "train.steps", "train.tokens", "train.time"},
    {"model.type", "model.path"},
    {"tokenizer.type", "tokenizer.path"},
};

// What a recipe writes as [[data.train]]: lists of tables.
const std::vector<std::string> kLists = {"data.train", "data.eval", "optimizer.groups",
                                         "lora.groups"};

// "data.train[0].path" → "/data/train/0/path".
std::string pointer_of(const std::string& name) {
  std::string out = name.empty() ? "" : "/";
  for (const char c : name) {
    if (c != ']') out += c == '.' || c == '[' ? '/' : c;
  }
  return out;
}

// The lists of tables of `recipe` get as many elements as `root` has.
void make_room(const Json& root, Recipe& recipe) {
  const auto count = [&](const char* pointer) -> size_t {
    const Json::json_pointer place(pointer);
    if (!root.contains(place)) return 0;
    return root[place].is_array() ? root[place].size() : 1;
  };
  recipe.data.train.resize(count("/data/train"));
  recipe.data.eval.resize(count("/data/eval"));
  recipe.optimizer.groups.resize(count("/optimizer/groups"));
  recipe.lora.groups.resize(count("/lora/groups"));
}

// A recipe with one of every table.
Recipe complete_set() {
  Recipe recipe;
  recipe.data.train.resize(1);
  recipe.data.eval.resize(1);
  recipe.optimizer.groups.resize(1);
  recipe.lora.groups.resize(1);
  return recipe;
}

// Whether brackets hold digits and end a part: "data.train[0].path".
bool has_sound_brackets(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == ']') return false;
    if (name[i] != '[') continue;
    const size_t close = name.find_first_not_of("0123456789", i + 1);
    if (close == name.npos || close == i + 1 || name[close] != ']') return false;
    if (close + 1 < name.size() && name[close + 1] != '.') return false;
    i = close;
  }
  return true;
}

bool is_prefix(const std::string& table, const std::string& name) {
  return table.size() > name.size() && table.starts_with(name) &&
         (table[name.size()] == '.' || table[name.size()] == '[');
}

class Reader {
 public:
  explicit Reader(const RecipeText& source) : source_(source) {
    document_ = io::parse_toml(source.text, source.place);
    check_lists();  // --set counts their elements
  }

  // Puts the value of "a.b=v" into the document.
  void override_key(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == text.npos || equals == 0) {
      fail(ErrorKind::kUsage, "--set ", quoted(text), ": expected table.key=value");
    }
    const std::string given = text.substr(0, equals), value_text = text.substr(equals + 1);
    if (std::find(kLists.begin(), kLists.end(), given) != kLists.end()) {
      return override_list(given, value_text);
    }
    const std::string name = canonical(given);
    Json value;
    with_kind_usage([&] { value = override_value(name, value_text); }, "--set " + name);
    put(name, value);
    overridden_.insert(name);
  }

  // All tables of a list at once: optimizer.groups=[{match="*", lr_factor=2}].
  void override_list(const std::string& name, const std::string& text) {
    if (first_character(text) != '[') {
      fail(ErrorKind::kUsage, "--set ", name, ": expected tables, [{key = value, …}, …], found ",
           quoted(text), "; a key of theirs is set by --set ", name, ".KEY=VALUE");
    }
    Json list;
    with_kind_usage([&] { list = io::parse_toml_value(text, "value"); }, "--set " + name);
    const bool tables = list.is_array() && std::all_of(list.begin(), list.end(),
                                                       [](const Json& v) { return v.is_object(); });
    if (!tables) {
      fail(ErrorKind::kUsage, "--set ", name, ": expected tables, [{key = value, …}, …], found ",
           io::describe(&list));
    }
    put(name, list);
    overridden_.insert(name);
    for (size_t i = 0; i < list.size(); ++i) {
      for (const auto& [key, value] : list[i].items()) {
        overridden_.insert(str(name, "[", i, "].", key));
      }
    }
  }

  Recipe read() {
    drop_replaced();
    Recipe recipe;
    recipe.directory = source_.directory;
    check_lists();
    make_room(document_.root, recipe);
    std::vector<RecipeTable> tables = recipe_tables(recipe);
    for (const RecipeTable& table : tables) read_table(table, tables, recipe);
    check_selectors(tables, recipe);
    if (recipe.name.empty()) recipe.name = default_name();
    complete(recipe, [this](const std::string& key, const std::string& message) {
      fail_at(key, key + ": " + message);
    });
    return recipe;
  }

 private:
  // Where `name` was given: by --set, or in the file; the nearest table if it was not.
  RecipePlace place_of(std::string name, bool at_key = false) const {
    if (overridden_.count(name)) return {"--set", ErrorKind::kUsage};
    const auto& first = at_key ? document_.keys : document_.values;
    const auto& second = at_key ? document_.values : document_.keys;
    const std::string file = io::place_of(source_.place);
    while (!name.empty()) {
      if (std::find(kLists.begin(), kLists.end(), name) != kLists.end() &&
          overridden_.count(name)) {
        return {"--set", ErrorKind::kUsage};  // an element of a list that was given as a whole
      }
      for (const auto* places : {&first, &second}) {
        const auto found = places->find(pointer_of(name));
        if (found == places->end()) continue;
        return {str(file, ":", found->second.line, ":", found->second.column)};
      }
      const size_t cut = name.find_last_of(".[");
      name.resize(cut == name.npos ? 0 : cut);
    }
    return {file + ":1:1"};
  }

  [[noreturn]] void fail_at(const std::string& name, const std::string& message,
                            bool at_key = false) const {
    const RecipePlace place = place_of(name, at_key);
    if (place.kind == ErrorKind::kUsage) {
      const bool says_name = message.starts_with(name + ": ") || message.starts_with(name + " ");
      fail(place.kind, "--set ", says_name ? "" : name + ": ", message);
    }
    fail(place.kind, place.text, ": ", message);
  }

  template <typename Body>
  static void with_kind_usage(Body body, const std::string& place) {
    try {
      body();
    } catch (const Error& error) {
      fail(ErrorKind::kUsage, place, ": ", error.what());
    }
  }

  // The name of a key as the tables have it: "data.train.path" is that of the only element.
  std::string canonical(const std::string& name) {
    if (!has_sound_brackets(name)) {
      fail(ErrorKind::kUsage, "--set ", quoted(name), ": there is no such key; one of a list is ",
           "written data.train[0].path");
    }
    std::string plain;  // data.train.0.path
    for (const char c : name) {
      if (c != ']') plain += c == '[' ? '.' : c;
    }
    std::string out;
    for (size_t begin = 0; begin <= plain.size();) {
      const size_t end = std::min(plain.find('.', begin), plain.size());
      const std::string part = plain.substr(begin, end - begin);
      const bool list = std::find(kLists.begin(), kLists.end(), out) != kLists.end();
      int64_t index = 0;
      if (list && parse_number(part, index) && index >= 0 && index < 1000) {
        out += str("[", index, "]");
      } else {
        if (list) out += "[0]";
        out += (out.empty() ? "" : ".") + part;
      }
      begin = end + 1;
    }
    Recipe any = complete_set();
    const auto tables = recipe_tables(any);
    if (!find_key(tables, without_index(out))) {
      std::vector<std::string> names;
      for (const RecipeTable& table : tables) {
        for (const RecipeKey& key : table.keys) {
          names.push_back(table.path_of(key.name));
          if (names.back().starts_with(out + ".")) {
            fail(ErrorKind::kUsage, "--set ", quoted(name), ": is a table; expected one of its ",
                 "keys, such as ", names.back());
          }
        }
      }
      fail(ErrorKind::kUsage, "--set ", quoted(name), ": there is no such key",
           suggestion(out, names));
    }
    return out;
  }

  static std::string without_index(std::string name) {
    const size_t open = name.find('['), close = name.find(']');
    if (open != name.npos) name.replace(open, close - open + 1, "[0]");
    return name;
  }

  static std::string suggestion(const std::string& name, const std::vector<std::string>& names) {
    const std::string last = name.substr(name.find_last_of('.') + 1);
    std::vector<std::string> same;  // the right key in another table, or without one
    std::ranges::copy_if(names, std::back_inserter(same), [&](const std::string& other) {
      return other.substr(other.find_last_of('.') + 1) == last;
    });
    std::string near = foreign_recipe_key(last);
    if (near.empty() && same.size() == 1) near = same.front();
    if (near.empty()) near = nearest(name, names);
    if (near.empty() && !same.empty()) near = same.back();
    return near.empty() ? "" : "; did you mean " + near + "?";
  }

  // What is neither a number nor true or false is no TOML at all; the key says what it takes.
  static Json plain_value(const RecipeKey& key, const std::string& text) {
    if (text.find_first_of("[{\"'\n") != text.npos) return io::parse_toml_value(text, "value");
    try {
      return io::parse_toml_value(text, "value");
    } catch (const Error&) {
      fail(ErrorKind::kUsage, "expected ", expected(key), ", found ",
           text.empty() ? "nothing" : quoted(text));
    }
  }

  // Behind blanks; '\0' if there is none.
  static char first_character(const std::string& text) {
    const size_t first = text.find_first_not_of(' ');
    return first == text.npos ? '\0' : text[first];
  }

  // A text may come without quotes.
  static Json override_value(const std::string& name, const std::string& text) {
    Recipe any = complete_set();
    const auto tables = recipe_tables(any);
    const RecipeKey& key = *find_key(tables, without_index(name));
    const bool takes_text = key.type == KeyType::kText || key.type == KeyType::kDuration;
    if (!takes_text) return plain_value(key, text);
    const char c = first_character(text);
    const bool plain = c != '"' && c != '\'' && c != '[';
    if (!plain) return io::parse_toml_value(text, "value");
    double seconds = 0;
    if (key.type == KeyType::kDuration && parse_number(text, seconds)) return seconds;
    return text;
  }

  void put(const std::string& name, const Json& value) {
    Json* node = &document_.root;
    const std::string pointer = pointer_of(name);
    for (size_t begin = 1; begin < pointer.size();) {
      const size_t end = std::min(pointer.find('/', begin), pointer.size());
      const std::string part = pointer.substr(begin, end - begin);
      int64_t index = 0;
      if (node->is_array() || (node->is_null() && parse_number(part, index))) {
        if (node->is_null()) *node = Json::array();
        parse_number(part, index);
        if (static_cast<size_t>(index) > node->size()) {
          fail(ErrorKind::kUsage, "--set ", name, ": there are only ", node->size(), " of them");
        }
        if (static_cast<size_t>(index) == node->size()) node->push_back(Json());
        node = &(*node)[static_cast<size_t>(index)];
      } else {
        if (!node->is_null() && !node->is_object()) {
          fail(ErrorKind::kUsage, "--set ", name, ": the recipe has no table there");
        }
        node = &(*node)[part];
      }
      begin = end + 1;
    }
    *node = value;
  }

  void erase(const std::string& name) {
    const size_t cut = name.find_last_of('.');
    const Json::json_pointer table(pointer_of(name.substr(0, cut)));
    if (document_.root.contains(table) && document_.root[table].is_object()) {
      document_.root[table].erase(name.substr(cut + 1));
    }
  }

  // What the document has as `name`; null if nothing.
  Json value_of(const std::string& name) const {
    const Json::json_pointer place(pointer_of(name));
    return document_.root.contains(place) ? document_.root[place] : Json();
  }

  // What --set replaces.
  void drop_replaced() {
    std::vector<std::vector<std::string>> alternatives = kAlternatives;
    for (const std::string& name : overridden_) {
      if (!name.starts_with("data.train[") && !name.starts_with("data.eval[")) continue;
      const std::string table = name.substr(0, name.find(']') + 1);
      alternatives.push_back({table + ".dataset", table + ".path"});
      // The format was that of what is replaced: a data set has its own, and no file has digits.
      const std::string format = table + ".format";
      const bool digits = value_of(format) == "digits";
      const bool other = name == table + ".dataset" || (name == table + ".path" && digits);
      if (other && !overridden_.count(format)) erase(format);
    }
    for (const auto& names : alternatives) {
      const bool any = std::any_of(names.begin(), names.end(),
                                   [&](const std::string& n) { return overridden_.count(n) > 0; });
      if (!any) continue;
      for (const std::string& name : names) {
        if (!overridden_.count(name)) erase(name);
      }
    }
  }

  // [data.train] instead of [[data.train]] is a list of one.
  void check_lists() {
    for (const std::string& name : kLists) {
      const Json::json_pointer pointer(pointer_of(name));
      const Json::json_pointer parent = pointer.parent_pointer();
      if (!document_.root.contains(parent) || !document_.root[parent].is_object() ||
          !document_.root.contains(pointer)) {
        continue;
      }
      Json& list = document_.root[pointer];
      if (list.is_object()) {
        std::map<std::string, io::TomlPosition> moved;
        for (auto* places : {&document_.keys, &document_.values}) {
          for (const auto& [place, position] : *places) {
            const std::string begin = pointer_of(name) + "/";
            if (!place.starts_with(begin)) continue;
            moved[pointer_of(name) + "/0/" + place.substr(begin.size())] = position;
          }
          places->insert(moved.begin(), moved.end());
        }
        list = Json::array({list});
      }
      if (!list.is_array()) {
        fail_at(name, str(name, ": expected tables, found ", io::describe(&list),
                          "; give the keys of each below a line [[", name, "]]"));
      }
    }
  }

  void read_table(const RecipeTable& table, const std::vector<RecipeTable>& tables,
                  Recipe& recipe) {
    const Json::json_pointer pointer(table.pointer);
    if (!document_.root.contains(pointer)) return;
    const Json& node = document_.root[pointer];
    if (!node.is_object()) {
      fail_at(table.name, str(table.name, ": expected a table, found ", io::describe(&node)));
    }
    for (const auto& [name, value] : node.items()) {
      const std::string path = table.path_of(name);
      const auto is_table = [&](const RecipeTable& other) {
        return other.name == path || is_prefix(other.name, path);
      };
      if (std::any_of(tables.begin(), tables.end(), is_table)) continue;
      if (std::find(kLists.begin(), kLists.end(), path) != kLists.end()) continue;  // it is empty
      const auto key =
          std::find_if(table.keys.begin(), table.keys.end(),
                       [&, &key_name = name](const RecipeKey& k) { return k.name == key_name; });
      if (key == table.keys.end()) fail_unknown(table, name, path, tables);
      try {
        key->set(value);
      } catch (const Error& error) {
        fail_at(path, str(table.name.empty() ? "" : table.name + ".", error.what()));
      }
      recipe.given[path] = place_of(path);
    }
  }

  // "[eval], [log]": the tables that have a key or a table called `name`; "" if none has.
  static std::string owners_of(const std::string& name) {
    Recipe any = complete_set();
    std::vector<std::string> owners;
    for (const RecipeTable& table : recipe_tables(any)) {
      const size_t dot = table.name.find_last_of('.');
      const size_t begin = dot == table.name.npos ? 0 : dot + 1;
      if (!name.empty() && table.name.substr(begin, table.name.find('[') - begin) == name) {
        owners.push_back(begin == 0 ? "the top" : "[" + table.name.substr(0, dot) + "]");
      }
      const bool has = std::any_of(table.keys.begin(), table.keys.end(),
                                   [&](const RecipeKey& key) { return key.name == name; });
      if (has) owners.push_back(table.name.empty() ? "the top" : table.header());
    }
    return join(owners, ", ");
  }

  [[noreturn]] void fail_unknown(const RecipeTable& table, const std::string& name,
                                 const std::string& path, const std::vector<RecipeTable>& tables) {
    std::vector<std::string> names;
    for (const RecipeKey& key : table.keys) names.push_back(key.name);
    for (const RecipeTable& other : tables) {
      if (!is_prefix(other.name, table.name) && !table.name.empty()) continue;
      const std::string rest = other.name.substr(table.name.empty() ? 0 : table.name.size() + 1);
      const std::string sub = rest.substr(0, rest.find_first_of(".["));
      if (!sub.empty()) names.push_back(sub);
    }
    const std::string owners = owners_of(name), foreign = foreign_recipe_key(name),
                      near = foreign.empty() ? nearest(name, names) : foreign;
    fail_at(path,
            str("unknown key ", quoted(name), table.name.empty() ? "" : " in [" + table.name + "]",
                !owners.empty() ? str("; ", name, " belongs to ", owners)
                : near.empty()  ? ""
                                : str("; did you mean ", near, "?")),
            true);
  }

  // A key that goes with another type: an error, but if the type was overridden, no longer meant.
  void check_selectors(const std::vector<RecipeTable>& tables, Recipe& recipe) {
    for (const RecipeTable& table : tables) {
      const auto overrides = [&](const std::string& key) {
        return !key.empty() && overridden_.count(table.path_of(key)) > 0;
      };
      const bool replaced =
          overrides(table.selector) || (table.name == "model" && overrides("path")) ||
          (table.name == "tokenizer" && overrides("path")) ||
          (table.name == "data" &&
           std::any_of(overridden_.begin(), overridden_.end(),
                       [](const std::string& name) { return name.starts_with("data.train["); }));
      for (const RecipeKey& key : table.keys) {
        const std::string path = table.path_of(key.name);
        if (!recipe.given.count(path) || table.applies(key)) continue;
        const bool moot = table.is_selected(key) ? overrides(key.partner) : replaced;
        if (moot && !overridden_.count(path)) {
          key.clear();
          recipe.given.erase(path);
          continue;
        }
        fail_at(path, unused(table, key), true);
      }
    }
  }

  static std::string unused(const RecipeTable& table, const RecipeKey& key) {
    const std::string path = table.path_of(key.name);
    if (table.is_selected(key)) return str(path, " needs ", table.path_of(key.partner));
    const std::vector<std::string> values = table.selected();
    return str(path,
               values.empty() ? str(" needs a ", table.path_of(table.selector))
                              : str(" is not used by ", table.selector, " ", quoted(values[0])),
               "; it goes with ", join(key.used_by, ", "));
  }

  std::string default_name() const {
    std::string name = source_.place.substr(source_.place.find_last_of('/') + 1);
    if (name.ends_with(".toml")) name.resize(name.size() - 5);
    return name.empty() ? "run" : to_valid_utf8(name);
  }

  const RecipeText& source_;
  io::TomlDocument document_;
  std::set<std::string> overridden_;
};

}  // namespace

void fail_at_key(const Recipe& recipe, const std::string& key, const std::string& message) {
  const auto given = recipe.given.find(key);
  if (given == recipe.given.end()) fail(ErrorKind::kMalformed, key, ": ", message);
  const RecipePlace& place = given->second;
  fail(place.kind, place.text, place.kind == ErrorKind::kUsage ? " " : ": ", key, ": ", message);
}

Recipe read_recipe(const RecipeText& source, const std::vector<std::string>& overrides) {
  Reader reader(source);
  for (const std::string& text : overrides) reader.override_key(text);
  return reader.read();
}

}  // namespace lumen::runtime
