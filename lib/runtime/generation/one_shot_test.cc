// lumen-run that answers and exits: prompts, sampling, forms, templates, tokens, files it writes.
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::Arguments;
using testing::random_model;
using testing::require_error;
using testing::run_tool_process;

TEST_CASE("a schema from standard input is no part of the prompt") {
  const auto outcome = run_tool_process(
      "lumen-run", {random_model(), "-p", "a", "-n", "20", "--json-schema", "/dev/stdin"},
      {.input = R"({"const": "yes"})"});
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "\"yes\"\n");
}

TEST_CASE("the text of files follows the prompt, and a pipe them") {
  const std::string root = lumen::testing::temporary_directory();
  const auto file = [&](const std::string& name, const std::string& text) {
    std::ofstream(root + "/" + name) << text;
    return root + "/" + name;
  };
  const std::string a = file("a", "\xEF\xBB\xBFone\n"), b = file("b", "two"),
                    none = file("none", "");
  const auto shown = [&](Arguments arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {random_model(), "-n", "0", "--show-prompt"});
    return run_tool_process("lumen-run", arguments, {.input = input}).err;
  };
  CHECK(contains(shown({"-p", "Sum up:", "-f", a, "--file", b}, "three\n"),
                 "user: Sum up:\none\ntwo\nthree\n"));
  CHECK(contains(shown({"-f", a}), "user: one\n"));
  CHECK(contains(shown({"-f", "/dev/stdin"}, "piped"), "user: piped\n"));
  CHECK(contains(shown({"-p", "x", "-f", file("latin", "caf\xE9")}), "latin is not UTF-8"));
  require_error(run_tool_process("lumen-run", {"-f", none, "-n", "1"}), 65);
  require_error(run_tool_process("lumen-run", {"-f", root + "/nosuch", "-n", "1"}), 66);
  require_error(run_tool_process("lumen-run", {"--ids", "[1]", "-f", a}), 2);
}

