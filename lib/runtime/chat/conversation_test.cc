#include "lib/runtime/chat/conversation.h"

#include <fstream>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::ByteTokenizer;
using testing::fake_session;
using testing::FakeModel;

struct ConversationFixture {
  ConversationFixture(int64_t context, std::vector<std::string> scripts, std::string system = "",
                      bool with_template = true)
      : session(fake_session(context, std::move(scripts), with_template)),
        generator(*session.model, session.format.tokenizer()),
        conversation(session.format, generator, std::move(system),
                     [this](int turns) { dropped += turns; }),
        sampler(settings(), ByteTokenizer::kSize) {}

  static SamplingSettings settings() {
    SamplingSettings greedy;
    greedy.temperature = 0;
    return greedy;
  }
  GenerationResult say(const std::string& text, std::optional<int64_t> max_tokens = {}) {
    auto sink = [](std::string_view) {};
    return conversation.answer(text, sampler, {max_tokens, {}, session.format.end_token_ids()},
                               sink);
  }
  const FakeModel& model() const { return static_cast<const FakeModel&>(*session.model); }
  std::string cache() const { return session.format.tokenizer()->decode(model().tokens); }

  Session session;
  Generator generator;
  Conversation conversation;
  Sampler sampler;
  int dropped = 0;
};

ErrorKind kind_of(FunctionRef<void()> action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind{};
}

TEST_CASE("turns are rendered by the template and only new tokens are read") {
  ConversationFixture f(1000, {"hello", "fine"}, "be nice");
  REQUIRE(f.say("hi").text == "hello");
  REQUIRE(f.cache() == "<s>system:be nice<turn>user:hi<turn>assistant:hello");
  const auto result = f.say("how are you");
  REQUIRE(result.text == "fine");
  REQUIRE(result.cached_tokens ==
          result.prompt_tokens - 28);  // "<turn>user:how are you<turn>assistant:"
  REQUIRE(f.conversation.messages().size() == 5);
}

TEST_CASE("BOS is there once whether or not the template writes it") {
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  const PromptFormat format(tokenizer, std::nullopt, {});
  REQUIRE(format.encode("<s>a") == std::vector<int32_t>{ByteTokenizer::kBos, 'a'});
  REQUIRE(format.encode("a") == std::vector<int32_t>{ByteTokenizer::kBos, 'a'});
  REQUIRE(format.encode("") == std::vector<int32_t>{ByteTokenizer::kBos});
  const PromptFormat without(std::make_shared<ByteTokenizer>(/*adds_bos=*/false), std::nullopt, {});
  REQUIRE(without.encode("a") == std::vector<int32_t>{'a'});
}

TEST_CASE("end tokens are united from all sources") {
  auto chat_template = text::ChatTemplate::parse("{{ messages }}</s>", "test");
  const PromptFormat format(std::make_shared<ByteTokenizer>(), chat_template,
                            {{ByteTokenizer::kTurn, "config.json"}, {5, "x"}, {5, "y"}});
  REQUIRE(format.end_token_ids() ==
          std::vector<int32_t>{ByteTokenizer::kTurn, 5, ByteTokenizer::kEos});
}

TEST_CASE("a vocabulary that does not fit the model is refused") {
  const PromptFormat format(std::make_shared<ByteTokenizer>(), std::nullopt, {});
  const auto refused = [&](int64_t rows, bool exact) {
    return refusal(ErrorKind::kMismatch, [&] { format.check_vocabulary(rows, exact, "t.json"); });
  };
  CHECK(format.check_vocabulary(259, true, "").empty());
  CHECK(format.check_vocabulary(300, false, "").empty());  // padded embedding
  CHECK(format.check_vocabulary(518, false, "").empty());
  CHECK(format.check_vocabulary(519, false, "t.json") ==
        "t.json: the tokenizer (bytes (test)) has 259 tokens, the model 519: perhaps they do not "
        "belong together");
  CHECK(format.check_vocabulary(257, false, "").empty());  // only control tokens without a row
  CHECK(refused(300, true) ==
        "t.json: the tokenizer (bytes (test)) has 259 tokens, the model 300: they do not belong "
        "together; give the tokenizer that the model was trained with");
  CHECK(contains(refused(256, false), "the model 256, and every prompt begins with token 256"));
  const PromptFormat without(std::make_shared<ByteTokenizer>(/*adds_bos=*/false), std::nullopt, {});
  CHECK(without.check_vocabulary(256, false, "").empty());
}

TEST_CASE("a prompt that is too long says what helps") {
  const FakeModel model(100, {""}), smaller(100, {""}, 200);
  const auto refused = [](const FakeModel& one) {
    return refusal(ErrorKind::kMalformed, [&] { check_prompt_size(101, one); });
  };
  check_prompt_size(100, model);
  CHECK(refused(model) == "the prompt has 101 tokens, the model only 100 positions: shorten it");
  CHECK(refused(smaller) ==
        "the prompt has 101 tokens, the context only 100: shorten it or raise --ctx, up to 200");
}

TEST_CASE("a model without a template continues the text of all messages") {
  ConversationFixture f(1000, {" there", "!"}, "", /*with_template=*/false);
  REQUIRE(f.say("hi").text == " there");
  f.say("you");
  REQUIRE(f.cache() == "<s>hi\n there\nyou!");
}

TEST_CASE("when the context is full the oldest turns go, the system prompt stays") {
  ConversationFixture f(200, {"0123456789"}, "sys");
  for (int i = 0; i < 6; ++i) f.say("message number " + std::to_string(i));
  REQUIRE(f.dropped > 0);
  const auto& messages = f.conversation.messages();
  REQUIRE(messages[0] == Message{"system", "sys"});
  REQUIRE(messages[1].role == "user");
  REQUIRE(messages.back() == Message{"assistant", "0123456789"});
  REQUIRE(messages[messages.size() - 2].content == "message number 5");
}

