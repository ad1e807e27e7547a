// Fuzz target: JSON, against nlohmann's own parser. Ours refuses more (depth, duplicate keys), and
// what it accepts has the same value, also after writing and reading it again.
#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Json other = Json::parse(text, nullptr, false);
  expect_refusal_or_success([&] {
    const Json json = parse_json(text, "fuzz.json");
    require(!other.is_discarded());
    require(json == other);
    require(parse_json(json.dump(), "fuzz.json") == json);
  });
  return 0;
}
