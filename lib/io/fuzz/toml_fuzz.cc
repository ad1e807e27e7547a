// Fuzz target: TOML. What is accepted is the same after each value was written and read again.
#include <cmath>

#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/toml.h"

namespace lumen::io {
namespace {

// toml_value is for values on one line: tables are written key by key.
void check_values(const Json& value) {
  if (value.is_object()) {
    for (const auto& member : value.items()) check_values(member.value());
  } else if (value.is_array()) {
    for (const Json& element : value) check_values(element);
  } else if (!value.is_number_float() || !std::isnan(value.get<double>())) {
    require(parse_toml_value(toml_value(value), "fuzz.toml") == value);
  }
}

}  // namespace
}  // namespace lumen::io

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_refusal_or_success([&] {
    const TomlDocument document = parse_toml(text, "fuzz.toml");
    for (const auto& [pointer, position] : document.values) {
      require(position.line >= 1 && position.column >= 1);
    }
    check_values(document.root);
  });
  return 0;
}
