// Answers under a grammar or a schema: always of it, whatever the model would say.
#include "lib/runtime/generation/constraint.h"

#include <fstream>

#include "lib/base/testing.h"
#include "lib/runtime/generation/fake_model.h"
#include "lib/text/json_schema.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::ByteTokenizer;
using testing::FakeModel;

// What a model that wants to say `script` says under a grammar.
GenerationResult say(const std::string& script, const std::string& gbnf,
                     std::unique_ptr<Drafter> drafter = nullptr,
                     std::optional<int64_t> max_tokens = {}, std::vector<std::string> stop = {},
                     const std::string& prompt = "hi") {
  auto tokenizer = std::make_shared<ByteTokenizer>();
  FakeModel model(3000, {script});
  Generator generator(model, tokenizer, std::move(drafter));
  Sampler sampler({.temperature = 0}, model.vocab());
  ConstraintSource source(tokenizer, {ByteTokenizer::kEos});
  const GenerationOptions options{
      max_tokens, std::move(stop), {ByteTokenizer::kEos}, source.of_grammar(gbnf)};
  return generator.generate(tokenizer->encode(prompt, {}), sampler, options, false,
                            [](std::string_view) {});
}

TEST_CASE("an answer under a grammar is one of its texts") {
  const auto same = say("yes, or no", "root ::= (\"yes\" | \"no\") \", or \" \"no\"");
  CHECK(same.text == "yes, or no");
  CHECK(same.stop_reason == StopReason::kEos);
  // Where it cannot say what it would, the first allowed byte wins, and it begins anew.
  CHECK(say("hello", "root ::= [1-9] [a-z]{2} \"!\"").text == "1he!");
  CHECK(say("hello", "root ::= [a-z]+ \"?\"").text == "hello?");
  // The end comes only where the grammar has one, and then at once if nothing may follow.
  CHECK(say("", "root ::= \"ab\" [c-d]*").text == "ab");
  CHECK(say("abc", "root ::= \"ab\"").token_ids.size() == 2);
}

TEST_CASE("the reason why an answer ended tells whether it is complete") {
  CHECK(say("aaaa", "root ::= \"a\"{9}", nullptr, 4).stop_reason == StopReason::kLength);
  CHECK(say("aaaa", "root ::= \"a\"{4}", nullptr, 4).stop_reason == StopReason::kEos);
  const auto stopped = say("ab.cd", "root ::= [a-d.]{5}", nullptr, {}, {"."});
  CHECK(stopped.text == "ab");
  CHECK(stopped.stop_reason == StopReason::kStop);
}

TEST_CASE("drafts change nothing under a grammar") {
  std::string script;
  for (int i = 0; i < 60; ++i) script += str("line ", i % 7 * i, " of a poem; ");
  const std::string gbnf =
      "root ::= (\"line \" [0-9]+ \" of \" [a-z]{1,4} \" po\" [a-m]+ \". \"?)+";
  const auto plain = say(script, gbnf, nullptr, 400);
  const auto looked_up = say(script, gbnf, std::make_unique<PromptLookup>(), 400);
  CHECK(plain.text.size() == 400);
  CHECK(looked_up.token_ids == plain.token_ids);
  CHECK(looked_up.drafted_tokens > 0);
  CHECK(looked_up.accepted_tokens > 0);
  FakeModel draft(3000, {script});
  const auto drafted =
      say(script, gbnf, std::make_unique<DraftModel>(draft, ByteTokenizer::kSize), 400);
  CHECK(drafted.token_ids == plain.token_ids);
}

TEST_CASE("the thinking that a prompt opens is free, and what follows it is not") {
  const std::string gbnf = "root ::= \"(\" [x-z]* \")\"", prompt = "q<think>\n";
  const auto think = [&](const std::string& script) {
    return say(script, gbnf, nullptr, 60, {}, prompt);
  };
  CHECK(think("any </think\n>, </think>\n\n(xyz)q").text == "any </think\n>, </think>\n\n(xyz)");
  CHECK(think("</think>(x").text == "</think>(x)");
  CHECK(think("</think>no").text == "</think>\t\t()");
  CHECK(think("</think>\n\n\n").text == "</think>\n\n()");  // two tokens of white space at most
  // It cannot end within its thoughts.
  CHECK(think("hm").stop_reason == StopReason::kLength);
  // A block that is closed is none.
  CHECK(say("x", gbnf, nullptr, 60, {}, "q<think>\n\n</think>\n\n").text == "(x)");
}

