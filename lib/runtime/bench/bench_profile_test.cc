// Profiles as lumen-bench prints them, and traces as viewers read them.
#include "lib/runtime/bench/bench_profile.h"

#include <algorithm>
#include <fstream>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::Arguments;
using testing::run_tool_process;

Profile example() {
  Profile profile;
  profile.steps = 7;
  profile.wall_seconds = 0.1;
  profile.rows = {{"linear+add", "128×10×784", 2, 0.06, 0.6, 2e9, 3e9},
                  {"softmax", "[128, 10]", 1.5, 0.0375, 0.375, 0.0, 5e8},
                  {"data", "", 1, 0.0004, 0.004, {}, {}},
                  {"exp", "[3]", 1, 0.0001, 0.001, 1e9, 1e9}};
  return profile;
}

TEST_CASE("a profile as a table: small operations in one row, the sum beside the wall time") {
  const io::Json report = {
      {"results", {{{"profile", to_json(example(), "x, threads 2", "step")}}}}};
  CHECK(profile_tables(report) ==
        "\nx, threads 2: where the time of a step goes (mean of 7)\n\n"
        "| operation | shapes | calls | ms | share | GFLOP/s | GB/s |\n"
        "|---|---|--:|--:|--:|--:|--:|\n"
        "| linear+add | 128×10×784 | 2 | 60.000 | 60.0 % | 2.0 | 3.0 |\n"
        "| softmax | [128, 10] | 1.50 | 37.500 | 37.5 % |  | 0.5 |\n"
        "| other | 2 of less than 0.5 % | 2 | 0.500 | 0.5 % |  |  |\n"
        "| sum | wall time 100.000 ms | 5.50 | 98.000 | 98.0 % |  |  |\n");
}

TEST_CASE("a profile as JSON has all operations, and no rates that are not known") {
  const io::Json json = to_json(example(), "x", "token");
  CHECK(json["unit"] == "token");
  CHECK(json["steps"] == 7);
  CHECK(json["wall_ms"].get<double>() == Approx(100));
  CHECK(json["sum_ms"].get<double>() == Approx(98));
  REQUIRE(json["operations"].size() == 4);
  CHECK(json["operations"][0]["gflops"].get<double>() == Approx(2));
  CHECK_FALSE(json["operations"][2].contains("gflops"));
}

TEST_CASE("a trace is JSON of complete events in microseconds") {
  const io::Json trace = io::parse_json(
      trace_text({{"pp \"8\"", {{"step", "", 0, 0.5}, {"linear", "1×2×3", 0.25, 0.000001}}},
                  {"tg", {{"step", "", 0, 1}}}}),
      "trace");
  const io::Json& events = trace["traceEvents"];
  REQUIRE(events.size() == 5);
  CHECK(events[0]["ph"] == "M");
  CHECK(events[0]["args"]["name"] == "pp \"8\"");
  CHECK(events[2]["name"] == "linear");
  CHECK(events[2]["ph"] == "X");
  CHECK(events[2]["ts"] == 250000);
  CHECK(events[2]["dur"] == 1);
  CHECK(events[2]["args"]["shapes"] == "1×2×3");
  CHECK(events[2]["pid"] == events[0]["pid"]);
  CHECK(events[4]["pid"] != events[0]["pid"]);
}

TEST_CASE("a trace does not take the place of something else") {
  const std::string path = lumen::testing::temporary_directory() + "/trace.json";
  std::ofstream(path) << "{\"weights\": 1}";
  const auto make = [&](const std::string& file) { Profiles({.profile = false, .trace = file}); };
  CHECK(contains(refusal(ErrorKind::kCannotCreate, [&] { make(path); }), "a trace"));
  CHECK(contains(refusal(ErrorKind::kCannotCreate, [&] { make("/no/such/trace.json"); }),
                 "/no/such"));
  std::ofstream(path) << trace_text({});
  make(path);
}

// The profile of each row of the report that `lumen-bench` prints.
std::vector<io::Json> profiles_of(Arguments arguments) {
  arguments.insert(arguments.end(), {"--profile", "--json"});
  const auto outcome = run_tool_process("lumen-bench", arguments);
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const io::Json report = io::parse_json(outcome.out, "bench");
  std::vector<io::Json> profiles;
  for (const io::Json& row : report["results"]) profiles.push_back(row.at("profile"));
  return profiles;
}

// What lies between the operations is little.
void check_sum(const io::Json& profile) {
  const double wall = profile["wall_ms"].get<double>(), sum = profile["sum_ms"].get<double>();
  CAPTURE(wall, sum);
  CHECK(sum <= wall * 1.0001);
  CHECK(sum >= wall * 0.8);  // 0.95 on a machine without other work
  double total = 0;
  for (const io::Json& operation : profile["operations"]) {
    CHECK(operation["calls"].get<double>() > 0);
    total += operation["ms"].get<double>();
  }
  CHECK(total == Approx(sum));
}

