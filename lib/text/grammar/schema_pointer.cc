#include "lib/text/grammar/schema_pointer.h"

#include <algorithm>
#include <charconv>

#include "lib/base/strings.h"
#include "lib/text/regex.h"

namespace lumen::text::grammar {
namespace {

using io::Json;

// A step of a JSON pointer in a URI (RFC 6901).
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
      out += text[++i] == '0' ? '~' : '/';
    } else if (text[i] == '%' && i + 2 < text.size() &&
               std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr == &text[i + 1] + 2) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string step(std::string_view key) {
  std::string out = "/";
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

const Json& resolve(const Json& root, const std::string& target, Place place) {
  if (target != "#" && !target.starts_with("#/")) {
    unsupported(place, "$ref ", quoted(target),
                " is not supported: only parts of this schema, like #/$defs/name");
  }
  const Json* here = &root;
  for (size_t pos = 1; pos < target.size();) {
    const size_t end = std::min(target.find('/', pos + 1), target.size());
    std::string key = unescaped(std::string_view(target).substr(pos + 1, end - pos - 1));
    const Json* next = nullptr;
    int64_t index = 0;
    if (here->is_object()) next = io::find(*here, key);
    if (here->is_array() && parse_number(key, index) && index >= 0 &&
        index < static_cast<int64_t>(here->size())) {
      next = &(*here)[static_cast<size_t>(index)];
    }
    if (!next) {
      malformed(place, "$ref ", quoted(target), ": the schema has no ",
                quoted(target.substr(0, end)));
    }
    here = next;
    pos = end;
  }
  return *here;
}

bool name_fits(const std::string& pattern, const std::string& name) {
  bool found = false;
  RegexMatcher(Regex(pattern)).find_all(name, [&](size_t, size_t) { found = true; });
  return found;
}

Json with_patterns(const Json& schema, const std::string& name, const Json& content) {
  const Json* patterns = io::find(schema, "patternProperties");
  Json all = Json::array();
  if (content != true) all.push_back(content);
  if (patterns && patterns->is_object()) {
    for (const auto& [pattern, more] : patterns->items()) {
      if (name_fits(pattern, name)) all.push_back(more);
    }
  }
  return all.empty() ? Json(true) : all.size() == 1 ? all[0] : Json({{"allOf", all}});
}

}  // namespace lumen::text::grammar
