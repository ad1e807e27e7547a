#include "lib/runtime/generation/batch.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/generation/fake_model.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::Arguments;
using testing::random_model;
using testing::run_tool_process;

std::string refusal_of(const std::string& line) {
  const Session session = testing::fake_session(40, {"yes"});
  return lumen::testing::refusal(ErrorKind::kMalformed,
                                 [&] { parse_request(line, RunOptions(), session); });
}

TEST_CASE("a line of a batch may have a constraint of its own") {
  Session session = testing::fake_session(1000, {"yes"});
  session.constraint = session.constraints->of_grammar("root ::= \"a\"");
  const auto constraint = [&](const std::string& members) {
    return parse_request(R"({"prompt": "hi")" + members + "}", RunOptions(), session)
        .generation.constraint;
  };
  REQUIRE(constraint("") == session.constraint);
  REQUIRE(constraint(R"(, "grammar": "root ::= \"b\"")") != session.constraint);
  const auto schema = constraint(R"(, "json_schema": {"type": "null"})");
  REQUIRE(schema == constraint(R"(, "json_schema": {"type": "null"})"));
  REQUIRE(constraint(R"(, "json_schema": true)"));
  REQUIRE_FALSE(constraint(R"(, "json_schema": null)"));
  REQUIRE(contains(refusal_of(R"({"prompt": "hi", "json_schema": {}, "grammar": "root ::= a"})"),
                   "grammar and json_schema do not go together"));
  REQUIRE(contains(refusal_of(R"({"prompt": "hi", "grammar": "root ::= a"})"),
                   "grammar: line 1, column 10: rule 'a' is used but not defined"));
  REQUIRE(contains(refusal_of(R"({"prompt": "hi", "json_schema": {"type": "int"}})"),
                   "json_schema: #: type: expected one of"));
}

TEST_CASE("a line of a batch says what and how to answer") {
  const Session session = testing::fake_session(1000, {"yes"});
  RunOptions options;
  options.max_tokens = 7;
  options.sampling.top_k = 3;
  options.system = "be brief";
  auto parse = [&](const std::string& line) { return parse_request(line, options, session); };
  const auto plain = parse(R"({"prompt": "hi"})");
  REQUIRE(plain.prompt.text == "<s>system:be brief<turn>user:hi<turn>assistant:");
  REQUIRE_FALSE(plain.id);
  REQUIRE(parse(R"({"prompt": "hi", "id": null})").id->is_null());  // given back
  for (const std::string id :
       {"18446744073709551615", "-9223372036854775808", "1.5", "[1,\"a\"]"}) {
    REQUIRE(parse(R"({"prompt": "hi", "id": )" + id + "}").id->dump() == id);
  }
  REQUIRE(plain.generation.max_tokens == 7);
  REQUIRE(plain.sampling.top_k == 3);
  const auto full = parse(
      R"({"id": [1], "messages": [{"role": "system", "content": "x"}, )"
      R"({"role": "user", "content": "a"}], "max_tokens": 5, "stop": ["q", "r"], )"
      R"("temperature": 0.5, "top_k": 2, "top_p": 1, "min_p": 0, "repeat_penalty": 1.5, "seed": 9})");
  REQUIRE(full.prompt.text == "<s>system:x<turn>user:a<turn>assistant:");
  REQUIRE(*full.id == io::Json::array({1}));
  REQUIRE(full.generation.max_tokens == 5);
  REQUIRE(full.generation.stop == std::vector<std::string>{"q", "r"});
  REQUIRE(full.sampling.temperature == 0.5);
  REQUIRE(full.sampling.top_k == 2);
  REQUIRE(full.sampling.repeat_penalty == 1.5);
  REQUIRE(full.sampling.seed == 9);
  const auto whole = parse(R"({"prompt": "a", "top_k": 40.0, "seed": 9007199254740993})");
  REQUIRE(whole.sampling.top_k == 40);
  REQUIRE(whole.sampling.seed == 9007199254740993);
  options.sampling.logit_bias = {{"3", 1}};
  const auto rare =
      parse(
          R"({"prompt": "a", "presence_penalty": 0.5, "frequency_penalty": -0.5, "typical_p": 0.9, )"
          R"("top_n_sigma": 1, "xtc_probability": 0.25, "xtc_threshold": 0.2, "dry_multiplier": 0.8, )"
          R"("dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 99, "mirostat": 2, "repeat_last_n": 9, "dynatemp_range": 0.5, )"
          R"("dry_sequence_breakers": ["a", "\n"], "logit_bias": {"13": -100, "q": "-inf", "=": 1.5}})")
          .sampling;
  REQUIRE(rare.presence_penalty == 0.5);
  REQUIRE(rare.frequency_penalty == -0.5);
  REQUIRE(rare.typical_p == 0.9);
  REQUIRE(rare.top_n_sigma == 1);
  REQUIRE(rare.xtc_probability == 0.25);
  REQUIRE(rare.xtc_threshold == 0.2);
  REQUIRE(rare.dry.multiplier == 0.8);
  REQUIRE(rare.dry.base == 2);
  REQUIRE(rare.dry.allowed_length == 3);
  REQUIRE(rare.dry.last_n == 99);
  REQUIRE(rare.mirostat == 2);
  REQUIRE(rare.repeat_last_n == 9);
  REQUIRE(rare.dynatemp_range == 0.5);
  REQUIRE(rare.dry.breakers == std::vector<std::string>{"a", "\n"});
  const std::map<int32_t, double> biases = {{13, -100}, {'q', -INFINITY}, {'=', 1.5}};
  REQUIRE(rare.logit_bias == biases);  // the line's in place of the command line's
  REQUIRE(parse(R"({"prompt": "a", "logit_bias": null})").sampling.logit_bias.size() == 1);
  REQUIRE(parse(R"({"prompt": "a", "dry_sequence_breakers": []})").sampling.dry.breakers.empty());
  REQUIRE(parse(R"({"prompt": "a"})").sampling.dry.last_n == 1000);  // the context
  const auto order = parse(R"({"prompt": "a", "samplers": "top_p;top_k"})").sampling.steps;
  REQUIRE(names(order) == "top_p;top_k");
  REQUIRE(order == parse(R"({"prompt": "a", "samplers": ["top_p", "top_k"]})").sampling.steps);
  options.sampling.ignore_eos = true;
  const int32_t end = session.format.end_token_ids().at(0);
  REQUIRE(parse(R"({"prompt": "a", "logit_bias": {}})").sampling.logit_bias.at(end) == -INFINITY);
  REQUIRE(parse(R"({"prompt": "a", "ignore_eos": false})").sampling.logit_bias.count(end) == 0);
  options.sampling.ignore_eos = false;
  options.raw = true;
  REQUIRE(parse(R"({"prompt": "hi"})").prompt.text == "hi");
}

