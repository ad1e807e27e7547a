#include "lib/runtime/training/recipe_keys.h"

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/fields.h"
#include "lib/base/strings.h"
#include "lib/runtime/training/recipe_table.h"

namespace lumen::runtime {
namespace {

using io::Json;

std::string range_text(const KeyLimits& limits) {
  const bool has_min = std::isfinite(limits.min), has_max = std::isfinite(limits.max);
  std::string out;
  if (has_min) out += str(limits.above_min ? " above " : " from ", limits.min);
  if (has_max) out += str(limits.above_min ? " up to " : has_min ? " to " : " up to ", limits.max);
  return out;
}

std::string element_text(KeyType type, const KeyLimits& limits) {
  switch (type) {
    case KeyType::kInteger:
      return "a whole number" + range_text(limits);
    case KeyType::kNumber:
      return "a number" + range_text(limits);
    case KeyType::kBoolean:
      return "true or false";
    case KeyType::kDuration:
      return "a time such as \"90s\", \"30m\" or \"2h\", or seconds";
    case KeyType::kText:
      break;
  }
  if (!limits.choices.empty()) return "one of " + join(limits.choices, ", ");
  return limits.min_length > 0 ? "a text in quotes that is not empty" : "a text in quotes";
}

bool in_range(double value, const KeyLimits& limits) {
  return value <= limits.max && (limits.above_min ? value > limits.min : value >= limits.min);
}

// Seconds of "90s", "30m", "2h", "1d".
bool parse_duration(const Json& value, double& seconds) {
  if (value.is_number()) {
    seconds = value.get<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const auto text = value.get<std::string>();
  const std::pair<char, double> units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  for (const auto& [letter, unit] : units) {
    if (text.empty() || text.back() != letter) continue;
    if (!parse_number(std::string_view(text).substr(0, text.size() - 1), seconds)) return false;
    seconds *= unit;
    return true;
  }
  return false;
}

}  // namespace

void refuse_value(const RecipeKey& key, const Json& found) {
  fail(ErrorKind::kMalformed, key.name, ": expected ", expected(key), ", found ",
       io::describe(&found));
}

bool read_element(const Json& value, const RecipeKey& key, int64_t& out) {
  if (value.is_number_float()) {  // 1e5 is meant as 100000
    const auto number = value.get<double>();
    if (number != std::floor(number) || std::fabs(number) > 9e15) return false;
    out = static_cast<int64_t>(number);
  } else if (value.is_number()) {
    out = value.get<int64_t>();
  } else {
    return false;
  }
  return in_range(static_cast<double>(out), key.limits);
}

bool read_element(const Json& value, const RecipeKey& key, double& out) {
  if (key.type == KeyType::kDuration) {
    if (!parse_duration(value, out)) return false;
  } else if (value.is_number()) {
    out = value.get<double>();
  } else {
    return false;
  }
  return std::isfinite(out) && in_range(out, key.limits);
}

bool read_element(const Json& value, const RecipeKey&, bool& out) {
  if (!value.is_boolean()) return false;
  out = value.get<bool>();
  return true;
}

bool read_element(const Json& value, const RecipeKey& key, std::string& out) {
  if (!value.is_string()) return false;
  out = value.get<std::string>();
  require_utf8(out, key.name);  // of --set; a recipe is written again as TOML and JSON
  if (out.size() < key.limits.min_length) return false;
  const auto& choices = key.limits.choices;
  return choices.empty() || std::find(choices.begin(), choices.end(), out) != choices.end();
}

RecipeKey& RecipeKey::only_for(std::vector<std::string> values) {
  used_by = std::move(values);
  return *this;
}

RecipeKey& RecipeKey::only_with(std::string key) {
  partner = std::move(key);
  return *this;
}

RecipeKey& RecipeKey::may_change() {
  may_change_flag = true;
  return *this;
}

bool RecipeTable::is_selected(const RecipeKey& key) const {
  if (key.used_by.empty() || selector.empty()) return true;
  const std::vector<std::string> values = selected();
  if (values.empty() && name == "data") return true;  // an error of the format itself
  return std::find_first_of(key.used_by.begin(), key.used_by.end(), values.begin(), values.end()) !=
         key.used_by.end();
}

bool RecipeTable::has_partner(const RecipeKey& key) const {
  const auto partner = std::find_if(keys.begin(), keys.end(), [&](const RecipeKey& other) {
    return !key.partner.empty() && other.name == key.partner;
  });
  if (partner == keys.end()) return true;
  const Json value = partner->get();
  return !(value.is_null() || value == false || value == 0);
}

std::string RecipeTable::path_of(const std::string& key) const {
  return name.empty() ? key : name + "." + key;
}

std::string RecipeTable::header() const {
  const std::string plain = name.substr(0, name.find('['));
  return repeated ? "[[" + plain + "]]" : "[" + plain + "]";
}

const RecipeKey* find_key(const std::vector<RecipeTable>& tables, const std::string& path) {
  for (const RecipeTable& table : tables) {
    for (const RecipeKey& key : table.keys) {
      if (path == table.path_of(key.name)) return &key;
    }
  }
  return nullptr;
}

std::string expected(const RecipeKey& key) {
  const std::string element = element_text(key.type, key.limits);
  if (!key.list) return element;
  const KeyLimits& limits = key.limits;
  std::string count;
  if (limits.min_items == limits.max_items) {
    count = str(" of ", limits.min_items);
  } else if (limits.max_items != KeyLimits().max_items) {
    count = str(" of ", limits.min_items, " to ", limits.max_items);
  } else if (limits.min_items > 0) {
    count = str(" of at least ", limits.min_items);
  }
  return str("a list", count, ", each ", element);
}

}  // namespace lumen::runtime
