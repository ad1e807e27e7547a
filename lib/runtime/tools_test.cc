// The tools as their users meet them: exit codes, streams, options, help.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "lib/base/pool.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/tool/child_process.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::Arguments;
using testing::random_model;
using testing::require_error;
using testing::run_tool_process;

TEST_CASE("the built-in model gives the likeliest answer, unless a temperature is asked for") {
  const auto answer = [](const char* seed, std::vector<std::string> more) {
    more.insert(more.begin(), {"-p", "What is Q8_0?", "--json", "-n", "8", "--seed", seed});
    const auto outcome = run_tool_process("lumen-run", more);
    REQUIRE(outcome.exit_code == 0);
    return io::parse_json(outcome.out, "");
  };
  const io::Json first = answer("1", {});
  CHECK(first["sampling"]["temperature"] == 0.0);
  CHECK(answer("2", {})["text"] == first["text"]);
  CHECK(answer("1", {"--temp", "0.7"})["sampling"]["temperature"] == 0.7);
}

TEST_CASE("numeric options refuse what is out of range or no number") {
  const std::vector<std::string> integers = {"--max-tokens", "-n", "--ctx",   "-c",
                                             "--threads",    "-t", "--top-k", "--seed"};
  const std::vector<std::string> numbers = {"--temp",           "--top-p",     "--min-p",
                                            "--repeat-penalty", "--typical-p", "--top-n-sigma",
                                            "--xtc-threshold",  "--dry-base"};
  const std::vector<std::string> bad = {"-2", "9223372036854775808", "0x10", " 1", "1 ", "", "nan"};
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
      {"--lora", "a=x", "-p", "a"},
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
  hint("lumen-run", {"-sys", "Be brief."}, "--system");
  hint("lumen-run", {"m.gguf", "-p", "a", "-no-cnv"}, "--raw");
  hint("lumen-run", {"--grammar-file", "a"}, "--grammar");
  const auto other_way = [](const Arguments& arguments, const char* way) {
    const auto refused = run_tool_process("lumen-run", arguments);
    CAPTURE(arguments, refused.err);
    CHECK(refused.exit_code == 2);
    CHECK(contains(refused.err, str("'; ", way)));
  };
  other_way({"-ngl", "99"}, "all layers are computed on the CPU");
  other_way({"-cnv"}, "without --prompt it is a chat");
  other_way({"-i"}, "without --prompt it is a chat");
  other_way({"--color"}, "leave it out");
  other_way({"--sampler-seq", "kpt"}, "name them: --samplers");
  other_way({"--log-disable"}, "only errors and notes go to stderr");
  CHECK(run_tool_process("lumen-run", {"-p", "a", "-n", "2", "--max-tokens", "-1", "--stop", "a",
                                       "--stop", "e", "--stop", "o"})
            .exit_code == 0);
  hint("lumen-run", {"--n-predict=5"}, "--max-tokens");
  hint("lumen-run", {"--typical", "0.9"}, "--typical-p");
  hint("lumen-run", {"--kv-bits", "8"}, "--kv");
  hint("lumen-run", {"--ignore-chat-template", "-p", "a"}, "--raw");
  hint("lumen-convert", {"a.gguf", "b.gguf", "--split-max-size", "1G"}, "--shard-size");
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
  CHECK(contains(run_tool_process("lumen-run", {"-p", "a", "--special", "false"}).err,
                 "--special has no effect without --tokenize or --detokenize\n"));
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
  for (const auto& [adapter, what] :
       {std::pair("/no/such/adapter", "no such file or directory"), std::pair("/", "no adapter_"),
        std::pair("/dev/null", "neither a directory nor a regular file")}) {
    const auto lora = run_tool_process("lumen-run", {"-p", "a", "--lora", adapter});
    require_error(lora, 66);
    REQUIRE(contains(lora.err, what));
  }
}