TEST_CASE("a line of a batch may have tools, calls of tools and variables of the template") {
  Session session = testing::fake_session(1000, {"yes"});
  session.format =
      PromptFormat(session.format.tokenizer(),
                   text::ChatTemplate::parse(
                       "{% if tools %}{{ tools[0].function.name }}|{% endif %}{{ effort }}|"
                       "{% for m in messages %}{{ m.role }}:{{ m.content }}"
                       "{% for call in m.tool_calls %}{{ call.function.arguments.city }}{% endfor "
                       "%};{% endfor %}",
                       "test"),
                   {});
  const auto text = [&](const std::string& line) {
    return parse_request(line, RunOptions(), session).prompt.text;
  };
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "now"}}])";
  CHECK(text("{\"prompt\": \"hi\", " + tools + "}") == "now||user:hi;");
  CHECK(text(R"({"prompt": "hi", "tools": null, "template_args": null})") == "|user:hi;");
  CHECK(text(R"({"prompt": "hi", "tools": [], "template_args": {"effort": 3}})") == "3|user:hi;");
  for (const std::string arguments : {R"({"city": "Bern"})", R"("{\"city\": \"Bern\"}")"}) {
    CHECK(text(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )"
               R"("content": null, "tool_calls": [{"function": {"arguments": )" +
               arguments + R"(}}]}, {"role": "tool", "content": "b"}]})") ==
          "|user:a;assistant:Bern;tool:b;");
  }
  const auto refused = [&](const std::string& members) {
    return lumen::testing::refusal(ErrorKind::kMalformed,
                                   [&] { text(R"({"prompt": "hi", )" + members + "}"); });
  };
  CHECK(refused(R"("tools": {})") == "tools: expected an array of objects, found an object");
  CHECK(refused(R"("tools": [1])") == "tools: expected an array of objects, found the number 1");
  CHECK(refused(R"("template_args": [])") ==
        "template_args: expected an object, found an array of 0");
  CHECK(refused(R"("template_args": {"efort": 1})") ==
        "template_args: the chat template has no variable 'efort'");
  CHECK(refused(R"("template_args": {"messages": 1})") ==
        "template_args: the conversation decides it");
  CHECK(refusal_of("{\"prompt\": \"hi\", " + tools + "}") ==
        "tools: the chat template has no variable 'tools'");
  RunOptions raw;
  raw.raw = true;
  CHECK(lumen::testing::refusal(ErrorKind::kMalformed, [&] {
          parse_request("{\"prompt\": \"hi\", " + tools + "}", raw, session);
        }) == "tools and --raw do not go together");
  CHECK(lumen::testing::refusal(ErrorKind::kMalformed, [&] {
          parse_request(R"({"prompt": "hi", "system": "x"})", raw, session);
        }) == "system and --raw do not go together");
}

