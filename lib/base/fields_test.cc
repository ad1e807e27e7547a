#include "lib/base/fields.h"

#include "lib/base/error.h"
#include "lib/base/testing.h"

namespace lumen {
namespace {

ErrorKind kind_of(const Field& field, std::string_view text) {
  try {
    field.set(text);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind{};
}

TEST_CASE("a whole-number field takes exactly the numbers of its range") {
  std::optional<int64_t> value;
  const Field field = number_field("ctx", "context", value, 1, 100);
  REQUIRE(field.get() == "");
  for (const char* good : {"1", "42", "100"}) {
    field.set(good);
    REQUIRE(field.get() == good);
  }
  for (const char* bad : {"", "0", "-1", "101", "9223372036854775808", "-9223372036854775809",
                          "1e1", "0x10", " 1", "1 ", "+1", "1.0", "ten"}) {
    CAPTURE(bad);
    REQUIRE(kind_of(field, bad) == ErrorKind::kUsage);
  }
  REQUIRE(*value == 100);
}

TEST_CASE("a number field refuses what is no finite number") {
  std::optional<double> value;
  const Field field = number_field("temp", "temperature", value, 0, 100);
  for (const char* good : {"0", "0.5", "1e-3", "100"}) field.set(good);
  for (const char* bad : {"nan", "inf", "-0.1", "0,5", "1e9", " 1", ""}) {
    CAPTURE(bad);
    REQUIRE(kind_of(field, bad) == ErrorKind::kUsage);
  }
}

TEST_CASE("choices, switches and lists") {
  std::string kv = "f16";
  const Field choice = choice_field("kv", "cache type", kv, {"f16", "f32"});
  choice.set("f32");
  REQUIRE(kv == "f32");
  REQUIRE(kind_of(choice, "f64") == ErrorKind::kUsage);
  choice.set("F16");
  REQUIRE(kv == "f16");

  bool raw = false;
  switch_field("raw", "no template", raw).set("");
  REQUIRE(raw);

  std::optional<std::string> out;
  const Field path = path_field("out", "DIR", "result", out);
  REQUIRE(kind_of(path, "") == ErrorKind::kUsage);
  path.set("a");
  REQUIRE(out == "a");

  std::vector<std::string> stops;
  const Field list = list_field("stop", "TEXT", "stop", stops);
  list.set("a b");
  list.set("");
  REQUIRE(stops == std::vector<std::string>{"a b", ""});
}

TEST_CASE("an unknown field names the nearest") {
  std::optional<int64_t> top_k;
  const std::vector<Field> fields = {number_field("top-k", "", top_k, 0, 9)};
  REQUIRE(find_field(fields, "top-k").name == "top-k");
  try {
    find_field(fields, "top_k");
    FAIL();
  } catch (const Error& error) {
    REQUIRE(std::string(error.what()).find("did you mean top-k") != std::string::npos);
  }
}

TEST_CASE("texts are UTF-8, names of files any bytes") {
  std::optional<std::string> text, path;
  const Field prompt = text_field("prompt", "TEXT", "", text);
  prompt.set("h\u00e9");
  REQUIRE(kind_of(prompt, "h\xE9llo") == ErrorKind::kUsage);
  REQUIRE(text == "h\u00e9");
  path_field("lora", "DIR", "", path).set("h\xE9llo");
  REQUIRE(path == "h\xE9llo");
}

}  // namespace
}  // namespace lumen
