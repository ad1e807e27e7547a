#include "lib/runtime/bench/bench_ab.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lib/base/testing.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::Arguments;
using testing::run_tool_process;

std::string file_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Programs that stand in for lumen-bench.
class FakeBenches {
 public:
  // The path of an executable that runs `script`.
  std::string add(const std::string& name, const std::string& script) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  // One that logs its arguments and reports training steps of so many milliseconds.
  std::string add_report(const std::string& name, const std::string& milliseconds) const {
    std::ofstream(path(name + ".json")) << R"({"schema": 1, "benchmark": "train",
               "recipe": {"name": "r", "batch": "1", "precision": "high", "parameters": 1},
               "results": [{"test": "train_step", "threads": 1, "samples": [)"
                                        << milliseconds << R"(]}],
               "environment": {"cpu": "c", "machine": "m", "kernel": "k",
                               "build": {"build_type": "release", "simd": {"chosen": "avx2"}}}})";
    return add(name, "echo " + name + " $* >> " + path("log") + "; echo note: hello >&2; cat " +
                         path(name + ".json"));
  }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string log() const { return file_text(path("log")); }

 private:
  std::string directory_ = lumen::testing::temporary_directory();
};

testing::Outcome run_ab(const std::string& a, const std::string& b, Arguments rest) {
  rest.insert(rest.begin(), {"ab", "--a", a, "--b", b});
  return run_tool_process("lumen-bench", rest);
}

TEST_CASE("both programs run in turn with the same arguments", "[bench]") {
  const FakeBenches fakes;
  const std::string fast = fakes.add_report("fast", "10, 10.5"),
                    slow = fakes.add_report("slow", "13, 13.5");
  const auto worse =
      run_ab(fast, slow,
             {"--rounds", "4", "-o", "json", "--", "train", "r", "[1, 2]", "--set=", "--", "x"});
  CAPTURE(worse.err);
  REQUIRE(worse.exit_code == 3);
  REQUIRE(worse.err == "note: hello\n");
  const std::string arguments = " train r [1, 2] --set= -o json -- x\n";
  std::string expected;
  for (const char* name : {"fast", "slow", "slow", "fast", "fast", "slow", "slow", "fast"}) {
    expected += name + arguments;
  }
  REQUIRE(fakes.log() == expected);
  const io::Json report = io::parse_json(worse.out, "");
  REQUIRE(report["results"][0]["old_samples"] == 4);
  REQUIRE(report["results"][0]["ratio"].get<double>() == Approx(10.25 / 13.25));
  REQUIRE_FALSE(report.contains("noise_floor_percent"));
  REQUIRE(run_ab(slow, fast, {"--", "train", "r"}).exit_code == 0);
}

TEST_CASE("samples of one process count as one", "[bench]") {
  const FakeBenches fakes;
  const std::string fast = fakes.add_report("fast", "10, 10.1, 10.2, 10.3, 10.4"),
                    slow = fakes.add_report("slow", "13, 13.1, 13.2, 13.3, 13.4");
  const auto few = run_ab(fast, slow, {"--rounds", "3", "--", "train", "r"});
  CAPTURE(few.out);
  REQUIRE(few.exit_code == 4);
  REQUIRE(contains(few.out, "with too few samples to tell"));
  REQUIRE(run_ab(fast, slow, {"--rounds", "4", "--", "train", "r"}).exit_code == 3);
}

TEST_CASE("one program against itself tells the noise of the machine", "[bench]") {
  const std::string bench = testing::tool_path("lumen-bench");
  const auto outcome = run_ab(bench, bench,
                              {"--rounds", "1", "--threshold", "99", "--", "llm", "-p", "4", "-n",
                               "2", "-r", "3", "-t", "1"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(contains(outcome.out, "| pp4, threads 1, depth 0, batch 1 |"));
  REQUIRE(contains(outcome.out, "\nNoise floor: "));
}

TEST_CASE("a lumen-bench without the built-in model beside it measures a named one", "[bench]") {
  const std::string bench = FakeBenches().path("lumen-bench");
  std::filesystem::copy_file(testing::tool_path("lumen-bench"), bench);
  const auto outcome =
      run_ab(bench, bench,
             {"--rounds", "1", "--inconclusive", "pass", "--threshold", "99", "--", "llm",
              testing::random_model(), "-p", "2", "-n", "0", "-r", "1", "-t", "1"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
}

TEST_CASE("a program that fails is told with its last words", "[bench]") {
  const FakeBenches fakes;
  const std::string good = fakes.add_report("good", "10");
  struct Failure {
    std::string program;
    Arguments rest;
    int exit_code;
    const char* message;
  };
  const Failure failures[] = {
      {fakes.add("bad", "echo first >&2; echo it broke >&2; exit 9"),
       {"--", "train"},
       1,
       "train -o json' ended with exit code 9: 'it broke'"},
      {fakes.add("mute", "exit 5"), {"--", "train"}, 1, "exit code 5: it said nothing"},
      {fakes.add("killed", "kill -9 $$"), {"--", "train"}, 1, "exit code 137"},
      {fakes.path("none"), {"--", "train"}, 66, "none': cannot start it: No such file"},
      {fakes.add("idle", ""), {"--", "train"}, 65, "the report of '"},
      {good, {"--", "llm"}, 65, "benchmark: found 'train', expected 'llm'"},
      {good, {"--", "compare"}, 2, "'compare' is not llm, train or ops"},
      {good, {}, 2, "VERB is required"},
      {good, {"word"}, 2, "put -- before 'word'"},
      {good, {"--rounds", "0", "--", "train"}, 2, "rounds"},
  };
  for (const Failure& failure : failures) {
    CAPTURE(failure.message);
    const auto outcome = run_ab(failure.program, good, failure.rest);
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == failure.exit_code);
    REQUIRE(outcome.out.empty());
    REQUIRE(contains(outcome.err, failure.message));
  }
  REQUIRE(run_tool_process("lumen-bench", {"ab", "--", "llm"}).exit_code == 2);
}

TEST_CASE("a signal ends lumen-bench ab and the program that it runs", "[bench]") {
  if (!testing::has_terminals()) return;
  for (const int number : {SIGTERM, SIGINT}) {
    const FakeBenches fakes;
    const std::string pid_file = fakes.path("pid");
    const std::string slow = fakes.add("slow", "echo $$ > " + pid_file + ".new; mv " + pid_file +
                                                   ".new " + pid_file + "; exec sleep 60");
    testing::TerminalProcess ab("lumen-bench", {"ab", "--a", slow, "--b", slow, "--", "train"});
    REQUIRE(ab.wait_for("round 1 of 5"));
    while (!std::filesystem::exists(pid_file)) ::usleep(1000);
    ab.send(number);
    REQUIRE(ab.finish().exit_code == 128 + number);
    pid_t child = 0;
    std::ifstream(pid_file) >> child;
    REQUIRE(child > 0);
    REQUIRE(::kill(child, 0) == -1);
  }
}

}  // namespace
}  // namespace lumen::runtime