TEST_CASE("conversations with tools have the template tool_use, if the model has one") {
  io::ModelFiles files;
  files.path = "model";
  files.chat_templates = {{"default", "{{ messages[0].content }}"}, {"tool_use", "{{ tools"}};
  const auto format = [&] { return PromptFormat::load(files, random_model()); };
  const io::Json tools = {{"tools", {{{"name", "f"}}}}};
  CHECK(format().render({{"user", "a"}}) == "a");
  format().require_variable("tools");
  CHECK(contains(lumen::testing::refusal(ErrorKind::kMalformed,
                                         [&] {
                                           format().render({{"user", "a"}}, true, tools);
                                         }),
                 "model: chat template 'tool_use'"));
  files.chat_templates["tool_use"] = "{{ tools[0].name }}:{{ messages[0].content }}";
  CHECK(format().render({{"user", "a"}}, true, tools) == "f:a");
  const TemplateOptions options{.file = std::nullopt, .arguments = {R"(tools=[{"name": "g"}])"}};
  CHECK(PromptFormat::load(files, random_model(), options).render({{"user", "a"}}) == "g:a");
}

TEST_CASE("lines that cannot be answered are refused by key") {
  REQUIRE(contains(refusal_of("[1]"), "found the beginning of an array, expected an object on"));
  REQUIRE(contains(refusal_of(" {\r"), "found the beginning of an object of several lines"));
  REQUIRE(contains(refusal_of("1"), "expected an object, found the number 1"));
  REQUIRE(contains(refusal_of("{\"prompt\""), "line 1"));
  REQUIRE(contains(refusal_of("{}"), "found neither"));
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "messages": []})"), "found both"));
  REQUIRE(contains(refusal_of(R"({"promt": "a"})"), "unknown key 'promt'; did you mean prompt?"));
  REQUIRE(contains(refusal_of(R"({"typ_p": 1})"), "unknown key 'typ_p'; did you mean typical_p?"));
  REQUIRE(contains(refusal_of(R"({"n_predict": 9})"), "did you mean max_tokens?"));
  REQUIRE(contains(refusal_of(R"({"prompt": 1})"), "prompt"));
  REQUIRE(
      contains(refusal_of(R"({"prompt": "a", "temperature": "x"})"), "temperature: expected a"));
  REQUIRE(refusal_of(R"({"prompt": "a", "temperature": -1})") ==
          "temperature: '-1' is not a number from 0 to 100");
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "top_k": 1.5})"), "top_k: '1.5' is not a whole"));
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "max_tokens": -1})"), "max_tokens"));
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "stop": ""})"), "stop: "));
  REQUIRE(refusal_of(R"({"messages": [{"role": "system", "content": "a"}], "system": "b"})") ==
          "system: the messages begin with a system message already");
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "dry_base": 0.5})"), "dry_base: '0.5' is not a"));
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "dry_sequence_breakers": [1]})"),
                   "dry_sequence_breakers: expected a text or texts"));
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "logit_bias": [1]})"),
                   "logit_bias: expected an object of biases by token, found an array"));
  REQUIRE(refusal_of(R"({"prompt": "a", "logit_bias": {"1": true}})") ==
          "logit_bias: expected a number or \"-inf\" for '1', found true");
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "logit_bias": {"1": 1e9}})"), "for '1' is not a"));
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "logit_bias": {"ab": 1}})"),
                   "logit_bias: 'ab' is 2 tokens (97, 98)"));
  REQUIRE(contains(refusal_of(R"({"prompt": "a", "logit_bais": {}})"), "did you mean logit_bias?"));
  for (const std::string id :
       {"18446744073709551616", "-9223372036854775809", "[1, {\"a\": 1e29}]"}) {
    REQUIRE(contains(refusal_of(R"({"prompt": "a", "id": )" + id + "}"),
                     "id: expected a string or an integer that fits 64 bits, found the number "));
  }
  REQUIRE(contains(refusal_of(R"({"messages": []})"), "messages: "));
  REQUIRE(contains(refusal_of(R"({"messages": {}})"), "messages: expected an array"));
  REQUIRE(contains(refusal_of(R"({"messages": [{"role": "user", "content": "a"}, )"
                              R"({"role": "x", "content": ""}]})"),
                   "message 2: role 'x'"));
  REQUIRE(contains(refusal_of(R"({"prompt": ")" + std::string(50, 'a') + "\"}"), "40"));
}