TEST_CASE("an architecture that is unknown is told before the weights are looked at") {
  const std::string place = lumen::testing::temporary_directory();
  // A model for pictures too: what its text part needs is nested.
  std::ofstream(place + "/config.json") << R"({"model_type": "gemma5", "text_config": {}})";
  for (const Arguments& arguments : {Arguments{place, "-p", "a"}, {"--draft", place, "-p", "a"}}) {
    const auto outcome = run_tool_process("lumen-run", arguments);
    require_error(outcome, 69);
    REQUIRE(contains(outcome.err,
                     "model_type 'gemma5' is not supported (nearest: gemma); supported: "));
  }
  const auto converted = run_tool_process("lumen-convert", {place, place + "/a.gguf"});
  require_error(converted, 69, "lumen-convert");
  REQUIRE(contains(converted.err, "/config.json: model_type 'gemma5'"));
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
    const auto limits = run_tool_process(tool, {"--limits", "--json"});
    REQUIRE(io::parse_json(limits.out, "")["limits"]["gguf-keys"] == 65536);
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
  CHECK(contains(told, "rows.jsonl: 1 bad row is skipped\n"));
  CHECK(contains(told, "note: 1 text is longer than data.max_length and skipped\n"));
  const std::string previewed = run("skip", "--preview=2");
  CHECK(contains(previewed, "rows.jsonl: 1 bad row is skipped\n"));
  CHECK(contains(previewed, "note: 1 text is longer than data.max_length and skipped\n"));
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

TEST_CASE("a name that is nearly one is told what it is near to, or what there is") {
  const auto refused = [](const std::string& tool, const Arguments& arguments, int exit_code) {
    const auto outcome = run_tool_process(tool, arguments);
    require_error(outcome, exit_code, tool);
    return outcome.err;
  };
  CHECK(contains(refused("lumen-bench", {"trian"}, 2), "'trian'; did you mean train?"));
  CHECK(contains(refused("lumen-bench", {"speed"}, 2), "unknown verb 'speed'; there are llm, "));
  CHECK(contains(refused("lumen-run", {"why", "not"}, 2), "a prompt comes after -p"));
  CHECK(contains(refused("lumen-run", {"--lora", "nosuch", "-p", "x"}, 66),
                 "no such file or directory"));
  const std::string run = lumen::testing::temporary_directory() + "/run";
  std::filesystem::create_directory(run);
  std::ofstream(run + "/recipe.toml") << "";
  CHECK(contains(refused("lumen-train", {run}, 2), "its recipe is '" + run + "/recipe.toml'"));
}

TEST_CASE("scripts/test names the tests there are") {
  if (!io::is_regular_file(lumen::testing::source_path("build/build.ninja"))) return;
  SignalWatch signals;
  const ChildOutcome outcome =
      run_child(lumen::testing::source_path("scripts/test"), {"nosuch"}, 1 << 16, signals);
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "there is no test 'nosuch'; there are base tensor "));
}

TEST_CASE("a tokenizer of another model is told") {
  LUMEN_SHARED_DATA(models, "models/hf");
  const std::string small = models + "/babyllama-tok105", large = models + "/stories260K";
  const auto noted =
      run_tool_process("lumen-run", {large, "--tokenizer", small, "-p", "a", "-n", "1"});
  CHECK(noted.exit_code == 0);
  CHECK(contains(noted.err, "has 105 tokens, the model 512: perhaps they do not belong together"));
  const auto refused = run_tool_process(
      "lumen-run", {small, "--tokenizer", large + "/tokenizer.json", "-p", "a", "-n", "1"});
  require_error(refused, 78);
  CHECK(
      contains(refused.err, large + "/tokenizer.json: the tokenizer (BPE (tokenizer.json)) has "));
}

TEST_CASE("help names rare options, the man page explains them") {
  const std::string help = run_tool_process("lumen-run", {"--help"}).out;
  const std::string man = run_tool_process("lumen-run", {"--generate", "man"}).out;
  for (const std::string name :
       {"presence\\-penalty", "frequency\\-penalty", "logit\\-bias", "dry\\-multiplier",
        "dry\\-base", "dry\\-allowed\\-length", "dry\\-penalty\\-last\\-n",
        "dry\\-sequence\\-breaker", "top\\-n\\-sigma", "typical\\-p", "xtc\\-probability",
        "xtc\\-threshold", "repeat\\-last\\-n", "dynatemp\\-range", "dynatemp\\-exp", "mirostat",
        "mirostat\\-ent", "mirostat\\-lr", "samplers"}) {
    CAPTURE(name);
    CHECK(contains(man, "\n.B \\-\\-" + name + " \\fI"));
    std::string plain = name;
    std::erase(plain, '\\');
    CHECK(contains(help, " --" + plain));
  }
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
  REQUIRE(contains(text.out, R"("first":[2,3,3,6,)"));  // types of tokens, which are integers
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
  // Of an operation the float32 case stands for it, though that in float64 has more bytes.
  const auto relu = testing::run_tool_process(
      "lumen-bench", {"ops", "--filter", "relu", "--seconds", "0", "-t", "2"});
  CHECK(contains(relu.out, "| relu "));
  CHECK_FALSE(contains(relu.out, "f64"));
  require_error(run_tool_process("lumen-bench", {"ops", "--filter", "nothing"}), 2, "lumen-bench");
}

}  // namespace
}  // namespace lumen::runtime
