// Fuzz target: grammars in GBNF and JSON Schemas; the first byte chooses. What is accepted leads
// from every state to an end, and the texts of a schema are JSON.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lib/base/error.h"
#include "lib/text/grammar/automaton.h"
#include "lib/text/json_schema.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Walks to an end of the grammar, led by `choices`, and returns the text; "" if it becomes long.
std::string walk(const lumen::text::Grammar& grammar, std::string_view choices) {
  namespace g = lumen::text::grammar;
  constexpr size_t kLongest = 256;
  g::Automaton automaton(grammar.program());
  g::State state = automaton.start();
  std::string text;
  while (text.size() < kLongest) {
    std::string next;
    for (int byte = 0; byte < 256; ++byte) {
      if (automaton.next(state, static_cast<uint8_t>(byte)) != g::kDead) {
        next += static_cast<char>(byte);
      }
    }
    require(!next.empty() || automaton.may_end(state));  // no way out would be a trap
    if (next.empty() || (automaton.may_end(state) && text.size() > choices.size())) return text;
    const auto choice =
        choices.empty() ? 0 : static_cast<uint8_t>(choices[text.size() % choices.size()]);
    text += next[choice % next.size()];
    state = automaton.next(state, static_cast<uint8_t>(text.back()));
  }
  return "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  if (size == 0) return 0;
  const bool is_schema = (data[0] & 1) != 0;
  const std::string source(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (is_schema) {
      const auto grammar = text::json_schema_grammar(io::parse_json(source, "fuzz"), "fuzz");
      const std::string value = walk(grammar, source);
      require(value.empty() || io::Json::accept(value));
      require(value.empty() || grammar.matches(value));
    } else {
      const auto grammar = text::parse_grammar(source, "fuzz");
      const std::string value = walk(grammar, source);
      require(value.empty() || grammar.matches(value));
    }
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kMalformed || error.kind() == ErrorKind::kUnsupported);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
