// The forms in which lumen-bench prints its reports: columns and lines that scripts rely on.
#include "lib/runtime/bench/bench_output.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/bench/bench_report.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::Arguments;
using testing::run_tool_process;

constexpr const char* kEnvironment =
    "environment.cpu,environment.build.simd.chosen,environment.build.commit";

io::Json llm_report() {
  return io::parse_json(
      R"({"schema": 1, "benchmark": "llm",
          "model": {"name": "a \"b\", c", "model_type": "llama", "bytes": 12},
          "settings": {"kv": "f16", "repack": true},
          "results": [
            {"test": "pp8", "threads": 2, "depth": 0, "batch": 1, "unit": "tokens/s",
             "median": 1.5, "min": 1, "max": 2, "samples": [1, 1.5, 2]},
            {"test": "tg4", "threads": 2, "depth": 0, "batch": 1, "unit": "tokens/s",
             "median": 3, "min": 3, "max": 3, "bytes_per_token": 8, "bandwidth_fraction": 0.25,
             "samples": [3]}],
          "environment": {"cpu": "x", "machine": "m", "kernel": "k", "build": {"simd": {"chosen": "avx2"}, "commit": "abc", "build_type": "release"}}})",
      "");
}

std::string text(const std::string& form) {
  return report_text(llm_report(), form, [] { return std::string("table"); });
}

TEST_CASE("a report as CSV: one line per row, numbers as in JSON, quotes where they are needed") {
  CHECK(text("csv") ==
        str("model.name,model.model_type,model.bytes,settings.kv,settings.repack,test,threads,"
            "depth,batch,unit,median,min,max,bytes_per_token,bandwidth_fraction,",
            kEnvironment, "\n",
            "\"a \"\"b\"\", c\",llama,12,f16,true,pp8,2,0,1,tokens/s,1.5,1,2,,,x,avx2,abc\n"
            "\"a \"\"b\"\", c\",llama,12,f16,true,tg4,2,0,1,tokens/s,3,3,3,8,0.25,x,avx2,abc\n"));
  CHECK(join(find_bench_kind("train")->csv_columns(), ",") ==
        str("recipe.name,recipe.batch,recipe.precision,recipe.parameters,recipe.settings_sha256,"
            "test,threads,step_ms.median,step_ms.min,step_ms.max,unit,median,min,max,steps,"
            "first_step_ms,last_loss,",
            kEnvironment));
  CHECK(join(find_bench_kind("ops")->csv_columns(), ",") ==
        str("operation,case,shapes,threads,median_ms,gflops,gbytes_per_second,share_of_peak,",
            kEnvironment));
}

TEST_CASE("a report as lines of JSON: each has all that is known of its row") {
  const std::string lines = text("jsonl");
  const size_t end = lines.find('\n');
  const io::Json first = io::parse_json(lines.substr(0, end), "");
  CHECK(first["benchmark"] == "llm");
  CHECK(first["test"] == "pp8");
  CHECK(first["samples"].size() == 3);
  CHECK(first["model"]["bytes"] == 12);
  CHECK(first["environment"]["cpu"] == "x");
  CHECK(!first.contains("results"));
  CHECK(io::parse_json(lines.substr(end + 1), "")["test"] == "tg4");
  CHECK(text("md") == "table");
  CHECK(io::parse_json(text("json"), "") == llm_report());
}

TEST_CASE("--json is -o json; of several forms all but one need files") {
  const auto forms = [](const BenchOutput& output) {
    std::string out;
    for (const BenchTarget& target : targets_of(output)) {
      out += str(target.form, ":", target.file, " ");
    }
    return out;
  };
  CHECK(forms({}) == "md: ");
  CHECK(forms({{}, true}) == "json: ");
  CHECK(forms({{{"json", ""}}, true}) == "json: ");
  CHECK(forms({{{"csv", ""}}, false}) == "csv: ");
  const std::string directory = lumen::testing::temporary_directory();
  CHECK(forms({{{"csv", directory + "/a"}}, true}) == str("csv:", directory, "/a json: "));
  const auto refused = [](const BenchOutput& output, ErrorKind kind = ErrorKind::kUsage) {
    return refusal(kind, [&] { targets_of(output); });
  };
  CHECK(contains(refused({{{"csv", ""}}, true}), "csv and json are both for standard output"));
  CHECK(contains(refused({{{"csv", "a"}, {"md", "a"}}, false}), "csv and md are both for 'a'"));
  CHECK(contains(refused({{{"csv", directory + "/no/a"}}, false}, ErrorKind::kCannotCreate),
                 "there is no such directory"));
}

