// The tools as their users meet them: exit codes, streams, options, and the chat at a terminal.
#include <cctype>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lib/base/pool.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/runtime/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::Outcome;
using testing::run_tool_process;
using testing::Streams;
using testing::TerminalProcess;

using testing::Arguments;
using testing::random_model;

// An error is one line, the last, that begins with the tool's name; nothing is on standard output.
void require_error(const Outcome& outcome, int exit_code, const std::string& tool = "lumen-run") {
  CAPTURE(outcome.err, outcome.signal);
  REQUIRE(outcome.exit_code == exit_code);
  REQUIRE(outcome.out.empty());
  REQUIRE(outcome.err.ends_with('\n'));
  const size_t before = outcome.err.find_last_of('\n', outcome.err.size() - 2);
  const size_t line = before == std::string::npos ? 0 : before + 1;
  REQUIRE(outcome.err.compare(line, tool.size() + 9, tool + ": error: ") == 0);
  REQUIRE((line == 0 || outcome.err.starts_with("note: ")));
}

TEST_CASE("numeric options refuse what is out of range or no number") {
  const std::vector<std::string> integers = {"--max-tokens", "-n", "--ctx",   "-c",
                                             "--threads",    "-t", "--top-k", "--seed"};
  const std::vector<std::string> numbers = {"--temp",           "--top-p",     "--min-p",
                                            "--repeat-penalty", "--typical-p", "--top-n-sigma",
                                            "--xtc-threshold",  "--dry-base"};
  const std::vector<std::string> bad = {"-1", "9223372036854775808", "0x10", " 1", "1 ", "", "nan"};
  for (const std::string& flag : integers) {
    for (const std::string& value : bad) {
      CAPTURE(flag, value);
      require_error(run_tool_process("lumen-run", {"-p", "a", flag, value}), 2);
    }
    require_error(run_tool_process("lumen-run", {"-p", "a", flag, "1e9"}), 2);
    require_error(run_tool_process("lumen-run", {"-p", "a", flag}), 2);
  }
  for (const std::string& flag : numbers) {
    for (const std::string& value : bad) {
      CAPTURE(flag, value);
      require_error(run_tool_process("lumen-run", {"-p", "a", flag, value}), 2);
    }
  }
  for (const std::string flag : {"--ctx", "--threads"}) {
    require_error(run_tool_process("lumen-run", {"-p", "a", flag, "0"}), 2);
  }
}

TEST_CASE("options that make no sense together are refused") {
  const std::vector<Arguments> cases = {
      {"--tokenize", "--detokenize"},
      {"--jsonl"},
      {"--render", "x.jinja"},
      {"--context", "x.json"},
      {"--now", "2025-01-01"},
      {"--ids", "[1]", "-p", "a"},
      {"--raw", "-s", "x", "-p", "a"},
      {"--kv", "f64", "-p", "a"},
      {"--set", "key", "-p", "a"},
      {"--template-arg", "key", "-p", "a"},
      {"--raw", "--template-arg", "key=1", "-p", "a"},
      {"--lora", "a", "--lora", "b", "-p", "a"},
      {"--ids", "[1]", "--chat-template", "x.jinja"},
      {"--stop", "", "-p", "a"},
      {"--lookup", "3", "--draft", "x.gguf", "-p", "a"},
      {"--grammar", "a.gbnf", "--json-schema", "{}", "-p", "a"},
      {"--grammar", "a.gbnf", "--tokenize", "-p", "a"},
      {"--lookup", "8", "-p", "a"},
      {"--lookup", "3", "--batch", "-"},
      {"--special", "maybe", "--tokenize"},
      {"--promt", "a"},
      {"a", "b"},
  };
  for (const Arguments& arguments : cases) {
    CAPTURE(arguments);
    require_error(run_tool_process("lumen-run", arguments), 2);
  }
  for (const std::string value : {"maybe", "x", "99999999999999999999"}) {
    const auto wrong = run_tool_process("lumen-run", {"-p", "a", "--json=" + value});
    require_error(wrong, 2);
    REQUIRE(contains(wrong.err, "--json: '" + value + "' is neither true nor false"));
  }
  const auto other_verb = run_tool_process("lumen-bench", {"llm", "--filter", "a"});
  require_error(other_verb, 2, "lumen-bench");
  REQUIRE_FALSE(contains(other_verb.err, "mean --filter"));
  const auto outcome = run_tool_process("lumen-run", {"--promt", "a"});
  REQUIRE(contains(outcome.err, "did you mean --prompt?"));
  const auto hint = [](const std::string& tool, const Arguments& arguments, const char* ours) {
    const auto refused = run_tool_process(tool, arguments);
    CAPTURE(arguments, refused.err);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, str("did you mean ", ours, "?")));
  };
  hint("lumen-run", {"--temperature", "1"}, "--temp");
  hint("lumen-run", {"--n-predict=5"}, "--max-tokens");
  hint("lumen-run", {"--typical", "0.9"}, "--typical-p");
  hint("lumen-run", {"--top-nsigma", "1"}, "--top-n-sigma");
  hint("lumen-run", {"--dry-sequence-breakers", "x"}, "--dry-sequence-breaker");
  hint("lumen-run", {"-m", "a.gguf"}, "MODEL without an option");
  hint("lumen-bench", {"llm", "-m", "a.gguf"}, "MODEL without an option");
}

