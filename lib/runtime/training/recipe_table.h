// How keys of a recipe are bound to the members that hold their values. Private to recipe_keys.cc
// and recipe_tables.cc.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lib/runtime/training/recipe_keys.h"

namespace lumen::runtime {

inline constexpr double kMany = 1e15;  // more steps, samples or tokens than any run has

// Reads one element; false if it is not what `key` takes.
bool read_element(const io::Json& value, const RecipeKey& key, int64_t& out);
bool read_element(const io::Json& value, const RecipeKey& key, double& out);
bool read_element(const io::Json& value, const RecipeKey& key, bool& out);
bool read_element(const io::Json& value, const RecipeKey& key, std::string& out);

// Throws Error(kMalformed): `found` is not what `key` takes.
[[noreturn]] void refuse_value(const RecipeKey& key, const io::Json& found);

// Checks `value` and stores it; a value that is not what `key` takes is refused.
template <typename T>
void store_value(const io::Json& value, const RecipeKey& key, T& variable) {
  T read_value{};
  if (!read_element(value, key, read_value)) refuse_value(key, value);
  variable = std::move(read_value);
}
template <typename T>
void store_value(const io::Json& value, const RecipeKey& key, std::optional<T>& variable) {
  T read_value{};
  if (!read_element(value, key, read_value)) refuse_value(key, value);
  variable = std::move(read_value);
}
template <typename T>
void store_value(const io::Json& value, const RecipeKey& key, std::vector<T>& variable) {
  const io::Json list = value.is_array() ? value : io::Json::array({value});
  std::vector<T> elements;
  for (const io::Json& element : list) {
    T read_value{};
    if (!read_element(element, key, read_value)) refuse_value(key, element);
    elements.push_back(std::move(read_value));
  }
  if (elements.size() < key.limits.min_items || elements.size() > key.limits.max_items) {
    refuse_value(key, value);
  }
  variable = std::move(elements);
}

// What RecipeKey::get gives.
template <typename T>
io::Json member_json(const T& variable) {
  return variable;
}
template <typename T>
io::Json member_json(const std::optional<T>& variable) {
  return variable ? io::Json(*variable) : io::Json();
}
template <typename T>
io::Json member_json(const std::vector<T>& variable) {
  return variable.empty() ? io::Json() : io::Json(variable);
}

template <typename T>
inline constexpr KeyType kKeyTypeOf = KeyType::kText;
template <>
inline constexpr KeyType kKeyTypeOf<int64_t> = KeyType::kInteger;
template <>
inline constexpr KeyType kKeyTypeOf<double> = KeyType::kNumber;
template <>
inline constexpr KeyType kKeyTypeOf<bool> = KeyType::kBoolean;

template <typename T>
struct KeyMember {
  using Element = T;
  static constexpr bool kList = false, kOptional = false;
};
template <typename T>
struct KeyMember<std::optional<T>> {
  using Element = T;
  static constexpr bool kList = false, kOptional = true;
};
template <typename T>
struct KeyMember<std::vector<T>> {
  using Element = T;
  static constexpr bool kList = true, kOptional = false;
};

// A table in the making.
class TableBuilder {
 public:
  TableBuilder(std::string name, std::string help) {
    table_.name = std::move(name);
    table_.help = std::move(help);
    for (const char c : table_.name.empty() ? "" : "." + table_.name) {
      if (c != ']') table_.pointer += c == '.' || c == '[' ? '/' : c;
    }
  }

  template <typename T>
  RecipeKey& key(const char* name, T& variable, KeyLimits limits, const char* help) {
    RecipeKey& key = table_.keys.emplace_back();
    key.name = name;
    key.help = help;
    key.type = kKeyTypeOf<typename KeyMember<T>::Element>;
    key.list = KeyMember<T>::kList;
    key.optional = KeyMember<T>::kOptional;
    key.limits = std::move(limits);
    key.get = [&variable] { return member_json(variable); };
    key.clear = [&variable, initial = variable] { variable = initial; };
    // The key itself may move with its table, so the check has a copy.
    RecipeKey check = key;
    key.set = [&variable, check = std::move(check)](const io::Json& value) {
      store_value(value, check, variable);
    };
    return key;
  }

  RecipeKey& duration(const char* name, std::optional<double>& variable, const char* help) {
    RecipeKey& key = this->key(name, variable, {.min = 0, .max = kMany, .above_min = true}, help);
    key.type = KeyType::kDuration;
    RecipeKey check = key;
    key.set = [&variable, check = std::move(check)](const io::Json& value) {
      store_value(value, check, variable);
    };
    return key;
  }

  TableBuilder& select_by(const char* selector, const std::optional<std::string>& variable) {
    table_.selector = selector;
    table_.selected = [&variable] {
      return variable ? std::vector{*variable} : std::vector<std::string>{};
    };
    return *this;
  }
  TableBuilder& select_by(const char* selector, const std::string& variable) {
    table_.selector = selector;
    table_.selected = [&variable] { return std::vector{variable}; };
    return *this;
  }
  TableBuilder& repeat() {
    table_.repeated = true;
    return *this;
  }
  RecipeTable take() { return std::move(table_); }

 private:
  RecipeTable table_;
};

}  // namespace lumen::runtime