TEST_CASE("a report in the forms of other programs") {
  const io::Json gha = io::parse_json(text("gha"), "");
  REQUIRE(gha.size() == 2);
  CHECK(gha[0]["name"] == "pp8, threads 2, depth 0, batch 1");
  CHECK(gha[0]["unit"] == "tokens/s");
  CHECK(gha[0]["value"] == 1.5);
  CHECK(gha[0]["range"] == "1 to 2");
  const io::Json google = io::parse_json(text("googlebench"), "");
  CHECK(google["context"]["library_build_type"] == "release");
  const io::Json& rows = google["benchmarks"];
  REQUIRE(rows.size() == 3 + 3 + 1 + 3);
  CHECK(rows[0]["name"] == "pp8/threads:2/depth:0/batch:1");
  CHECK(rows[0]["run_type"] == "iteration");
  CHECK(rows[0]["real_time"] == 1e9);
  CHECK(rows[0]["items_per_second"] == 1);
  CHECK(rows[4]["aggregate_name"] == "median");
  CHECK(rows[4]["name"] == "pp8/threads:2/depth:0/batch:1_median");
  CHECK(std::abs(rows[4]["real_time"].get<double>() - 1e9 / 1.5) < 1);
  CHECK(contains(text("benchstat"),
                 "Benchmark_llm/pp8/threads=2/depth=0/batch=1\t1\t1.5 tokens/s\n"));
  const std::string sql = text("sql");
  CHECK(sql.starts_with("CREATE TABLE IF NOT EXISTS lumen_bench_llm (\"model_name\", "));
  CHECK(contains(sql,
                 ") VALUES ('a \"b\", c', 'llama', 12, 'f16', 1, 'pp8', 2, 0, 1, 'tokens/s', "
                 "1.5, 1, 2, NULL, NULL, 'x', 'avx2', 'abc');\n"));
}

TEST_CASE("lumen-bench prints every form of every report") {
  const std::vector<Arguments> verbs = {
      {"llm", "-p", "4", "-n", "2", "-r", "1", "-t", "1"},
      {"train", "digits-mlp", "-r", "1", "-t", "1"},
      {"ops", "--filter", "softmax_backward", "--seconds", "0", "-t", "1"}};
  const std::string root = lumen::testing::temporary_directory();
  for (const Arguments& verb : verbs) {
    const auto run = [&](const Arguments& form) {
      Arguments arguments = verb;
      arguments.insert(arguments.end(), form.begin(), form.end());
      const auto outcome = run_tool_process("lumen-bench", arguments);
      CAPTURE(outcome.err);
      REQUIRE(outcome.exit_code == 0);
      return outcome.out;
    };
    const std::string& kind = verb.front();
    CAPTURE(kind);
    // One run prints the first form and writes the others; a form is the same in either place.
    const std::vector<std::string> forms = {"csv",         "jsonl", "sql", "benchstat",
                                            "googlebench", "gha",   "json"};
    std::map<std::string, std::string> report;
    Arguments all = {"-o", "md"};
    for (const std::string& form : forms) {
      all.insert(all.end(), {"-o", str(form, ":", root, "/", kind, ".", form)});
    }
    const std::string table = run(all);
    CHECK(contains(table, "| "));
    for (const std::string& form : forms) {
      report[form] = io::read_file(str(root, "/", kind, ".", form), 1 << 20);
    }
    CHECK(report["csv"].starts_with(join(find_bench_kind(kind)->csv_columns(), ",") + "\n"));
    const std::string& lines = report["jsonl"];
    const io::Json line = io::parse_json(lines.substr(0, lines.find('\n')), "");
    CHECK(line["benchmark"] == kind);
    CHECK(!line["samples"].empty());
    CHECK(std::ranges::count(lines, '\n') == std::ranges::count(report["csv"], '\n') - 1);
    CHECK(io::parse_json(report["googlebench"], "")["benchmarks"].size() > 3);
    CHECK(io::parse_json(report["gha"], "")[0]["value"] > 0);
    CHECK(io::parse_json(report["json"], "")["benchmark"] == kind);
    CHECK(contains(report["sql"], "INSERT INTO lumen_bench_" + kind));
    CHECK(contains(report["benchstat"], "\nBenchmark_" + kind + "/"));
    CHECK(io::parse_json(run({"--json"}), "")["benchmark"] == kind);
    CHECK(contains(run({}), "| "));
    if (kind != "train") continue;  // the quickest
    const auto first_line = [](const std::string& text) { return text.substr(0, text.find('\n')); };
    CHECK(first_line(run({"-o", "csv"})) == first_line(report["csv"]));
    CHECK(io::parse_json(first_line(run({"-o", "jsonl"})), "")["benchmark"] == kind);
    CHECK(contains(run({"-o", "sql"}), "INSERT INTO lumen_bench_" + kind));
    CHECK(contains(run({"-o", "benchstat"}), "\nBenchmark_" + kind + "/"));
  }
}

TEST_CASE("a model's file name does not break the table") {
  const std::string model = lumen::testing::temporary_directory() + "/a|b.gguf";
  std::filesystem::copy_file(testing::random_model(), model);
  const auto outcome =
      run_tool_process("lumen-bench", {"llm", model, "-p", "4", "-n", "0", "-r", "1", "-t", "1"});
  CAPTURE(outcome.out, outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(outcome.out.find("\n| a\\|b.gguf | 1 |") != outcome.out.npos);
}

}  // namespace
}  // namespace lumen::runtime
