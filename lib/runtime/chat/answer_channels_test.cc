#include "lib/runtime/chat/answer_channels.h"

#include <algorithm>
#include <vector>

#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"

using namespace lumen;
using namespace lumen::runtime;
using lumen::runtime::testing::ByteTokenizer;

namespace {

constexpr std::string_view kTokens[] = {"<|start|>",  "<|channel|>", "<|message|>",  "<|end|>",
                                        "<|return|>", "<|call|>",    "<|constrain|>"};

// Bytes, and the control tokens of channels.
class ChannelTokenizer : public ByteTokenizer {
 public:
  ChannelTokenizer() : ByteTokenizer(false) {}
  int32_t vocab_size() const override { return kSize + static_cast<int32_t>(std::size(kTokens)); }
  std::string_view token_text(int32_t id) const override {
    return id < kSize ? ByteTokenizer::token_text(id) : kTokens[id - kSize];
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    const auto found = std::find(std::begin(kTokens), std::end(kTokens), token);
    if (found == std::end(kTokens)) return ByteTokenizer::id_of(token);
    return kSize + static_cast<int32_t>(found - std::begin(kTokens));
  }
};

const auto kTokenizer = std::make_shared<ChannelTokenizer>();

std::vector<int32_t> ids_of(std::string_view text) {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const auto found =
        std::find_if(std::begin(kTokens), std::end(kTokens),
                     [&](std::string_view token) { return text.starts_with(token); });
    const bool is_token = found != std::end(kTokens);
    ids.push_back(is_token ? *kTokenizer->id_of(*found) : static_cast<uint8_t>(text[0]));
    text.remove_prefix(is_token ? found->size() : 1);
  }
  return ids;
}

// What a user reads of the answer `said` to `prompt`, and why it ended; under a grammar the nearest
// that it allows, with the first token of all that are as near.
std::string text_of(std::string_view prompt, std::string_view said, bool continues_text = false,
                    const std::string& gbnf = "", StopReason* reason = nullptr) {
  const PromptFormat format(kTokenizer, std::nullopt, {});
  Sampler sampler({.temperature = 0}, kTokenizer->vocab_size());
  GenerationOptions options;
  options.end_tokens = format.end_token_ids();
  options.channels = format.channels();
  ConstraintSource source(kTokenizer, options.end_tokens);
  if (!gbnf.empty()) options.constraint = source.of_grammar(gbnf);
  std::string streamed;
  auto sink = [&](std::string_view piece) { streamed += piece; };
  Answer answer(kTokenizer, ids_of(prompt), 4096, sampler, options, continues_text, sink);
  for (const int32_t id : ids_of(said)) {
    std::vector<float> logits(static_cast<size_t>(kTokenizer->vocab_size()));
    logits[static_cast<size_t>(id)] = 1;
    if (!answer.next(logits)) break;
  }
  const GenerationResult result = answer.finish();
  CHECK(result.text == streamed);
  if (reason) *reason = result.stop_reason;
  return result.text;
}

constexpr std::string_view kPrompt = "<|start|>user<|message|>Hi<|end|><|start|>assistant";
constexpr std::string_view kThought = "<|channel|>analysis<|message|>They greet.<|end|>";

}  // namespace

TEST_CASE("of an answer in channels the user reads what is not thought") {
  const std::string last =
      "<|start|>assistant<|channel|>final<|message|>Hello, \xC3\xA4!<|return|>";
  CHECK(text_of(kPrompt, std::string(kThought) + last) == "Hello, \xC3\xA4!");
  CHECK(text_of(kPrompt, last.substr(last.find("<|channel|>"))) == "Hello, \xC3\xA4!");
  CHECK(text_of(kPrompt, "<|message|>Hello") == "Hello");
  CHECK(text_of(kPrompt, kThought) == "");
  // Two messages, and the beginning of a character that never ends.
  CHECK(text_of(kPrompt, "<|channel|>commentary<|message|>I look.\xC3<|end|>" + last) ==
        "I look.\xEF\xBF\xBD\n\nHello, \xC3\xA4!");
  // The prompt may begin the message.
  CHECK(text_of(std::string(kPrompt) + "<|channel|>final<|message|>", "Hello<|return|>no") ==
        "Hello");
  CHECK(text_of(std::string(kPrompt) + "<|channel|>analysis<|message|>", "Hm<|end|>" + last) ==
        "Hello, \xC3\xA4!");
}

