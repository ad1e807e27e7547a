#include "lib/runtime/bench/bench_compare.h"

#include <fstream>

#include "lib/base/testing.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using io::Json;
using lumen::testing::contains;
using lumen::testing::refusal;
using testing::run_tool_process;

const std::vector<double> kSlow = {89, 90, 90.5, 91, 92}, kFast = {99, 100, 100.5, 101, 102};

Json llm_row(const std::string& test, const std::vector<double>& samples) {
  return {{"test", test}, {"threads", 2}, {"depth", 0}, {"batch", 1}, {"samples", samples}};
}

Json environment() {
  return {{"cpu", "Some CPU"},
          {"machine", "x86_64"},
          {"kernel", "Linux 6.1"},
          {"build", {{"build_type", "release"}, {"simd", {{"chosen", "avx2"}}}}}};
}

Json llm_report(const std::vector<Json>& rows) {
  return {{"schema", 1},
          {"benchmark", "llm"},
          {"model", {{"name", "a/m.gguf"}, {"model_type", "llama"}, {"bytes", 1000}}},
          {"settings", {{"kv", "f16"}, {"repack", true}}},
          {"results", rows},
          {"environment", environment()}};
}

Json train_report(const std::vector<double>& seconds) {
  return {
      {"schema", 1},
      {"benchmark", "train"},
      {"recipe", {{"name", "r"}, {"batch", "64 rows"}, {"precision", "high"}, {"parameters", 10}}},
      {"results", Json::array({{{"test", "train_step"}, {"threads", 1}, {"samples", seconds}}})},
      {"environment", environment()}};
}

Comparison compared(const Json& a, const Json& b, const GateOptions& options = {}) {
  return compare_reports(parse_bench_report(a, "a.json"), parse_bench_report(b, "b.json"), options);
}

// Of one row with these samples.
RowComparison compared_row(const std::vector<double>& a, const std::vector<double>& b,
                           const GateOptions& options = {}) {
  return compared(llm_report({llm_row("tg", a)}), llm_report({llm_row("tg", b)}), options).rows[0];
}

TEST_CASE("a regression is beyond the threshold, and its samples are apart", "[bench]") {
  const RowComparison worse = compared_row(kFast, kSlow);
  REQUIRE(worse.verdict == Verdict::kRegression);
  REQUIRE(worse.old_median == 100.5);
  REQUIRE(worse.new_median == 90.5);
  REQUIRE(worse.ratio == Approx(90.5 / 100.5));
  REQUIRE(worse.interval.high < 1);
  REQUIRE(worse.p_value == Approx(2.0 / 252));
  REQUIRE(compared_row(kFast, kSlow, {.threshold = 15}).verdict == Verdict::kUnchanged);
  REQUIRE(compared_row(kSlow, kFast).verdict == Verdict::kImprovement);
  REQUIRE(compared_row(kFast, kFast).verdict == Verdict::kUnchanged);
  REQUIRE(compared_row({100, 90, 110, 80, 120}, {90, 100, 80, 110, 70}).verdict == Verdict::kNoise);
  REQUIRE(compared_row({100, 101, 102}, {50, 51, 52}).verdict == Verdict::kInconclusive);
  REQUIRE(compared_row({100, 101, 102}, {99, 100, 101}).verdict == Verdict::kUnchanged);
  REQUIRE(compared_row({50, 51, 52}, {100, 101, 102}).verdict == Verdict::kNoise);
  std::vector<double> old_samples(13, 100), new_samples(11, 99);  // two modes, each a little worse
  old_samples.resize(25, 50);
  new_samples.resize(25, 49);
  const RowComparison modes = compared_row(old_samples, new_samples);
  REQUIRE(modes.p_value < 0.05);
  REQUIRE(modes.interval.high > 1);
  REQUIRE(modes.verdict == Verdict::kNoise);
}

TEST_CASE("of times the smaller is the better", "[bench]") {
  const std::vector<double> slow = {0.02, 0.021, 0.022, 0.023, 0.024},
                            fast = {0.01, 0.011, 0.0115, 0.012, 0.013};
  const Comparison worse = compared(train_report(fast), train_report(slow));
  REQUIRE(worse.rows[0].verdict == Verdict::kRegression);
  REQUIRE(worse.rows[0].old_median == Approx(11.5));
  REQUIRE(worse.rows[0].ratio == Approx(11.5 / 22));
  const Comparison better = compared(train_report(slow), train_report(fast));
  REQUIRE(better.rows[0].verdict == Verdict::kImprovement);
}

