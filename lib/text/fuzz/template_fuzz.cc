// Fuzz target: chat templates. Any bytes parse and render, or are refused with one line, within the
// limits of limits::kTemplate*; a rendering is deterministic.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/chat_template.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

const lumen::text::Json& conversation() {
  static const auto json = lumen::text::Json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."},
                 {"role": "user", "content": "Grüße, 世界 <b>"},
                 {"role": "assistant", "content": null,
                  "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
    "s": "a b,c\n", "i": 7, "f": -1.5, "l": [3, 1, 2], "n": null})");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  // The first byte chooses the white space switches.
  if (size == 0) return 0;
  const text::ChatTemplate::Syntax syntax{(data[0] & 1) == 0, (data[0] & 2) == 0};
  const std::string source(reinterpret_cast<const char*>(data) + 1, size - 1);
  text::ChatTemplate::Options options;
  options.now = text::CivilTime::parse("2025-07-10T12:00:00");
  try {
    const auto parsed = text::ChatTemplate::parse(source, "fuzz", syntax);
    const std::string text = parsed.render(conversation(), options);
    require(is_valid_utf8(text));
    require(text.size() <= limits::kTemplateOutputBytes);
    require(parsed.render(conversation(), options) == text);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kMalformed);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