TEST_CASE("calls of tools in channels tell whom they call") {
  const std::string call = "json<|message|>{\"city\": \"Oslo\"}<|call|>";
  const std::string expected = "functions.weather {\"city\": \"Oslo\"}";
  CHECK(text_of(kPrompt, " to=functions.weather<|channel|>commentary " + call) == expected);
  CHECK(text_of(kPrompt, "<|channel|>commentary to=functions.weather " + call) == expected);
}

TEST_CASE("answers without channels, and texts that are continued, are shown as they are") {
  CHECK(text_of("Hi", "Hello you") == "Hello you");
  CHECK(text_of(kPrompt, "Hello you") == "Hello you");
  CHECK(text_of(kPrompt, "<|channel|>analysis<|message|>They greet.", true) ==
        "analysisThey greet.");
}

TEST_CASE("a constraint is for the final message of an answer in channels") {
  const std::string gbnf = "root ::= \"{\" [x-z]* \"}\"", thought(kThought);
  const auto under = [&](std::string_view prompt, const std::string& said, StopReason expected) {
    StopReason reason = StopReason::kLength;
    const std::string text = text_of(prompt, said, false, gbnf, &reason);
    CHECK(reason == expected);
    return text;
  };
  const std::string last = "<|start|>assistant<|channel|>final<|message|>";
  // Thoughts are free and not shown; the text is over with the grammar.
  CHECK(under(kPrompt, thought + last + "{xyz}more", StopReason::kEos) == "{xyz}");
  CHECK(under(kPrompt, thought + last + "!x?", StopReason::kContext) == "{xx");
  CHECK(under(kPrompt, last.substr(last.find("<|channel|>")) + "{}", StopReason::kEos) == "{}");
  for (const char* between : {" ", ""}) {
    const std::string typed = str("<|channel|>final", between, "<|constrain|>json<|message|>{}");
    CHECK(under(kPrompt, typed, StopReason::kEos) == "{}");
  }
  // Neither are other messages, nor do they end the answer.
  CHECK(under(kPrompt, "<|channel|>commentary<|message|>I look.<|end|>" + last + "{y}",
              StopReason::kEos) == "{y}");
  CHECK(under(kPrompt, thought + "<|return|>" + last + "{y}", StopReason::kEos) == "{y}");
  // Without an end of the thoughts there is no text.
  CHECK(under(kPrompt, "<|channel|>analysis<|message|>Hm", StopReason::kContext) == "");
  // Prompts that begin the message, and answers without channels.
  CHECK(under(std::string(kPrompt) + "<|channel|>final<|message|>", "{z}", StopReason::kEos) ==
        "{z}");
  CHECK(under("Hi", "{z}", StopReason::kEos) == "{z}");
  CHECK(text_of(kPrompt, "{z}", true, gbnf) == "{z}");
}

TEST_CASE("the end of a message in a channel is not that of the answer") {
  const auto chat_template = text::ChatTemplate::parse(
      "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}",
      "template");
  const PromptFormat format(kTokenizer, chat_template, {});
  const auto ends = format.end_token_ids();
  for (const char* token : {"<|return|>", "<|call|>"}) {
    CHECK(std::count(ends.begin(), ends.end(), *kTokenizer->id_of(token)) == 1);
  }
  CHECK(std::count(ends.begin(), ends.end(), *kTokenizer->id_of("<|end|>")) == 0);
  const PromptFormat plain(std::make_shared<ByteTokenizer>(), chat_template, {});
  CHECK_FALSE(plain.channels());
}