std::vector<io::Json> lines_of(const std::string& text) {
  std::vector<io::Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(io::parse_json(text.substr(begin, end - begin), "output"));
    begin = end + 1;
  }
  return lines;
}

TEST_CASE("a line whose prompt has no token is broken input") {
  Session session = testing::fake_session(40, {"yes"});
  session.format =
      PromptFormat(std::make_shared<testing::ByteTokenizer>(/*adds_bos=*/false), std::nullopt, {});
  RunOptions options;
  options.raw = true;
  const std::string message = lumen::testing::refusal(
      ErrorKind::kMalformed, [&] { parse_request(R"({"prompt": ""})", options, session); });
  REQUIRE(contains(message, "the prompt has no tokens"));
}

TEST_CASE("a batch answers in order what each prompt alone is answered") {
  // Lengths differ, so that answers end at different steps and slots are taken over.
  std::string input;
  std::vector<std::string> alone;
  for (int i = 0; i < 7; ++i) {
    const std::string prompt = "question " + std::string(static_cast<size_t>(3 * i), 'x');
    const int tokens = (i * 5) % 13;
    input += str(R"({"id": "q)", i, R"(", "prompt": ")", prompt, R"(", "max_tokens": )", tokens,
                 R"(, "temperature": )", i % 2, R"(, "seed": )", i, "}\n\n");
    const auto one =
        run_tool_process("lumen-run", {random_model(), "-p", prompt, "-n", str(tokens), "--temp",
                                       str(i % 2), "--seed", str(i), "--json"});
    REQUIRE(one.exit_code == 0);
    alone.push_back(io::parse_json(one.out, "")["token_ids"].dump());
  }
  for (const std::string parallel : {"1", "3", "8"}) {
    CAPTURE(parallel);
    const auto outcome = run_tool_process(
        "lumen-run", {random_model(), "--batch", "-", "--parallel", parallel, "--stats"},
        {.input = input});
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    REQUIRE(contains(outcome.err, "7 answers"));
    const auto lines = lines_of(outcome.out);
    REQUIRE(lines.size() == alone.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      REQUIRE(lines[i]["id"] == str("q", i));
      REQUIRE(lines[i]["token_ids"].dump() == alone[i]);
      for (const char* key : {"text", "prompt_tokens", "stop_reason", "timings", "seed", "model"}) {
        REQUIRE(lines[i].contains(key));
      }
    }
  }
}

TEST_CASE("a bad line of a batch ends it after the answers to those before") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::string path = directory + "/batch.jsonl";
  std::ofstream(path) << R"({"prompt": "a", "max_tokens": 9})"
                         "\n"
                      << R"({"prompt": "b", "max_tokens": 2})"
                         "\n"
                      << R"({"prompt": "c", "tempo": 2})"
                         "\n"
                      << R"({"prompt": "d"})"
                         "\n";
  const auto outcome = run_tool_process("lumen-run", {random_model(), "--batch", path});
  REQUIRE(outcome.exit_code == 65);
  REQUIRE(lines_of(outcome.out).size() == 2);
  REQUIRE(contains(outcome.err, "batch.jsonl: line 3: unknown key 'tempo'"));

  REQUIRE(run_tool_process("lumen-run", {"--batch", "/no/such/file"}).exit_code == 66);
  REQUIRE(run_tool_process("lumen-run", {"--batch", "-", "-p", "a"}).exit_code == 2);
  REQUIRE(run_tool_process("lumen-run", {"--parallel", "2", "-p", "a"}).exit_code == 2);
  REQUIRE(contains(run_tool_process("lumen-run", {"--on-bad-line", "skip", "-p", "a"}).err,
                   "--on-bad-line needs --batch FILE.jsonl"));
  const auto nothing = run_tool_process("lumen-run", {random_model(), "--batch", "-"});
  REQUIRE(nothing.exit_code == 0);
  REQUIRE(nothing.out.empty());
}

