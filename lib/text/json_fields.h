// Members of the JSON objects in tokenizer.json that several kinds of component share.
#pragma once

#include <memory>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/json.h"

namespace lumen::text {

// The components of the array `key`, each made by `parse`; JSON null elements are refused.
template <typename Component>
std::vector<std::unique_ptr<Component>> parse_sequence(
    const io::Json& json, const char* key, std::unique_ptr<Component> (*parse)(const io::Json&)) {
  const io::Json* array = io::find(json, key);
  if (array == nullptr || !array->is_array()) {
    fail(ErrorKind::kMalformed, "'", key, "' is ", io::describe(array), ", expected an array");
  }
  std::vector<std::unique_ptr<Component>> parts;
  for (const io::Json& element : *array) {
    if (!element.is_object()) {
      fail(ErrorKind::kMalformed, "an element of '", key, "' is ", io::describe(&element),
           ", expected an object");
    }
    parts.push_back(parse(element));
  }
  return parts;
}

// The one character that `key` must hold.
uint32_t get_character(const io::Json& json, const char* key, std::string_view fallback);

}  // namespace lumen::text