TEST_CASE("penalties, filters and biases are reported, and give one text for one seed") {
  const auto answer = [](const Arguments& more) {
    Arguments arguments = {random_model(), "-p", "hello",  "-n",     "40",
                           "--seed",       "3",  "--json", "--temp", "1.5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = run_tool_process("lumen-run", arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return io::parse_json(outcome.out, "");
  };
  const auto usual = answer({});
  REQUIRE(usual["sampling"]["logit_bias"] == io::Json::object());
  const Arguments all = {"--presence-penalty",     "0.5",  "--frequency-penalty",  "0.25",
                         "--dry-multiplier",       "0.8",  "--dry-base",           "2",
                         "--dry-allowed-length",   "3",    "--dry-penalty-last-n", "-1",
                         "--dry-sequence-breaker", "x\\n", "--xtc-probability",    "0.5",
                         "--xtc-threshold",        "0.01", "--typical-p",          "0.95",
                         "--top-n-sigma",          "3",    "--logit-bias",         "7=-inf",
                         "--logit-bias",           "8=+1", "--repeat-last-n",      "100",
                         "--dynatemp-range",       "0.25", "--dynatemp-exp",       "2",
                         "--mirostat-ent",         "4",    "--mirostat-lr",        "0.5"};
  const auto first = answer(all);
  REQUIRE(first["token_ids"] != usual["token_ids"]);
  for (const char* threads : {"1", "2", "3"}) {
    Arguments again = all;
    again.insert(again.end(), {"-t", threads, "--lookup", threads[0] == '1' ? "0" : "7"});
    REQUIRE(answer(again)["token_ids"] == first["token_ids"]);
  }
  const auto& sampling = first["sampling"];
  const io::Json expected = {{"presence_penalty", 0.5},
                             {"frequency_penalty", 0.25},
                             {"dry_multiplier", 0.8},
                             {"dry_base", 2.0},
                             {"dry_allowed_length", 3},
                             {"dry_sequence_breakers", {"x\n"}},
                             {"xtc_probability", 0.5},
                             {"xtc_threshold", 0.01},
                             {"typical_p", 0.95},
                             {"top_n_sigma", 3.0},
                             {"repeat_last_n", 100},
                             {"dynatemp_range", 0.25},
                             {"dynatemp_exp", 2.0},
                             {"mirostat", 0},
                             {"mirostat_ent", 4.0},
                             {"mirostat_lr", 0.5},
                             {"logit_bias", {{"7", "-inf"}, {"8", 1.0}}}};
  for (const auto& [key, value] : expected.items()) {
    CAPTURE(key);
    CHECK(sampling[key] == value);
  }
  REQUIRE(sampling["dry_penalty_last_n"].get<int64_t>() > 0);  // the context

  const auto wrong = run_tool_process(
      "lumen-run", {random_model(), "-p", "a", "--logit-bias", "many words of a text=1"});
  require_error(wrong, 2);
  REQUIRE(contains(wrong.err, "error: logit-bias: 'many words of a text' is "));
  const auto batch = run_tool_process(
      "lumen-run", {random_model(), "--batch", "-", "--logit-bias", "999999=1"}, {.input = "{}"});
  require_error(batch, 2);
}

TEST_CASE("with --ignore-eos an answer goes on to the asked length") {
  // An answer that would end at once.
  const Arguments arguments = {random_model(), "-p",           "hello",  "-n",     "9",
                               "--json",       "--logit-bias", "2=1000", "--temp", "0"};
  const auto answer = [](const Arguments& all) {
    const auto outcome = run_tool_process("lumen-run", all);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return io::parse_json(outcome.out, "");
  };
  REQUIRE(answer(arguments)["stop_reason"] == "eos");
  Arguments on = arguments;
  on.push_back("--ignore-eos");
  const auto json = answer(on);
  REQUIRE(json["stop_reason"] == "length");
  REQUIRE(json["completion_tokens"] == 9);
  REQUIRE(json["sampling"]["logit_bias"]["2"] == "-inf");
  REQUIRE(json["sampling"]["samplers"] ==
          "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
}

TEST_CASE("one prompt gives only the answer on standard output, the same for the same seed") {
  const Arguments arguments = {random_model(), "-p", "hello", "-n", "8", "--seed", "3", "--json"};
  const auto first = run_tool_process("lumen-run", arguments);
  CAPTURE(first.err);
  REQUIRE(first.exit_code == 0);
  const auto json = io::parse_json(first.out, "");
  const auto ids = json["token_ids"];
  REQUIRE(ids.size() == json["completion_tokens"].get<size_t>());
  for (const char* key : {"text", "prompt_tokens", "stop_reason", "timings", "seed", "model"}) {
    REQUIRE(json.contains(key));
  }
  for (const std::string threads : {"1", "2", "3"}) {
    Arguments with_threads = arguments;
    with_threads.insert(with_threads.end(), {"-t", threads});
    const auto again = io::parse_json(run_tool_process("lumen-run", with_threads).out, "");
    REQUIRE(again["token_ids"] == ids);
  }
  const auto plain =
      run_tool_process("lumen-run", {random_model(), "-p", "hello", "-n", "8", "--seed", "3"});
  REQUIRE(plain.out == json["text"].get<std::string>() + "\n");
  REQUIRE(contains(plain.err, "random"));  // a notice in the file is shown
}

TEST_CASE("an answer follows a schema or a grammar, in a batch too") {
  const std::string folder = lumen::testing::temporary_directory();
  std::ofstream(folder + "/s.json")
      << R"({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3})";
  std::ofstream(folder + "/g.gbnf") << "root ::= \"yes\" | \"no\"\n";
  const auto one = run_tool_process(
      "lumen-run", {random_model(), "-p", "a", "--json-schema", folder + "/s.json", "--json"});
  REQUIRE(one.exit_code == 0);
  const io::Json answer = io::parse_json(one.out, "output");
  REQUIRE(answer["stop_reason"] == "eos");
  REQUIRE(io::parse_json(answer["text"].get<std::string>(), "text").is_array());
  const auto lines = run_tool_process(
      "lumen-run", {random_model(), "--batch", "-", "--grammar", folder + "/g.gbnf"},
      {.input = "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"json_schema\": {\"const\": 7}}\n"});
  REQUIRE(lines.exit_code == 0);
  const size_t second = lines.out.find('\n') + 1;
  const auto text = [](const std::string& line) {
    return io::parse_json(line, "output")["text"].get<std::string>();
  };
  const std::string first = text(lines.out.substr(0, second));
  REQUIRE((first == "yes" || first == "no"));
  REQUIRE(text(lines.out.substr(second)) == "7");

  std::ofstream(folder + "/bad.json") << R"({"properties": {"a": {"type": "strin"}}})";
  const auto bad = run_tool_process(
      "lumen-run", {random_model(), "-p", "a", "--json-schema", folder + "/bad.json"});
  require_error(bad, 65);
  REQUIRE(contains(bad.err, "bad.json: #/properties/a: type: expected one of object"));
  require_error(run_tool_process("lumen-run", {random_model(), "-p", "a", "--grammar", "none"}),
                66);
  require_error(
      run_tool_process("lumen-run", {"-p", "a", "--json-schema", R"({"uniqueItems": true})"}), 69);
}

TEST_CASE("statistics begin with the memory that will be needed, and tell of drafts") {
  const auto outcome = run_tool_process(
      "lumen-run", {random_model(), "-p", "hello", "-n", "8", "--stats", "--kv", "q8_0"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const size_t budget = outcome.err.find("budget    weights ");
  REQUIRE(budget < outcome.err.find("load  "));
  REQUIRE(contains(outcome.err.substr(budget), "; available "));
  REQUIRE(contains(outcome.err, "drafts    "));
  const auto none = run_tool_process(
      "lumen-run", {random_model(), "-p", "hello", "-n", "40", "--json", "--lookup", "0"});
  REQUIRE(io::parse_json(none.out, "")["drafted_tokens"] == 0);
}

TEST_CASE("standard input is appended to the prompt") {
  const auto shown =
      run_tool_process("lumen-run", {random_model(), "-p", "first", "-n", "0", "--show-prompt"},
                       {.input = "second\n"});
  REQUIRE(shown.exit_code == 0);
  REQUIRE(contains(shown.err, "user: first\nsecond\n"));
  const auto piped = run_tool_process("lumen-run", {random_model(), "-n", "0", "--show-prompt"},
                                      {.input = "alone"});
  REQUIRE(contains(piped.err, "user: alone\n"));
}

TEST_CASE("prompts are taken as they are, whatever they look like") {
  for (const std::string prompt : {"[a, b]", "--help", "--json=x", "-5", "a=b", "\"x\"", "'"}) {
    CAPTURE(prompt);
    const auto shown = run_tool_process(
        "lumen-run", {random_model(), "-p", prompt, "-n", "0", "--show-prompt", "--stop", "[x,y]"});
    REQUIRE(shown.exit_code == 0);
    REQUIRE(contains(shown.err, "user: " + prompt + "\n"));
  }
  REQUIRE(contains(
      run_tool_process("lumen-run", {random_model(), "--prompt=", "-n", "0", "--show-prompt"}).err,
      "user: \n"));
}

TEST_CASE("tokenize and detokenize answer each other") {
  const std::string text = "hello  w\u00f6rld\n";
  const auto ids = run_tool_process(
      "lumen-run", {random_model(), "--tokenize", "--special", "false"}, {.input = text});
  REQUIRE(ids.exit_code == 0);
  REQUIRE(run_tool_process("lumen-run", {random_model(), "--detokenize"}, {.input = ids.out}).out ==
          text);
  const auto special = run_tool_process("lumen-run", {random_model(), "--tokenize", "-p", text});
  REQUIRE(special.out.starts_with("[1, "));

  const auto lines = run_tool_process("lumen-run", {random_model(), "--tokenize", "--jsonl"},
                                      {.input = "\xEF\xBB\xBF\"hello\"\n\n\"\"\n \r\n\"a\\nb\""});
  REQUIRE(std::count(lines.out.begin(), lines.out.end(), '\n') == 3);
  REQUIRE(contains(lines.out, "\n[1]\n"));
  const auto back = run_tool_process(
      "lumen-run", {random_model(), "--detokenize", "--jsonl", "--special", "false"},
      {.input = lines.out});
  REQUIRE(back.out == "\"hello\"\n\"\"\n\"a\\nb\"\n");
}

TEST_CASE("broken lines of JSON are refused with their number") {
  for (const std::string bad : {"x", "[1]", "{}", "\"a\" 1"}) {
    const auto outcome = run_tool_process("lumen-run", {random_model(), "--tokenize", "--jsonl"},
                                          {.input = "\"a\"\n" + bad + "\n"});
    CAPTURE(bad, outcome.err);
    REQUIRE(outcome.exit_code == 65);
    REQUIRE(contains(outcome.err, "line 2"));
  }
  for (const std::string bad : {"[-1]", "[1.5]", "[\"a\"]", "1", "[99999999999]", "[99999]", ""}) {
    CAPTURE(bad);
    require_error(run_tool_process("lumen-run", {"--detokenize"}, {.input = bad}), 65);
  }
}

TEST_CASE("a template is rendered with its variables and clock") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/t.jinja")
      << "{{ strftime_now('%d %b %Y') }} {% for m in messages %}{{ m.content }}{% endfor %}"
         "{% if tools is none %}!{% endif %}";
  std::ofstream(directory + "/c.json") << R"({"messages": [{"role": "user", "content": "hi"}]})";
  const auto outcome =
      run_tool_process("lumen-run", {"--render", directory + "/t.jinja", "--context",
                                     directory + "/c.json", "--now", "2025-07-10T12:00:00"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.out == "10 Jul 2025 hi!");
  const auto late = run_tool_process("lumen-run", {"--render", directory + "/t.jinja", "--context",
                                                   directory + "/c.json", "--now", "late"});
  require_error(late, 2);
  REQUIRE(contains(late.err, "error: now: 'late' is not a time"));
  std::ofstream(directory + "/bad.jinja") << "a\n{% if %}";
  require_error(run_tool_process("lumen-run", {"--render", directory + "/bad.jinja", "--context",
                                               directory + "/c.json"}),
                65);
}

TEST_CASE("a shell's small stack does not keep a template from its own limit") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/t.jinja") << "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
  std::ofstream(directory + "/c.json") << "{}";
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_STACK, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 192 << 10;
  ::setrlimit(RLIMIT_STACK, &small);
  const auto outcome = run_tool_process(
      "lumen-run", {"--render", directory + "/t.jinja", "--context", directory + "/c.json"});
  ::setrlimit(RLIMIT_STACK, &before);
  CAPTURE(outcome.signal);
  require_error(outcome, 65);
  REQUIRE(contains(outcome.err, "calls are nested too deeply"));
}

TEST_CASE("a chat template of one's own is used, with its variables") {
  const std::string file = lumen::testing::temporary_directory() + "/own.jinja";
  std::ofstream(file) << "[{{ messages[0].content }}|{{ enable_thinking }}|{{ effort }}]";
  const std::string model = random_model();
  const auto shown = [&](const Arguments& more) {
    Arguments arguments = {model, "-p", "hi", "-n", "0", "--show-prompt", "--chat-template", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool_process("lumen-run", arguments);
  };
  REQUIRE(contains(shown({}).err, "[hi||]\n"));
  REQUIRE(contains(
      shown({"--template-arg", "enable_thinking=False", "--template-arg", "effort=high"}).err,
      "[hi|False|high]\n"));
  REQUIRE(contains(shown({"--template-arg", "effort=[1, 2]"}).err, "[hi||[1, 2]]\n"));
  const auto typo = shown({"--template-arg", "enable_thinkin=false"});
  require_error(typo, 2);
  REQUIRE(contains(typo.err, "the chat template has no variable 'enable_thinkin'"));
  require_error(shown({"--template-arg", "effort=[1"}), 2);
  require_error(shown({"--template-arg", "messages=[]"}), 2);
  std::ofstream(file) << "{% if %}";
  const auto broken = shown({});
  require_error(broken, 65);
  REQUIRE(contains(broken.err, file + ":1: "));
  require_error(run_tool_process("lumen-run", {model, "-p", "a", "--template-arg", "x=1",
                                               "--chat-template", "/nonexistent.jinja"}),
                66);
}

TEST_CASE("a file that lumen-run did not write is not replaced by it") {
  const std::string notes = lumen::testing::temporary_directory() + "/notes.txt";
  std::ofstream(notes) << "mine";
  for (const std::string flag : {"--prompt-cache", "--logits"}) {
    CAPTURE(flag);
    require_error(run_tool_process("lumen-run", {random_model(), "-p", "x", flag, notes}), 73);
    std::string kept;
    std::getline(std::ifstream(notes), kept);
    REQUIRE(kept == "mine");
  }
  const std::string logits = lumen::testing::temporary_directory() + "/l.npy";
  for (int i = 0; i < 2; ++i) {
    REQUIRE(
        run_tool_process("lumen-run", {random_model(), "-p", "x", "--logits", logits}).exit_code ==
        0);
  }
}

TEST_CASE("logits of ids need no tokenizer") {
  LUMEN_SHARED_DATA(directory, "models/llama2c/stories260K");
  const std::string model = directory + "/stories260K.bin";
  const auto logits_of = [&](const Arguments& more) {
    const std::string path = lumen::testing::temporary_directory() + "/l.npy";
    Arguments arguments = {model, "--ids", "[1, 403, 407]", "--logits", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = run_tool_process("lumen-run", arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return io::read_file(path, 1 << 20);
  };
  const std::string logits = logits_of({});
  CHECK(logits.size() > 3 * 512 * sizeof(float));
  CHECK(logits == logits_of({"--tokenizer", directory + "/tok512.bin"}));
  require_error(run_tool_process("lumen-run", {model, "--ids", "[512]", "--logits", "l.npy"}), 65);
}

TEST_CASE("a context shorter than the longest draft is used to its end") {
  for (const std::string context : {"6", "7", "8"}) {
    const auto run = [&](const std::string& lookup) {
      const auto outcome =
          run_tool_process("lumen-run", {random_model(), "--ids", "[5, 5, 5]", "--temp", "0", "-c",
                                         context, "--json", "--lookup", lookup});
      CAPTURE(outcome.err, context, lookup);
      REQUIRE(outcome.exit_code == 0);
      return io::parse_json(outcome.out, "");
    };
    REQUIRE(run("7")["token_ids"] == run("0")["token_ids"]);
    REQUIRE(run("7")["stop_reason"] == run("0")["stop_reason"]);
  }
}

TEST_CASE("ids and prompts are checked against vocabulary and context") {
  require_error(run_tool_process("lumen-run", {"--ids", "[1, 100000]"}), 65);
  const auto none = run_tool_process("lumen-run", {"--ids", "[]"});
  require_error(none, 2);
  CHECK(contains(none.err, "ids: the array is empty"));
  require_error(run_tool_process("lumen-run", {"--ids", "[1, -1]"}), 65);
  const auto outcome = run_tool_process("lumen-run", {"-p", std::string(3000, 'x'), "-c", "64"});
  REQUIRE(outcome.exit_code == 65);
  REQUIRE(contains(outcome.err, "64"));
}

}  // namespace
}  // namespace lumen::runtime