// Says "x" without end, three texts at once, but its output is no number after a prompt with "!",
// and after so many tokens of the answer to a prompt with "?N".
class OverflowingModel : public testing::FakeModel {
 public:
  OverflowingModel() : FakeModel(100, {}) {}
  int64_t slots() const override { return 3; }
  void select(int64_t slot) override { slot_ = slot; }
  void rewind(int64_t) override {}
  std::span<const float> feed(std::span<const int32_t> ids, const std::atomic<bool>*) override {
    const auto mark = std::find(ids.begin(), ids.end(), '?');
    left_[slot_] = mark == ids.end() ? 100 : mark[1] - '0';
    if (std::find(ids.begin(), ids.end(), '!') != ids.end()) left_[slot_] = 0;
    logits_.clear();
    append_logits_of(slot_);
    return logits_;
  }
  std::span<const float> step(std::span<const int32_t> slots,
                              std::span<const int32_t> fed) override {
    logits_.clear();
    for (size_t i = 0; i < slots.size(); ++i) {
      LUMEN_CHECK(fed[i] == 'x');
      append_logits_of(slots[i]);
    }
    return logits_;
  }

 private:
  void append_logits_of(int64_t slot) {
    const bool is_good = left_[slot]-- > 0;
    const size_t begin = logits_.size();
    logits_.resize(begin + static_cast<size_t>(vocab()), is_good ? -10.0f : std::nanf(""));
    if (is_good) logits_[begin + 'x'] = 10;
  }

  int64_t slot_ = 0;
  int left_[3] = {};
  std::vector<float> logits_;
};

// What a batch with an OverflowingModel prints, and the error that ends it, if one does.
std::pair<std::vector<io::Json>, std::string> run_overflowing(
    const std::string& lines, const std::string& on_bad_line = "stop") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::string path = directory + "/batch.jsonl", out = directory + "/out";
  std::ofstream(path) << lines;
  Session session = testing::fake_session(100, {});
  session.model = std::make_unique<OverflowingModel>();
  RunOptions options;
  options.raw = true;
  options.sampling.temperature = 0;
  options.on_bad_line = on_bad_line;
  LineInput input(path);
  const int standard_output = ::dup(STDOUT_FILENO);
  const int file = ::open(out.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  LUMEN_CHECK(standard_output >= 0 && ::dup2(file, STDOUT_FILENO) >= 0);
  ::close(file);
  const auto run = [&] { return run_batch(options, session, input); };
  std::string error;
  if (on_bad_line == "stop") {
    error = lumen::testing::refusal(ErrorKind::kMalformed, run);
  } else {
    LUMEN_CHECK(run() == 0);
  }
  ::dup2(standard_output, STDOUT_FILENO);
  ::close(standard_output);
  return {lines_of(io::read_file(out, 1 << 20)), error};
}

TEST_CASE("lines are read where the stack is small") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::string path = directory + "/lines";
  std::ofstream(path) << std::string(100'000, 'x') << "\nend\n";
  std::pair<std::string, std::string> state = {path, ""};
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, 60 << 10);
  pthread_t thread;
  const auto read = [](void* argument) -> void* {
    auto& [name, last] = *static_cast<std::pair<std::string, std::string>*>(argument);
    LineInput input(name);
    while (input.next(last) && last != "end") {
    }
    return nullptr;
  };
  REQUIRE(::pthread_create(&thread, &attributes, read, &state) == 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  REQUIRE(state.second == "end");
}