TEST_CASE("a vocabulary that cannot write what has to follow is told of") {
  class Letters : public ByteTokenizer {
   public:
    std::vector<std::string> token_bytes() const override {
      std::vector<std::string> bytes(kSize);
      for (size_t c = 'a'; c <= 'z'; ++c) bytes[c] = static_cast<char>(c);
      return bytes;
    }
  };
  auto tokenizer = std::make_shared<Letters>();
  FakeModel model(100, {"ab1"});
  Generator generator(model, tokenizer);
  Sampler sampler({.temperature = 0}, model.vocab());
  ConstraintSource source(tokenizer, {ByteTokenizer::kEos});
  const GenerationOptions options{
      {}, {}, {ByteTokenizer::kEos}, source.of_grammar("root ::= \"ab1\"")};
  const std::string message = refusal(ErrorKind::kMismatch, [&] {
    generator.generate(tokenizer->encode("hi", {}), sampler, options, false,
                       [](std::string_view) {});
  });
  CHECK(contains(message, "the vocabulary has no token for what has to follow"));
}

constexpr const char* kSchema = R"({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0,
    "maximum": 150}, "tags": {"type": "array", "items": {"enum": ["a", "b", "é"]}, "maxItems": 4},
    "when": {"type": "string", "format": "date"}}, "required": ["name", "age", "when"]})";

// The answers of a real model at a temperature at which it speaks nonsense.
void check_model(RunOptions options) {
  CAPTURE(*options.model);
  options.json_schema = kSchema;
  options.sampling.temperature = 1.5;
  options.sampling.top_k = 0;
  options.sampling.top_p = 1;
  options.sampling.min_p = 0;
  const text::Grammar grammar = *requested_grammar(std::nullopt, options.json_schema);
  Session session = load_session(options);
  Generator generator = make_generator(options, session);
  const auto prompt = session.format.encode("Once upon a time");
  for (int seed = 0; seed < 10; ++seed) {
    options.sampling.seed = seed;
    Sampler sampler(resolve_sampling(options.sampling, io::Json::object()), session.model->vocab());
    const bool continues_text = seed % 2 == 0;
    const auto result = generator.generate(prompt, sampler, generation_options(options, session),
                                           continues_text, [](std::string_view) {});
    CAPTURE(seed, result.text);
    REQUIRE(result.stop_reason == StopReason::kEos);
    REQUIRE(grammar.matches(result.text));
    const io::Json value = io::Json::parse(result.text, nullptr, false);
    REQUIRE(value.is_object());
    REQUIRE(value["age"].get<int>() <= 150);
    REQUIRE(value["when"].get<std::string>().size() == 10);
  }
}

TEST_CASE("models at a high temperature answer with JSON of the schema, every time") {
  RunOptions options;
  options.model = lumen::testing::source_path("testdata/builtin/lumen-tiny.gguf");
  check_model(options);
  options.model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  check_model(options);
}

TEST_CASE("story-tellers answer with JSON of the schema, every time") {
  LUMEN_SHARED_DATA(folder, "models/llama2c/stories260K");
  RunOptions options;
  options.model = folder + "/stories260K.bin";
  for (const char* tokenizer : {"/tok512.bin", "/tok512.model"}) {
    options.tokenizer = folder + tokenizer;
    check_model(options);
  }
}

TEST_CASE("grammars and schemas come from files, or schemas from the command line") {
  const std::string folder = lumen::testing::temporary_directory();
  std::ofstream(folder + "/a.gbnf") << "root ::= \"a";
  std::ofstream(folder + "/s.json") << R"({"type": "intger"})";
  CHECK_FALSE(requested_grammar(std::nullopt, std::nullopt));
  CHECK(requested_grammar(std::nullopt, R"({"const": 1})")->matches("1"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { requested_grammar(folder + "/a.gbnf", {}); }),
                 "a.gbnf: line 1, column 10"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { requested_grammar({}, folder + "/s.json"); }),
                 "s.json: #: type: expected one of"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { requested_grammar({}, "{\"a\""); }),
                 "--json-schema: line 1, column"));
  refusal(ErrorKind::kMissing, [&] { requested_grammar(folder + "/none", {}); });
}

TEST_CASE("constraints with the same source are one") {
  auto tokenizer = std::make_shared<ByteTokenizer>();
  ConstraintSource source(tokenizer, {ByteTokenizer::kEos});
  const auto first = source.of_grammar("root ::= \"a\"");
  CHECK(source.of_grammar("root ::= \"a\"") == first);
  CHECK(source.of_schema(io::Json{{"const", 1}}) != first);
  for (int i = 0; i < 20; ++i) source.of_grammar(str("root ::= \"", i, "\""));
  CHECK(source.of_grammar("root ::= \"a\"") != first);  // made anew: the last few are kept
}

}  // namespace
}  // namespace lumen::runtime