TEST_CASE("a full chat does not read everything again for each message") {
  ConversationFixture f(400, {"0123456789"}, "sys");
  int read_again = 0;
  for (int i = 0; i < 12; ++i) {
    const auto result = f.say("message number " + std::to_string(i));
    read_again += i > 0 && result.cached_tokens < result.prompt_tokens / 2;
  }
  REQUIRE(f.dropped == 6);
  REQUIRE(read_again == 2);
}

TEST_CASE("a message that cannot fit is refused and changes nothing") {
  ConversationFixture f(60, {"ok"}, "sys");
  f.say("hi");
  const auto before = f.conversation.messages();
  REQUIRE(kind_of([&] { f.say(std::string(100, 'x')); }) == ErrorKind::kMalformed);
  REQUIRE(f.conversation.messages() == before);
  REQUIRE(f.say("hi").text == "ok");
}

TEST_CASE("undo, retry and reset") {
  ConversationFixture f(1000, {"one", "two"}, "sys");
  f.say("a");
  auto sink = [](std::string_view) {};
  f.conversation.retry(f.sampler, {{}, {}, {ByteTokenizer::kEos}}, sink);
  REQUIRE(f.conversation.messages() ==
          std::vector<Message>{{"system", "sys"}, {"user", "a"}, {"assistant", "two"}});
  REQUIRE(f.conversation.undo());
  REQUIRE_FALSE(f.conversation.undo());
  REQUIRE(kind_of([&] { f.conversation.retry(f.sampler, {}, sink); }) == ErrorKind::kUsage);
  f.say("b");
  f.conversation.reset();
  REQUIRE(f.conversation.messages() == std::vector<Message>{{"system", "sys"}});
  f.conversation.set_system_prompt("");
  REQUIRE(f.conversation.messages().empty());
}

TEST_CASE("a saved conversation can be loaded") {
  const std::string path = lumen::testing::temporary_directory() + "/chat.jsonl";
  ConversationFixture f(1000, {"line\none \"two\" \u20ac"}, "sys");
  f.say("hi\\");
  f.conversation.save(path);
  ConversationFixture g(1000, {"x"});
  g.conversation.load(path);
  REQUIRE(g.conversation.messages() == f.conversation.messages());
}

TEST_CASE("calls of tools stay in a saved conversation") {
  const std::string path = lumen::testing::temporary_directory() + "/chat.jsonl";
  const std::string lines =
      R"({"messages": [{"role": "user", "content": "a"}, )"
      R"({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, )"
      R"({"role": "tool", "name": "f", "content": "b"}]})";
  std::ofstream(path) << lines;
  ConversationFixture f(1000, {"x"});
  f.conversation.load(path);
  const auto messages = f.conversation.messages();
  REQUIRE(messages.size() == 3);
  CHECK(messages[1].content.empty());
  CHECK(
      messages[1].more ==
      io::parse_json(R"({"tool_calls": [{"function": {"name": "f", "arguments": {}}}]})", "test"));
  CHECK(messages[2] == Message{"tool", "b", {{"name", "f"}}});
  f.conversation.save(path);
  f.conversation.load(path);
  CHECK(f.conversation.messages() == messages);
  for (const char* calls : {"{}", "[1]", R"([{"function": {"arguments": "{"}}])"}) {
    CAPTURE(calls);
    std::vector<Message> read;
    const io::Json list = {{{"role", "assistant"}, {"tool_calls", io::parse_json(calls, "test")}}};
    lumen::testing::refusal(ErrorKind::kMalformed, [&] { append_messages(list, read); });
  }
}

TEST_CASE("a content may be a list of texts, but not of anything else") {
  const auto read = [](const char* content) {
    std::vector<Message> messages;
    append_messages({{{"role", "user"}, {"content", io::parse_json(content, "test")}}}, messages);
    return messages.at(0).content;
  };
  CHECK(read(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])") == "a\nb");
  CHECK(read("[]").empty());
  const auto refused = [&](ErrorKind kind, const char* content) {
    return lumen::testing::refusal(kind, [&] { read(content); });
  };
  CHECK(refused(ErrorKind::kUnsupported, R"([{"type": "image_url", "image_url": {}}])") ==
        "message 1: part 1 of the content is of type 'image_url', expected {\"type\": \"text\", "
        "\"text\": …}: only text is read");
  refused(ErrorKind::kMalformed, R"(["a"])");
  refused(ErrorKind::kMalformed, R"([{"type": "text"}])");
  refused(ErrorKind::kMalformed, "1");
}

TEST_CASE("files that are no conversation are refused with their line") {
  const std::string path = lumen::testing::temporary_directory() + "/chat.jsonl";
  auto read = [&](const std::string& content) {
    std::ofstream(path) << content;
    return read_messages(path);
  };
  const std::string user = R"({"role": "user", "content": "a"})";
  REQUIRE(read(user + "\n\n" + user).size() == 2);
  REQUIRE(read("{\"messages\": [" + user + "]}\n").size() == 1);
  for (const std::string bad :
       {"x", "[]", R"({"role": "user"})", R"({"messages": 1})",
        R"({"role": "function", "content": "a"})", R"({"role": 1, "content": "a"})"}) {
    CAPTURE(bad);
    try {
      read(user + "\n" + bad + "\n");
      FAIL();
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kMalformed);
      REQUIRE(std::string(error.what()).find("line 2") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lumen::runtime