TEST_CASE("rows are paired by what they measured; lost ones leave the gate undecided", "[bench]") {
  const Json two = llm_report({llm_row("tg", kFast), llm_row("pp", kSlow)});
  const Json swapped = llm_report({llm_row("pp", kSlow), llm_row("tg", kFast)});
  const Json one = llm_report({llm_row("tg", kFast)});
  const GateOptions strict, lenient = {.threshold = 5, .inconclusive = "pass"};
  REQUIRE(gate_exit_code(compared(two, swapped), strict) == 0);
  const Comparison lost = compared(two, one);
  REQUIRE(lost.rows.size() == 2);
  REQUIRE(lost.rows[1].verdict == Verdict::kOnlyOld);
  REQUIRE(lost.rows[1].name == "pp, threads 2, depth 0, batch 1");
  REQUIRE(gate_exit_code(lost, strict) == 4);
  REQUIRE(gate_exit_code(lost, lenient) == 0);
  const Comparison added = compared(one, two);
  REQUIRE(added.rows[1].verdict == Verdict::kOnlyNew);
  REQUIRE(gate_exit_code(added, strict) == 0);
  const Json worse = llm_report({llm_row("tg", kSlow)});
  REQUIRE(gate_exit_code(compared(two, worse), lenient) == 3);
  const Comparison merged = compared(llm_report({llm_row("tg", {1, 2}), llm_row("tg", {3})}), one);
  REQUIRE(merged.rows.size() == 1);
  REQUIRE(merged.rows[0].old_samples == 3);
}

TEST_CASE("unlike reports are not compared", "[bench]") {
  const Json report = llm_report({llm_row("tg", kFast)});
  struct Change {
    const char *pointer, *name;
    Json value;
    bool of_machine;
  };
  const Change changes[] = {
      {"/model/name", "model.name is 'm.gguf' in the old, 'b.gguf' in the new", "x/b.gguf", false},
      {"/model/bytes", "model.bytes is 1000 in the old, 1001", 1001, false},
      {"/model/model_type", "model.model_type", "gpt2", false},
      {"/settings/kv", "settings.kv", "q8_0", false},
      {"/settings/repack", "settings.repack is true in the old, false", false, false},
      {"/environment/build/build_type", "build_type is 'release' in the old", "debug", false},
      {"/environment/cpu", "environment.cpu is 'Some CPU' in the old, 'Other'", "Other", true},
      {"/environment/kernel", "environment.kernel", "Linux 7", true},
      {"/environment/build/simd/chosen", "simd.chosen is 'avx2'", "amx", true},
  };
  for (const Change& change : changes) {
    CAPTURE(change.pointer);
    Json other = report;
    other[Json::json_pointer(change.pointer)] = change.value;
    for (const bool allowed : {false, true}) {
      const GateOptions options = {.threshold = 5, .allow_different_machines = allowed};
      const auto compare = [&] { compared(report, other, options); };
      const bool accepted = allowed && change.of_machine;
      const std::string message =
          accepted ? (compare(), "") : refusal(ErrorKind::kInconclusive, compare);
      REQUIRE(contains(message, accepted ? "" : change.name));
    }
  }
  Json elsewhere = report;
  elsewhere["model"]["name"] = "another/directory/m.gguf";
  REQUIRE(compared(report, elsewhere).rows.size() == 1);
  Json threads = report;
  threads["results"][0]["threads"] = 4;
  REQUIRE(contains(refusal(ErrorKind::kInconclusive, [&] { compared(report, threads); }),
                   "threads is '2' in the old, '4' in the new"));
  REQUIRE(contains(refusal(ErrorKind::kInconclusive,
                           [&] {
                             compared(report, train_report({1, 2}));
                           }),
                   "benchmark is 'llm' in the old, 'train' in the new"));
  Json later = report;
  later["schema"] = 2;
  REQUIRE(contains(refusal(ErrorKind::kInconclusive, [&] { compared(report, later); }),
                   "b.json: schema is 2"));
  for (const char* key : {"name", "batch", "precision", "parameters"}) {
    Json other = train_report(kFast);
    Json& value = other["recipe"][key];
    value = value.is_string() ? Json("other") : Json(11);
    REQUIRE(contains(
        refusal(ErrorKind::kInconclusive, [&] { compared(train_report(kFast), other); }), key));
  }
  Json one = train_report(kFast), two = one;
  one["recipe"]["settings_sha256"] = "aa";
  REQUIRE(compared(one, two).rows.size() == 1);  // of a Lumen that did not write it
  two["recipe"]["settings_sha256"] = "bb";
  REQUIRE(contains(refusal(ErrorKind::kInconclusive, [&] { compared(one, two); }),
                   "recipe.settings_sha256 is 'aa' in the old, 'bb' in the new"));
}

