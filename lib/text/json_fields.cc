#include "lib/text/json_fields.h"

namespace lumen::text {

uint32_t get_character(const io::Json& json, const char* key, std::string_view fallback) {
  const std::string text = io::get_string(json, key, fallback);
  size_t pos = 0;
  const uint32_t c = text.empty() ? 0 : next_code_point(text, pos);
  if (text.empty() || pos != text.size()) {
    fail(ErrorKind::kMalformed, "'", key, "' is ", quoted(text), ", expected one character");
  }
  return c;
}

}  // namespace lumen::text