TEST_CASE("options without effect are refused by name") {
  const auto refused = [](const std::string& option, const Arguments& arguments,
                          const std::string& tool = "lumen-run") {
    const auto outcome = run_tool_process(tool, arguments);
    CAPTURE(arguments, outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(contains(outcome.err, "error: " + option + " has no effect with"));
  };
  const std::string model = random_model();
  refused("--max-tokens", {"--tokenize", "-n", "5", "-p", "a"});
  refused("--top-k", {"--tokenize", "-p", "a", "--top-k", "5"});
  refused("--xtc-probability", {"--tokenize", "-p", "a", "--xtc-probability", "0.5"});
  refused("--lora", {"--detokenize", "--lora", "x"});
  refused("--prompt", {"--detokenize", "-p", "a"});
  refused("--ids", {"--tokenize", "--ids", "[1]"});
  refused("--prompt", {"--batch", "x.jsonl", "-p", "a"});
  refused("--prompt-cache", {"--batch", "x.jsonl", "--prompt-cache", "c.kv"});
  refused("--draft", {"--logits", "x.npy", "-p", "a", "--draft", "x.gguf"});
  refused("--max-tokens", {"--logits", "x.npy", "--ids", "[1]", "-n", "5"});
  refused("--stop", {"--logits", "x.npy", "--ids", "[1]", "--stop", "a"});
  refused("--special", {"-p", "a", "--special", "false"});
  refused("MODEL", {model, "--render", "x.jinja", "--context", "x.json"});
  refused("MODEL", {"--inspect", model, "x"}, "lumen-convert");
  refused("--type", {"--inspect", model, "--type", "q8_0"}, "lumen-convert");
  refused("--json", {model, "x.gguf", "--json"}, "lumen-convert");
  refused("--set", {"--recipes", "--set", "train.steps=1"}, "lumen-train");
  refused("--out", {"--print-schema", "--out", "x"}, "lumen-train");
  refused("--json", {"digits-mlp", "--print-config", "--json"}, "lumen-train");
  refused("--seconds", {"train", "digits-mlp", "-r", "1", "--seconds", "2"}, "lumen-bench");
  const auto threads = run_tool_process("lumen-run", {model, "--tokenize", "-p", "a", "-t", "1"},
                                        {}, {"LUMEN_THREADS=1"});
  CHECK(threads.exit_code == 0);
  const std::string logits = lumen::testing::temporary_directory() + "/logits.npy";
  const auto sampling = run_tool_process(
      "lumen-run", {model, "--logits", logits, "-p", "a", "-n", "0", "--temp", "0"});
  CHECK(sampling.exit_code == 0);
}

TEST_CASE("text that is not UTF-8 is refused on the command line and told of on standard input") {
  const std::string bad =
      "a\xFF"
      "b";
  for (const std::string flag : {"-p", "-s", "--stop"}) {
    const auto outcome = run_tool_process("lumen-run", {flag, bad, "-n", "0"}, {.input = "a"});
    CAPTURE(flag, outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(contains(outcome.err, "is not UTF-8"));
  }
  const auto piped = run_tool_process("lumen-run", {"-n", "0", "--show-prompt"}, {.input = bad});
  CHECK(piped.exit_code == 0);
  CHECK(contains(piped.err, "note: standard input is not UTF-8"));
  CHECK(contains(piped.err,
                 "a\uFFFD"
                 "b"));
}

TEST_CASE("what --set makes of the config is the command line's fault if it does not fit") {
  const std::string model = random_model();
  for (const std::string setting :
       {"num_attention_heads=0", "rope_theta=-5", "vocab_size=999999999999", "hidden_act=\"x\"",
        "num_hidden_layers=9", "eos_token_id=-1", "eos_token_id=x"}) {
    const auto outcome = run_tool_process("lumen-run", {model, "-p", "a", "--set", setting});
    CAPTURE(setting, outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(contains(outcome.err, "--set "));
  }
}

TEST_CASE("end tokens can be set, and those beyond the vocabulary are told of") {
  const auto run = [](const std::string& setting) {
    return run_tool_process("lumen-run", {random_model(), "--ids", "[5]", "--temp", "0", "-n", "4",
                                          "--json", "--set", "eos_token_id=" + setting});
  };
  const auto far = run("[2, 9999999]");
  CAPTURE(far.err);
  REQUIRE(far.exit_code == 2);  // beyond any vocabulary
  const auto beyond = run("[2, 99999]");
  REQUIRE(beyond.exit_code == 0);
  CHECK(contains(beyond.err, "note: the end token 99999 (--set eos_token_id) is not below"));
  const auto ids = io::parse_json(beyond.out, "")["token_ids"];
  REQUIRE(ids.size() == 4);
  const auto ended = io::parse_json(run(ids[1].dump()).out, "");
  CHECK(ended["token_ids"].size() < 4);
  CHECK(ended["stop_reason"] == "eos");
}

TEST_CASE("without a prompt and a terminal there is a usage error at once") {
  const auto start = std::chrono::steady_clock::now();
  require_error(run_tool_process("lumen-run", {}), 2);
  require_error(run_tool_process("lumen-run", {}, {.input = std::nullopt}), 2);
  require_error(run_tool_process("lumen-convert", {}), 2, "lumen-convert");
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

TEST_CASE("environment variables are checked like flags") {
  const auto threads = run_tool_process("lumen-run", {"-p", "a"}, {}, {"LUMEN_THREADS=abc"});
  require_error(threads, 2);
  const auto simd = run_tool_process("lumen-run", {"--version"}, {}, {"LUMEN_SIMD=mmx"});
  require_error(simd, 2);
  const auto sse2 = run_tool_process("lumen-run", {"--version", "--json"}, {}, {"LUMEN_SIMD=sse2"});
  if (sse2.exit_code == 0) REQUIRE(contains(sse2.out, "\"chosen\": \"sse2\""));
  REQUIRE(contains(threads.err, "LUMEN_THREADS: threads: 'abc' is not"));
  for (const Arguments& verb : {Arguments{"llm"}, {"train", "digits-mlp"}, {"ops"}}) {
    const auto wrong = run_tool_process("lumen-bench", verb, {}, {"LUMEN_THREADS=1,x"});
    require_error(wrong, 2, "lumen-bench");
    REQUIRE(contains(wrong.err, "LUMEN_THREADS: threads: '"));
  }

  const std::vector<std::string> environment = {"LUMEN_THREADS=1"};
  const std::string model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  const auto run = [&](const char* tool, const Arguments& arguments) {
    const auto outcome = run_tool_process(tool, arguments, {}, environment);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out;
  };
  run("lumen-convert", {"--inspect", model});  // --threads has no effect there
  REQUIRE(io::parse_json(run("lumen-run", {model, "-p", "a", "-n", "1", "--json"}),
                         "")["threads"] == 1);
  REQUIRE(io::parse_json(run("lumen-run", {model, "-p", "a", "-n", "1", "--json", "-t", "2"}),
                         "")["threads"] == 2);
  REQUIRE(contains(run("lumen-run", {"--generate", "man"}), "LUMEN_THREADS"));

  // OpenMP's counts below both; a bad one is said and ignored.
  const auto openmp = [&](const std::vector<std::string>& variables, Arguments more = {}) {
    Arguments arguments = {model, "-p", "a", "-n", "1", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = run_tool_process("lumen-run", arguments, {}, variables);
    REQUIRE(outcome.exit_code == 0);
    const auto threads = io::parse_json(outcome.out, "")["threads"].get<int64_t>();
    return std::pair(threads, contains(outcome.err, "OMP_NUM_THREADS"));
  };
  CHECK(openmp({"OMP_NUM_THREADS=3"}) == std::pair(int64_t{3}, false));
  CHECK(openmp({"OMP_NUM_THREADS= 3 ,2"}) == std::pair(int64_t{3}, false));
  CHECK(openmp({"OMP_NUM_THREADS=3", "LUMEN_THREADS=1"}) == std::pair(int64_t{1}, false));
  CHECK(openmp({"OMP_NUM_THREADS=3"}, {"-t", "2"}) == std::pair(int64_t{2}, false));
  CHECK(openmp({"OMP_NUM_THREADS="}) == std::pair(int64_t{default_thread_count()}, false));
  for (const char* bad : {"OMP_NUM_THREADS=many", "OMP_NUM_THREADS=0", "OMP_NUM_THREADS=1e9"}) {
    CHECK(openmp({bad}) == std::pair(int64_t{default_thread_count()}, true));
  }
  const auto bench = run_tool_process("lumen-bench", {"train", "digits-mlp", "-r", "1"}, {},
                                      {"OMP_NUM_THREADS=many"});
  CHECK(bench.exit_code == 0);
  CHECK(contains(bench.err, "warning: OMP_NUM_THREADS: threads: 'many' is not"));
}

TEST_CASE("missing models are named, with the place where they were looked for") {
  require_error(run_tool_process("lumen-run", {"/no/such/model.gguf", "-p", "a"}), 66);
  require_error(run_tool_process("lumen-run", {"/", "-p", "a"}), 66);
  const auto draft = run_tool_process("lumen-run", {"-p", "a", "--draft", "/no/such/model"});
  require_error(draft, 66);
  REQUIRE(contains(draft.err, "error: --draft: /no/such/model: "));
}

TEST_CASE("an architecture that is unknown is told before the weights are looked at") {
  const std::string place = lumen::testing::temporary_directory();
  // A model for pictures too: what its text part needs is nested.
  std::ofstream(place + "/config.json") << R"({"model_type": "gemma3", "text_config": {}})";
  for (const Arguments& arguments : {Arguments{place, "-p", "a"}, {"--draft", place, "-p", "a"}}) {
    const auto outcome = run_tool_process("lumen-run", arguments);
    require_error(outcome, 69);
    REQUIRE(contains(outcome.err, "model_type 'gemma3' is not supported; supported: "));
  }
  const auto converted = run_tool_process("lumen-convert", {place, place + "/a.gguf"});
  require_error(converted, 69, "lumen-convert");
  REQUIRE(contains(converted.err, "/config.json: model_type 'gemma3'"));
}

TEST_CASE("an output that cannot be written is an I/O error") {
  require_error(run_tool_process("lumen-run", {"--help"}, {.output_file = "/dev/full"}), 74);
  require_error(run_tool_process("lumen-run", {"--help"}, {.close_output = true}), 74);
  require_error(run_tool_process("lumen-run", {"-p", "a", "-n", "4"}, {.output_file = "/dev/full"}),
                74);
}

TEST_CASE("a reader that leaves ends the tool quietly") {
  const auto outcome = run_tool_process(
      "lumen-run", {"-p", "a", "--temp", "2", "--set", "eos_token_id=0"}, {.reader_leaves = true});
  CAPTURE(outcome.err);
  REQUIRE((outcome.signal == SIGPIPE || outcome.exit_code == 0));
  REQUIRE_FALSE(contains(outcome.err, "error"));
}

TEST_CASE("every tool has help of one screen, a version, limits and documents") {
  for (const std::string tool : {"lumen-run", "lumen-train", "lumen-convert", "lumen-bench"}) {
    CAPTURE(tool);
    const auto help = run_tool_process(tool, {"--help"});
    REQUIRE(help.exit_code == 0);
    REQUIRE(std::count(help.out.begin(), help.out.end(), '\n') <= 50);
    for (size_t begin = 0; begin < help.out.size();) {
      const size_t end = help.out.find('\n', begin);
      REQUIRE(end - begin <= 100);
      begin = end + 1;
    }
    const auto version = run_tool_process(tool, {"--version"});
    REQUIRE(version.out.starts_with(tool + " 0."));
    REQUIRE(version.out.find('\n') == version.out.size() - 1);
    const auto detailed = run_tool_process(tool, {"--version", "--json"});
    REQUIRE(io::parse_json(detailed.out, "")["tool"] == tool);
    REQUIRE(contains(run_tool_process(tool, {"--limits"}).out, "gguf-keys 65536\n"));
    for (const std::string kind : {"man", "bash", "zsh", "fish"}) {
      const auto document = run_tool_process(tool, {"--generate", kind});
      REQUIRE(document.exit_code == 0);
      REQUIRE(contains(document.out, tool));
    }
    require_error(run_tool_process(tool, {"--generate", "pdf"}), 2, tool);
  }
  const auto json = io::parse_json(run_tool_process("lumen-run", {"--version", "--json"}).out, "");
  REQUIRE(json["schema"] == 1);
  REQUIRE(json["simd"]["compiled"].size() >= 1);
}

// "inline constexpr uint64_t kGgufKeys = …" → "gguf-keys"; "" for another line.
std::string limit_name(const std::string& line) {
  if (!line.starts_with("inline constexpr ")) return "";
  std::string name;
  for (size_t i = line.find(" k") + 2; line[i] != ' '; ++i) {
    if (std::isupper(static_cast<unsigned char>(line[i])) && !name.empty()) name += '-';
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(line[i])));
  }
  return name;
}

TEST_CASE("every limit of the code is printed by --limits") {
  const std::string printed = "\n" + run_tool_process("lumen-run", {"--limits"}).out;
  std::ifstream header(lumen::testing::source_path("lib/base/limits.h"));
  int64_t declared = 0;
  for (std::string line; std::getline(header, line);) {
    const std::string name = limit_name(line);
    if (name.empty()) continue;
    ++declared;
    CAPTURE(name);
    CHECK(contains(printed, "\n" + name + " "));
  }
  REQUIRE(declared > 30);
  REQUIRE(std::count(printed.begin(), printed.end(), '\n') == declared + 1);
}

TEST_CASE("lumen-train lists recipes, prints one, and names the place of what is wrong") {
  const std::string tool = "lumen-train";
  require_error(run_tool_process(tool, {}), 2, tool);
  REQUIRE(contains(run_tool_process(tool, {"--recipes"}).out, "digits-mlp "));
  const auto listed = io::parse_json(run_tool_process(tool, {"--recipes", "--json"}).out, "");
  REQUIRE(listed["recipes"].size() == 13);
  const auto printed = run_tool_process(tool, {"digits-mlp", "--print-config"});
  REQUIRE(contains(printed.out, "\n[train]\nepochs = 5"));
  const std::string path = lumen::testing::temporary_directory() + "/my.toml";
  std::ofstream(path) << printed.out << "colour = 1\n";
  const auto wrong = run_tool_process(tool, {path});
  require_error(wrong, 65, tool);
  REQUIRE(contains(run_tool_process(tool, {"--generate", "recipe-man"}).out, ".SH NAME\nlumen"));
  REQUIRE(contains(run_tool_process(tool, {"--generate", "pdf"}).err, "recipe-man"));
  REQUIRE(contains(wrong.err, path + ":"));
  const auto override_text = run_tool_process(tool, {"digits-mlp", "--set", "train.epoch=2"});
  require_error(override_text, 2, tool);
  REQUIRE(contains(override_text.err, "did you mean train.epochs?"));
  require_error(run_tool_process(tool, {"digits-mpl"}), 66, tool);
  for (const std::string option : {"--out", "--resume"}) {
    const auto bytes = run_tool_process(tool, {"digits-mlp", option, "a\xFF"});
    require_error(bytes, 2, tool);
    REQUIRE(contains(bytes.err, option + ": byte 2 is not UTF-8, at '\\xff'"));
  }
}

TEST_CASE("rows that are left out are counted by why they are") {
  const std::string place = lumen::testing::temporary_directory();
  std::ofstream rows(place + "/rows.jsonl");
  rows << "{\"text\": \"" << std::string(40, 'a') << "\"}\n{bad\n";
  for (int i = 0; i < 8; ++i) rows << "{\"text\": \"abc\"}\n";
  rows.close();
  std::ofstream(place + "/r.toml")
      << "[model]\ntype = \"lstm\"\nhidden = 8\n[tokenizer]\ntype = \"char\"\n"
         "[[data.train]]\npath = \"rows.jsonl\"\n[data]\nmax_length = 32\n"
         "on_bad_row = \"skip\"\n[train]\nsteps = 1\nbatch_size = 2\n";
  const auto run = [&](const std::string& rule, const std::string& option) {
    const auto outcome = run_tool_process(
        "lumen-train",
        {place + "/r.toml", "--set", "data.on_too_long=" + rule, "--out", place + "/out", option});
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out + outcome.err;
  };
  CHECK(contains(run("skip", "--dry-run"),
                 ", 8 samples, 1 bad rows skipped, 1 too long ones skipped\n"));
  CHECK(contains(run("truncate", "--dry-run"),
                 ", 9 samples, 1 bad rows skipped, 1 too long ones cut\n"));
  const std::string told = run("skip", "--force");
  CHECK(contains(told, "rows.jsonl: 1 bad rows are skipped\n"));
  CHECK(contains(told, "note: 1 texts are longer than data.max_length and skipped\n"));
  CHECK(contains(run("truncate", "--force"), "longer than data.max_length and cut\n"));
}

TEST_CASE("a network beyond the memory there is is refused before it is made") {
  const std::string place = lumen::testing::temporary_directory() + "/run";
  const auto outcome = run_tool_process(
      "lumen-train", {"digits-mlp", "-o", place, "--set", "model.hidden=[1048576, 1048576]"});
  require_error(outcome, 71, "lumen-train");
  REQUIRE(contains(outcome.err, "parameters of the model and their gradients take 8.0 TiB"));
}

TEST_CASE("characters that a model's vocabulary lacks are named, in sample prompts and prompts") {
  const std::string place = lumen::testing::temporary_directory() + "/names";
  const auto trained = run_tool_process(
      "lumen-train", {"builtin-names-lstm", "-o", place, "--set", "train.steps=1", "--set",
                      "model.hidden=8", "--set", "log.samples.prompts=['anÉ', 'an']"});
  CAPTURE(trained.err);
  REQUIRE(trained.exit_code == 0);
  REQUIRE(contains(trained.err,
                   "note: log.samples.prompts: 'anÉ' is not continued: the vocabulary "
                   "has no token for 'É'\n"));
  const auto told = run_tool_process("lumen-run", {place, "--raw", "-p", "anÉ7É", "-n", "1"});
  CAPTURE(told.err);
  REQUIRE(told.exit_code == 0);
  REQUIRE(
      contains(told.err, "note: the vocabulary has no token for 'É', '7': the model does not "));
  const auto known = run_tool_process("lumen-run", {place, "--raw", "-p", "an an", "-n", "1"});
  REQUIRE_FALSE(contains(known.err, "no token"));
  const auto batch = run_tool_process("lumen-run", {place, "--raw", "--batch", "-", "-n", "1"},
                                      {.input = "{\"prompt\": \"an\"}\n{\"prompt\": \"a7\"}\n"});
  CAPTURE(batch.err);
  REQUIRE(contains(batch.err, "line 2: the vocabulary has no token for '7'"));
  REQUIRE_FALSE(contains(batch.err, "line 1"));
}

TEST_CASE("help names rare options, the man page explains them") {
  const std::string help = run_tool_process("lumen-run", {"--help"}).out;
  const std::string man = run_tool_process("lumen-run", {"--generate", "man"}).out;
  for (const std::string name :
       {"presence\\-penalty", "frequency\\-penalty", "logit\\-bias", "dry\\-multiplier",
        "dry\\-base", "dry\\-allowed\\-length", "dry\\-penalty\\-last\\-n",
        "dry\\-sequence\\-breaker", "top\\-n\\-sigma", "typical\\-p", "xtc\\-probability",
        "xtc\\-threshold"}) {
    CAPTURE(name);
    CHECK(contains(man, "\n.B \\-\\-" + name + " \\fI"));
    std::string plain = name;
    std::erase(plain, '\\');
    CHECK(contains(help, " --" + plain));
  }
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
                         "--logit-bias",           "8=+1"};
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
  require_error(run_tool_process("lumen-run", {"-p", "a", "--json-schema", R"({"not": {}})"}), 69);
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
  require_error(run_tool_process("lumen-run", {"--ids", "[]"}), 2);
  require_error(run_tool_process("lumen-run", {"--ids", "[1, -1]"}), 65);
  const auto outcome = run_tool_process("lumen-run", {"-p", std::string(3000, 'x'), "-c", "64"});
  REQUIRE(outcome.exit_code == 65);
  REQUIRE(contains(outcome.err, "64"));
}

TEST_CASE("inspect shows what a model holds") {
  const std::string model = random_model();
  const auto json =
      io::parse_json(run_tool_process("lumen-convert", {"--inspect", model, "--json"}).out, "");
  REQUIRE(json["format"] == "GGUF");
  REQUIRE(json["config"]["model_type"] == "llama");
  REQUIRE(json["tensors"].size() == 3 + 2 * 9);
  REQUIRE(json["tokenizer"]["end_tokens"][0]["id"] == 2);
  REQUIRE(json["chat_templates"].contains("default"));
  const auto text = run_tool_process("lumen-convert", {"--inspect", model});
  REQUIRE(contains(text.out, "model.embed_tokens.weight"));
  require_error(run_tool_process("lumen-convert", {"--inspect", "/dev/null"}), 66, "lumen-convert");
  require_error(run_tool_process("lumen-convert", {"--inspect", model, "--tokenizer", "/no/such"}),
                66, "lumen-convert");
}

TEST_CASE("bench measures prompt and generation apart") {
  const auto outcome = run_tool_process(
      "lumen-bench", {"llm", "-p", "16", "-n", "4,8", "-t", "1,2", "-r", "2", "-o", "json"});
  CAPTURE(outcome.err);
  const auto json = io::parse_json(outcome.out, "");
  REQUIRE(json["results"].size() == 6);
  REQUIRE(json["results"][0]["test"] == "pp16");
  for (const auto& row : json["results"]) {
    REQUIRE(row["min"] <= row["median"]);
    REQUIRE(row["samples"].size() == 2);
    const bool generates = row["test"].get<std::string>().starts_with("tg");
    REQUIRE(row.contains("bandwidth_fraction") == generates);
    if (generates) REQUIRE(row["bytes_per_token"] > 1000);
  }
  for (const auto& load : json["loading"]) REQUIRE(load["read_bandwidth"] > 1e8);
  for (const Arguments& bad : {Arguments{"llm", "-p", "1,,2"},
                               {"llm", "-r", "0"},
                               {"llm", "-t", "0"},
                               {"llm", "-b", "0"},
                               {"llm", "-p", "4", "-n", "0", "-b", "2"},
                               {"llm", "-p", "100000"},
                               {"llm", "-n", "-1"},
                               {"llm", "-o", "xml"},
                               {"lmm"},
                               {}}) {
    CAPTURE(bad);
    require_error(run_tool_process("lumen-bench", bad), 2, "lumen-bench");
  }
  require_error(run_tool_process("lumen-run", {"-p", "a", "-n", "1", "--set", "rope_theta=much"}),
                2, "lumen-run");
  for (const std::vector<std::string>& nothing :
       {std::vector<std::string>{"llm", "-p", "0", "-n", "0"}, {"llm", "-p", ""}}) {
    require_error(run_tool_process("lumen-bench", nothing), 2, "lumen-bench");
  }
  const auto deep = run_tool_process("lumen-bench", {"llm", "-d", "100000"});
  require_error(deep, 2, "lumen-bench");
  REQUIRE(contains(deep.err, "--depth 100000: the model has only"));
  REQUIRE(contains(run_tool_process("lumen-bench", {"llm", "-n", "2", "-r", "1"}).out,
                   "| pp256 |"));  // as many as the built-in model has positions
}

TEST_CASE("operations are measured against the peak of the machine") {
  const auto outcome = run_tool_process(
      "lumen-bench", {"ops", "--filter", "softmax", "--seconds", "0", "-t", "2", "--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const auto report = io::parse_json(outcome.out, "bench");
  REQUIRE(report["peak"]["gflops"].get<double>() > 0);
  REQUIRE(report["peak"]["gbytes_per_second"].get<double>() > 0);
  REQUIRE(report["results"].size() >= 3);  // softmax, log_softmax, softmax_backward
  for (const auto& row : report["results"]) {
    REQUIRE(row["median_ms"].get<double>() > 0);
    REQUIRE(row["gbytes_per_second"].get<double>() > 0);
    REQUIRE(row["share_of_peak"].get<double>() > 0);
  }
  require_error(run_tool_process("lumen-bench", {"ops", "--filter", "nothing"}), 2, "lumen-bench");
}

struct ChatTerminal : TerminalProcess {
  explicit ChatTerminal(const std::string& term = "xterm")
      : TerminalProcess("lumen-run", {"--no-history", "-n", "4", "--seed", "1"}, term) {}
};

TEST_CASE("at a terminal there is a chat, which Ctrl-D leaves with the terminal restored") {
  for (const std::string term : {"xterm", "dumb"}) {
    CAPTURE(term);
    ChatTerminal chat(term);
    REQUIRE(chat.wait_for("> "));
    chat.type("hello\r");
    REQUIRE(chat.wait_for("> "));
    chat.type("/show messages\r");
    REQUIRE(chat.wait_for("user: hello"));
    REQUIRE(chat.wait_for("> "));
    chat.type("\x04");
    const auto outcome = chat.finish();
    REQUIRE(outcome.exit_code == 0);
    REQUIRE(chat.is_in_normal_state());
  }
}

TEST_CASE("where a prompt is shown the editor has the terminal already") {
  ChatTerminal chat;
  for (int i = 0; i < 20; ++i) {
    REQUIRE(chat.wait_for("> "));
    REQUIRE_FALSE(chat.is_in_normal_state());
    chat.type("/help\r");
    REQUIRE(chat.wait_for("/exit"));
  }
}

TEST_CASE("Ctrl-C twice on an empty line leaves the chat with 130") {
  for (const std::string term : {"xterm", "dumb"}) {
    CAPTURE(term);
    ChatTerminal chat(term);
    REQUIRE(chat.wait_for("> "));
    chat.type("\x03");
    REQUIRE(chat.wait_for("Ctrl-C again"));
    REQUIRE(chat.wait_for("> "));
    chat.type("\x03");
    REQUIRE(chat.finish().exit_code == 130);
    REQUIRE(chat.is_in_normal_state());
  }
}

TEST_CASE("editing keys, UTF-8 and pasted newlines") {
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("wrld\x1b[D\x1b[D\x7f\x1b[Ho\x7f\x1b[Cor\x1b[F \u00e4\u20ac\r");
  REQUIRE(chat.wait_for("> "));
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("user: world \u00e4\u20ac"));
  REQUIRE(chat.wait_for("> "));
  chat.type("\x1b[200~/exit\rtwo\r\nthree\x1b[201~ end\r");
  REQUIRE(chat.wait_for("> "));
  chat.type("/show messages\r");
  REQUIRE(chat.wait_for("user: /exit\r\ntwo\r\nthree end\r\n"));
  REQUIRE(chat.wait_for("> "));  // Ctrl-D typed between two prompts would be the terminal's own
  chat.type("\x04");
  REQUIRE(chat.finish().exit_code == 0);
}

TEST_CASE("SIGTERM at the prompt ends the chat with the terminal restored") {
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.send(SIGTERM);
  REQUIRE(chat.finish().exit_code == 143);
  REQUIRE(chat.is_in_normal_state());
}

TEST_CASE("half a line of a batch holds up neither running answers nor signals") {
  for (const auto& [signal, exit_code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    CAPTURE(signal);
    TerminalProcess batch("lumen-run", {random_model(), "--raw", "--batch", "-", "-n", "8"});
    // Ctrl-D hands over what has been typed of a line.
    batch.type("{\"prompt\": \"a\"}\r{\"prompt\":\x04");
    REQUIRE(batch.wait_for("\"stop_reason\":"));
    batch.send(signal);
    REQUIRE(batch.finish().exit_code == exit_code);
  }
}

TEST_CASE("a model file that is cut short while in use ends the chat with an I/O error") {
  const std::string model = lumen::testing::temporary_directory() + "/model.gguf";
  std::filesystem::copy_file(random_model(), model);
  TerminalProcess chat("lumen-run", {model, "--no-history"});
  REQUIRE(chat.wait_for("> "));
  std::filesystem::resize_file(model, 0);
  chat.type("hello\r");
  REQUIRE(chat.wait_for("lumen-run: error: "));
  REQUIRE(chat.finish().exit_code == 74);
  REQUIRE(chat.is_in_normal_state());
}

TEST_CASE("an idle chat uses no processor time") {
  ChatTerminal chat;
  REQUIRE(chat.wait_for("> "));
  chat.type("hello\r");
  REQUIRE(chat.wait_for("> "));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // workers stop spinning
  const double before = chat.cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  REQUIRE(chat.cpu_seconds() - before < 0.02);
}

}  // namespace
}  // namespace lumen::runtime