TEST_CASE("steps of recipes that differ in what a step computes are not compared", "[bench]") {
  const auto report = [](const std::string& setting) {
    const auto outcome =
        run_tool_process("lumen-bench", {"train", "digits-mlp", "-r", "1", "-t", "1", "-o", "json",
                                         "--set", "data.digits_train=128", "--set", setting});
    CAPTURE(setting, outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return Json::parse(outcome.out);
  };
  const Json usual = report("train.steps=5");
  REQUIRE(compared(usual, report("train.steps=9")).rows.size() == 1);
  for (const char* setting : {"train.micro_batch=8", "model.dropout=0.5", "optimizer.type=sgd",
                              "train.activation_checkpointing=true"}) {
    CAPTURE(setting);
    const Json other = report(setting);
    REQUIRE(contains(refusal(ErrorKind::kInconclusive, [&] { compared(usual, other); }),
                     "recipe.settings_sha256"));
  }
}

TEST_CASE("what no lumen-bench wrote is refused with its place", "[bench]") {
  struct Fault {
    const char *pointer, *message;
    Json value;
  };
  const Fault faults[] = {
      {"/schema", "a.json: key 'schema': found the string '1'", "1"},
      {"/benchmark", "a.json: benchmark: found nothing", nullptr},
      {"/benchmark", "benchmark: found the string 'compare', expected 'llm'", "compare"},
      {"/model", "a.json: model.name: found nothing, expected a string", Json::array()},
      {"/model/bytes", "model.bytes: found the number -1, expected a whole number", -1},
      {"/settings/repack", "settings.repack: found the number 1, expected true or false", 1},
      {"/environment/build/simd", "environment.build.simd.chosen: found nothing", 3},
      {"/results", "results: found an object, expected an array", Json::object()},
      {"/results", "results: found an array of 0, expected an array that is not", Json::array()},
      {"/results/0", "results[0]: test: found nothing, expected a string", 7},
      {"/results/0/threads", "results[0]: threads: found the number 1.5", 1.5},
      {"/results/0/samples", "results[0]: samples: found an array of 0", Json::array()},
      {"/results/0/samples/1", "results[0]: samples[1]: found the string 'a', expected a", "a"},
      {"/results/0/samples/1", "samples[1]: found the number -3, expected a number from", -3},
      {"/results/0/samples/1", "samples[1]: found the number 0", 0},
      {"/results/0/samples/1", "samples[1]: found the number 1e+300", 1e300},
      {"/results/0/samples/1", "samples[1]: found null", nullptr},
  };
  for (const Fault& fault : faults) {
    CAPTURE(fault.message);
    Json report = llm_report({llm_row("tg", kFast)});
    report[Json::json_pointer(fault.pointer)] = fault.value;
    const std::string message =
        refusal(ErrorKind::kMalformed, [&] { parse_bench_report(report, "a.json"); });
    CAPTURE(message);
    REQUIRE(contains(message, fault.message));
  }
  const std::vector<Json> rows(4097, llm_row("tg", {1}));
  REQUIRE(contains(
      refusal(ErrorKind::kMalformed, [&] { parse_bench_report(llm_report(rows), "a.json"); }),
      "a.json: results: found an array of 4097, expected at most 4096 rows"));
}

TEST_CASE("names from a report do not break a table or XML", "[bench]") {
  const Json old_report = llm_report({llm_row("a|<&\"\n\x01>", kFast), llm_row("gone", kFast)});
  const Json new_report = llm_report({llm_row("a|<&\"\n\x01>", kSlow)});
  GateOptions options = {.threshold = 5, .inconclusive = "pass"};
  const Comparison comparison = compared(old_report, new_report, options);
  const std::string table = to_text(comparison, options, "md");
  CAPTURE(table);
  REQUIRE(
      contains(table, "\n| a\\|<&\"\\n\\x01>, threads 2, depth 0, batch 1 | 100.500 | 90.500 |"));
  REQUIRE(contains(table, "| regression |\n"));
  REQUIRE(contains(table, "Regression: 1 of 1 rows slower by more than 5 %"));
  options.threshold = 9.875;
  REQUIRE(contains(to_text(compared(old_report, new_report, options), options, "md"),
                   "rows slower by more than 9.875 %; the slowest"));
  const std::string xml = to_text(comparison, options, "junit");
  CAPTURE(xml);
  REQUIRE(contains(xml, "tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\""));
  REQUIRE(contains(xml, "name=\"a|&lt;&amp;&quot;\\n\\x01&gt;, threads 2, depth 0, batch 1\""));
  REQUIRE(contains(xml, "<failure type=\"regression\" message=\"100.500 to 90.500 tokens/s"));
  REQUIRE(contains(xml, "<skipped message=\"only in old\"/>"));
  const Json json = io::parse_json(to_text(comparison, options, "json"), "");
  REQUIRE(json["exit_code"] == 3);
  REQUIRE(json["results"][0]["verdict"] == "regression");
  REQUIRE(json["results"][1]["old_median"] == 100.5);
  REQUIRE_FALSE(json["results"][1].contains("ratio"));
}

// The exit code and streams of lumen-bench compare with these texts as files.
testing::Outcome compare_files(const std::string& a, const std::string& b,
                               std::vector<std::string> options = {}) {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/a.json") << a;
  std::ofstream(directory + "/b.json") << b;
  options.insert(options.begin(), {"compare", directory + "/a.json", directory + "/b.json"});
  return run_tool_process("lumen-bench", options);
}

TEST_CASE("exit codes of lumen-bench compare", "[bench]") {
  const std::string fast = llm_report({llm_row("tg", kFast)}).dump();
  const std::string slow = llm_report({llm_row("tg", kSlow)}).dump();
  const std::string few = llm_report({llm_row("tg", {50, 51})}).dump();
  REQUIRE(compare_files(slow, fast).exit_code == 0);
  const auto regression = compare_files(fast, slow);
  REQUIRE(regression.exit_code == 3);
  REQUIRE(regression.err.empty());
  REQUIRE(compare_files(fast, slow, {"--threshold", "20"}).exit_code == 0);
  REQUIRE(compare_files(fast, few).exit_code == 4);
  REQUIRE(compare_files(fast, few, {"--inconclusive", "pass"}).exit_code == 0);
  const auto unlike = compare_files(fast, train_report({1}).dump(), {"--inconclusive", "pass"});
  REQUIRE(unlike.exit_code == 4);
  REQUIRE(unlike.out.empty());
  const std::string deep(100'000, '[');
  std::string not_a_number = fast;
  not_a_number.replace(not_a_number.find("99.0"), 4, "NaN");
  for (const std::string& bad :
       {std::string("x"), std::string("{}"), deep, not_a_number, fast.substr(0, fast.size() / 2)}) {
    const auto outcome = compare_files(fast, bad);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 65);
    REQUIRE(outcome.out.empty());
    REQUIRE(contains(outcome.err, "b.json: "));
  }
  const auto two_lines = compare_files(fast, fast + "\n" + fast);  // as -o jsonl writes them
  REQUIRE(two_lines.exit_code == 65);
  REQUIRE(
      contains(two_lines.err, "; expected a report as lumen-bench llm, train or ops writes it"));
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"compare"},
                                              {"compare", "a"},
                                              {"compare", "a", "b", "--threshold", "-1"},
                                              {"compare", "a", "b", "--inconclusive", "maybe"},
                                              {"compare", "a", "b", "-o", "xml"},
                                              {"compare", "a", "b", "c"}}) {
    REQUIRE(run_tool_process("lumen-bench", bad).exit_code == 2);
  }
}

TEST_CASE("what each verb writes can be compared", "[bench]") {
  const std::vector<std::vector<std::string>> commands = {
      {"llm", "-p", "4", "-n", "2", "-r", "5", "-t", "1", "-o", "json"},
      {"train", "digits-mlp", "-r", "5", "-t", "1", "-o", "json"},
      {"ops", "--filter", "softmax", "--seconds", "0", "-t", "1", "--json"}};
  for (const std::vector<std::string>& command : commands) {
    const auto report = run_tool_process("lumen-bench", command);
    CAPTURE(command, report.err);
    REQUIRE(report.exit_code == 0);
    const auto outcome = compare_files(report.out, report.out);
    CAPTURE(outcome.err, outcome.out);
    REQUIRE(outcome.exit_code == 0);
    REQUIRE(contains(outcome.out, "| 1.000 |"));
  }
}

}  // namespace
}  // namespace lumen::runtime