TEST_CASE("a prompt after which the model overflows ends a batch without losing other answers") {
  auto request = [](const char* prompt, int tokens) {
    return str(R"({"prompt": ")", prompt, R"(", "id": ")", prompt, R"(", "max_tokens": )", tokens,
               "}\n");
  };
  auto texts = [](const std::vector<io::Json>& lines) {
    std::string found;
    for (const io::Json& line : lines) {
      found += line["id"].get<std::string>() + "=" + line["text"].get<std::string>() + " ";
    }
    return found;
  };
  SECTION("at once") {
    const auto [lines, error] =
        run_overflowing(request("a", 2) + request("b", 9) + request("!", 5) + request("c", 1));
    REQUIRE(texts(lines) == "a=xx b=xxxxxxxxx ");
    REQUIRE(contains(error, "batch.jsonl: line 3: the model's output is not a number"));
  }
  SECTION("in the middle of the answer") {
    const auto [lines, error] =
        run_overflowing(request("a", 9) + request("?4", 50) + request("b", 7) + request("c", 1));
    REQUIRE(texts(lines) == "a=xxxxxxxxx b=xxxxxxx ");
    REQUIRE(contains(error, "batch.jsonl: line 2: the model's output is not a number"));
  }
  SECTION("twice: the first line is told, whichever was noticed first") {
    const auto [lines, error] =
        run_overflowing(request("?4", 9) + request("a", 9) + request("!", 9));
    REQUIRE(texts(lines) == "a=xxxxxxxxx ");
    REQUIRE(contains(error, "batch.jsonl: line 1: the model's output is not a number"));
  }
}

TEST_CASE("bad lines have their errors in the places of their answers, if that is asked for") {
  const auto [lines, error] = run_overflowing(
      "{\"prompt\": \"a\", \"max_tokens\": 2}\n"
      "{\"prompt\": \"b\n"
      "{\"id\": 3, \"prompt\": \"c\", \"tempo\": 1}\n"
      "\n"
      "{\"id\": [5], \"prompt\": \"!\"}\n"
      "{\"id\": \"6\", \"prompt\": \"?4\", \"max_tokens\": 9}\n"
      "{\"id\": 1e30, \"prompt\": \"d\"}\n"
      "{\"id\": null, \"prompt\": \"e\", \"max_tokens\": 3}\n",
      "skip");
  REQUIRE(error.empty());
  REQUIRE(lines.size() == 7);
  CHECK(lines[0]["text"] == "xx");
  const std::pair<size_t, const char*> errors[] = {
      {1, "batch.jsonl: line 2: JSON: line 1, column 14: "},
      {2, "batch.jsonl: line 3: unknown key 'tempo'"},
      {3, "batch.jsonl: line 5: the model's output is not a number"},
      {4, "batch.jsonl: line 6: the model's output is not a number"},
      {5, "batch.jsonl: line 7: id: expected a string or an integer"}};
  for (const auto& [at, text] : errors) {
    CAPTURE(at, lines[at].dump());
    CHECK(contains(lines[at]["error"].get<std::string>(), text));
    CHECK_FALSE(lines[at].contains("text"));
  }
  CHECK_FALSE(lines[1].contains("id"));
  CHECK(lines[2]["id"] == 3);
  CHECK(lines[3]["id"] == io::Json::array({5}));
  CHECK(lines[4]["id"] == "6");
  CHECK_FALSE(lines[5].contains("id"));
  CHECK(lines[6]["text"] == "xxx");
  CHECK(lines[6].at("id").is_null());
}

TEST_CASE("half a line is not ready, and asking does not wait for the rest") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  LineInput input(str("/dev/fd/", ends[0]));
  ::close(ends[0]);
  auto send = [&](const std::string& text) {
    LUMEN_CHECK(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  };
  std::string line;
  REQUIRE_FALSE(input.is_ready());
  send("on");
  REQUIRE_FALSE(input.is_ready());
  send("e\n\ntw");
  for (const std::string expected : {"one", ""}) {
    REQUIRE(input.is_ready());
    REQUIRE(input.next(line));
    REQUIRE(line == expected);
  }
  REQUIRE_FALSE(input.has_line());
  REQUIRE_FALSE(input.is_ready());
  send("o");
  ::close(ends[1]);
  while (!input.is_ready()) {
  }
  REQUIRE(input.next(line));
  REQUIRE(line == "two");
  REQUIRE(input.number() == 3);
  REQUIRE(input.is_ready());
  REQUIRE_FALSE(input.next(line));
}

TEST_CASE("a batch that does not fit in memory is refused with what to do") {
  const auto outcome =
      run_tool_process("lumen-run", {random_model(), "--batch", "-", "--parallel", "256", "--ctx",
                                     "16777216", "--set", "max_position_embeddings=16777216"});
  REQUIRE(outcome.exit_code == 71);
  REQUIRE(contains(outcome.err, "of 256 texts needs "));
  REQUIRE(contains(outcome.err, "a smaller --parallel"));
}

}  // namespace
}  // namespace lumen::runtime
