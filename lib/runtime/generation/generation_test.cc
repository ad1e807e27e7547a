#include "lib/runtime/generation/generation.h"

#include <atomic>

#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"
#include "lib/text/tokenizer_json.h"
#include "lib/text/vocabulary.h"

namespace lumen::runtime {
namespace {

using testing::ByteTokenizer;
using testing::FakeModel;

struct Fixture {
  explicit Fixture(std::string script, int64_t context = 1000)
      : model(context, {std::move(script)}), generator(model, tokenizer), sampler(greedy(), 259) {}

  static SamplingSettings greedy() {
    SamplingSettings settings;
    settings.temperature = 0;
    return settings;
  }

  GenerationResult run(const std::string& prompt, const GenerationOptions& options,
                       const std::atomic<bool>* stop = nullptr) {
    pieces.clear();
    const auto ids = tokenizer->encode(prompt, {});
    auto sink = [&](std::string_view text) { pieces.emplace_back(text); };
    return generator.generate(ids, sampler, options, false, sink, stop);
  }
  std::string streamed() const {
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    return text;
  }

  std::shared_ptr<ByteTokenizer> tokenizer = std::make_shared<ByteTokenizer>();
  FakeModel model;
  Generator generator;
  Sampler sampler;
  std::vector<std::string> pieces;
};

GenerationOptions until(std::vector<std::string> stop, std::optional<int64_t> max_tokens = {}) {
  return {max_tokens, std::move(stop), {ByteTokenizer::kEos}};
}

TEST_CASE("an answer ends at the end token, which is not part of it") {
  Fixture f("hello");
  const auto result = f.run("hi", until({}));
  REQUIRE(result.text == "hello");
  REQUIRE(result.token_ids == std::vector<int32_t>{'h', 'e', 'l', 'l', 'o'});
  REQUIRE(result.stop_reason == StopReason::kEos);
  REQUIRE(result.prompt_tokens == 3);
  REQUIRE(f.streamed() == "hello");
}

TEST_CASE("max_tokens and the context end an answer") {
  Fixture f("hello world");
  auto result = f.run("hi", until({}, 4));
  REQUIRE(result.text == "hell");
  REQUIRE(result.stop_reason == StopReason::kLength);
  REQUIRE(f.run("hi", until({}, 0)).text.empty());

  Fixture small("hello world", 8);  // <s>hi and 5 positions: 6 tokens, the last one not fed
  result = small.run("hi", until({}));
  REQUIRE(result.text == "hello ");
  REQUIRE(result.stop_reason == StopReason::kContext);
  REQUIRE(small.model.position() == 8);
}

TEST_CASE("stop strings are found across tokens and not shown") {
  for (const char* stop : {"wor", "o w", " world!", "!"}) {
    CAPTURE(stop);
    Fixture f("hello world! and more");
    const auto result = f.run("hi", until({"never", stop}));
    const std::string whole = "hello world! and more";
    REQUIRE(result.text == whole.substr(0, whole.find(stop)));
    REQUIRE(result.stop_reason == StopReason::kStop);
    REQUIRE(f.streamed() == result.text);
  }
}

TEST_CASE("what only looked like a stop string is shown after all") {
  Fixture f("aab aac");
  auto result = f.run("hi", until({"aac!"}));
  REQUIRE(result.text == "aab aac");
  REQUIRE(f.streamed() == "aab aac");
  REQUIRE(result.stop_reason == StopReason::kEos);
}

TEST_CASE("the earliest of several stop strings counts") {
  StopMatcher matcher({"bcd", "c"});
  std::string out;
  REQUIRE(matcher.push("abcd", out));
  REQUIRE(out == "a");
}

TEST_CASE("a stop string that overlaps itself is found") {
  StopMatcher matcher({"aab"});
  std::string out;
  REQUIRE_FALSE(matcher.push("a", out));
  REQUIRE_FALSE(matcher.push("a", out));
  REQUIRE_FALSE(matcher.push("a", out));
  REQUIRE(out == "a");
  REQUIRE(matcher.push("b", out));
  REQUIRE(out == "a");
}

TEST_CASE("streamed pieces are whole characters") {
  const std::string text = "a\u00e4\u20ac\U0001F600z";
  Fixture f(text);
  REQUIRE(f.run("hi", until({})).text == text);
  REQUIRE(f.pieces.size() == 5);
  for (const std::string& piece : f.pieces) REQUIRE(is_valid_utf8(piece));

  Fixture cut("a\xF0\x9F\x98");  // ends inside a character
  REQUIRE(cut.run("hi", until({})).text == "a\uFFFD");
}

TEST_CASE("a continued text does not repeat the characters of byte tokens at the prompt's end") {
  io::Json vocabulary = io::Json::object();  // ids are bytes; those of ASCII are characters
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[byte < 128 ? std::string(1, static_cast<char>(byte))
                          : text::byte_token(static_cast<uint8_t>(byte))] = byte;
  }
  const std::shared_ptr<const text::Tokenizer> tokenizer = text::parse_tokenizer_json(
      {{"model",
        {{"type", "BPE"},
         {"byte_fallback", true},
         {"vocab", vocabulary},
         {"merges", io::Json::array()}}},
       {"decoder",
        {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}}},
      {});
  const auto continued = [&](const std::string& prompt, const std::string& script) {
    FakeModel model(1000, {script});
    Generator generator(model, tokenizer);
    Sampler sampler(Fixture::greedy(), 259);
    std::string streamed;
    const auto result =
        generator.generate(tokenizer->encode(prompt), sampler, until({"\u65e5"}, script.size()),
                           /*continues_text=*/true, [&](std::string_view t) { streamed += t; });
    CHECK(streamed == result.text);
    return result.text;
  };
  CHECK(continued("a\u65e5", "bc") == "bc");
  CHECK(continued("a\u65e5", "\u672cc") == "\u672cc");
  CHECK(continued("a\u65e5", "\u672c") == "\u672c");
  CHECK(continued("\u65e5\u672c\u65e5\u672c\u65e5\u672c\u65e5", "bc") == "bc");
  CHECK(continued("a\u65e5", "b\u65e5c") == "b");
}

TEST_CASE("a prompt that continues the last one costs only its new tokens") {
  Fixture f("yes");
  auto result = f.run("abc", until({}));
  REQUIRE(result.cached_tokens == 0);
  // The answer's tokens are cached too, except the end token, which was never fed.
  result = f.run("abcyes and", until({}));
  REQUIRE(result.cached_tokens == 1 + 6);
  REQUIRE(f.model.fed_prompts.back() == std::vector<int32_t>{' ', 'a', 'n', 'd'});
  result = f.run("abX", until({}));
  REQUIRE(result.cached_tokens == 3);
  result = f.run("abX", until({}));  // nothing new: the last token is fed again
  REQUIRE(result.cached_tokens == 3);
  REQUIRE(result.text == "yes");
}

TEST_CASE("the stop flag ends an answer between tokens and keeps what came") {
  Fixture f("hello");
  std::atomic<bool> stop = false;
  const auto ids = f.tokenizer->encode("hi", {});
  int pieces = 0;
  auto sink = [&](std::string_view) { stop = ++pieces == 2; };
  const auto result = f.generator.generate(ids, f.sampler, until({}), false, sink, &stop);
  REQUIRE(result.stop_reason == StopReason::kInterrupted);
  REQUIRE(result.text == "he");

  REQUIRE(result.read_tokens == result.prompt_tokens);

  std::atomic<bool> before = true;
  const auto unread = f.run("another", until({}), &before);
  REQUIRE(unread.stop_reason == StopReason::kInterrupted);
  REQUIRE(unread.read_tokens == 0);
  REQUIRE(unread.prompt_tokens_per_second() == 0);
}

}  // namespace
}  // namespace lumen::runtime