bool has(const io::Json& profile, const std::string& name) {
  return std::ranges::any_of(profile["operations"], [&](const io::Json& operation) {
    return operation["operation"].get<std::string>() == name;
  });
}

TEST_CASE("training steps are profiled with what is outside of plans") {
  const auto profiles = profiles_of({"train", "digits-mlp", "-r", "200", "-t", "1,2"});
  REQUIRE(profiles.size() == 2);
  for (const io::Json& profile : profiles) {
    CHECK(profile["unit"] == "step");
    check_sum(profile);
    for (const char* name : {"linear", "matmul", "data", "optimizer", "gradient norm"}) {
      CAPTURE(name);
      CHECK(has(profile, name));
    }
  }
}

TEST_CASE("prompts and generation are profiled apart") {
  const auto profiles =
      profiles_of({"llm", "-p", "16", "-n", "4", "-b", "1,2", "-r", "9", "-t", "1"});
  REQUIRE(profiles.size() == 3);
  CHECK(profiles[0]["unit"] == "prompt");
  CHECK(profiles[1]["unit"] == "token");
  CHECK(profiles[2]["unit"] == "pass");
  for (const io::Json& profile : profiles) {
    check_sum(profile);
    CHECK(has(profile, "attention"));
  }
}

TEST_CASE("a profile in the forms of a report, and beside it a trace") {
  const std::string path = lumen::testing::temporary_directory() + "/digits.json";
  const Arguments verb = {"train", "digits-mlp", "-r", "1", "-t", "1"};
  const auto run = [&](const Arguments& more) {
    Arguments arguments = verb;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = run_tool_process("lumen-bench", arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out;
  };
  const std::string table = run({"--profile", "--trace", path});
  CHECK(contains(table, "digits-mlp, threads 1: where the time of a step goes"));
  CHECK(contains(table, "\n| sum | wall time "));
  const io::Json trace = io::read_json(path);
  CHECK(trace["traceEvents"].size() > 10);

  const std::string csv = run({"--profile", "-o", "csv"});
  CHECK(
      csv.starts_with("recipe.name,recipe.batch,recipe.precision,recipe.parameters,"
                      "recipe.settings_sha256,test,threads,operation,shapes,calls,ms,share,gflops,"
                      "gbytes_per_second,environment.cpu,"));
  CHECK(contains(csv, ",train_step,1,linear+relu,128×128×784,1.0,"));
  const std::string lines = run({"--profile", "-o", "jsonl"});
  CHECK(std::ranges::count(lines, '\n') == 1);
  CHECK(io::parse_json(lines, "")["profile"]["operations"].size() > 5);
  CHECK_FALSE(contains(run({"--trace", path}), "where the time"));
  CHECK_FALSE(contains(run({"--json"}), "\"profile\""));
}

TEST_CASE("an answer and a training run tell where their time went") {
  const auto ask = [](const Arguments& more) {
    Arguments arguments = {"-p", "Hello", "-n", "4", "--lookup", "0", "-t", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = run_tool_process("lumen-run", arguments);
    REQUIRE(outcome.exit_code == 0);
    return outcome;
  };
  const auto plain = ask({}), answer = ask({"--profile"});
  CHECK(plain.out == answer.out);
  CHECK_FALSE(contains(plain.err, "where the time"));
  CHECK(contains(answer.err, "threads 1: where the time of a prompt goes (mean of 1)"));
  CHECK(contains(answer.err,
                 "answer, 4 tokens, threads 1: where the time of a token goes (mean of 3)"));
  CHECK(contains(answer.err, "\n| linear | "));
  const auto run = run_tool_process(
      "lumen-train", {"digits-mlp", "--set", "train.steps=5", "-t", "1", "--profile", "--out",
                      lumen::testing::temporary_directory() + "/run"});
  CAPTURE(run.err);
  CHECK(run.exit_code == 0);
  CHECK(contains(run.err, "digits-mlp, threads 1: where the time of a step goes (mean of 5)"));
  CHECK(contains(run.err, "\n| optimizer | "));
}

TEST_CASE("a trace that cannot be written is refused before anything is measured") {
  const auto outcome = run_tool_process(
      "lumen-bench", {"train", "digits-mlp", "--trace", "/no/such/directory/trace.json"});
  CHECK(outcome.exit_code == 73);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "/no/such/directory"));
}

}  // namespace
}  // namespace lumen::runtime
