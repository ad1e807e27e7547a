// lumen-run --doctor.
#include "lib/runtime/doctor.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/tool_process.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::random_model;
using testing::require_error;
using testing::run_tool_process;
using Status = Finding::Status;

// A machine without anything to complain of.
MachineFacts good_machine() {
  io::Json environment = environment_description();
  environment["default_threads"] = 4;
  environment["logical_cpus"] = 8;
  environment["cgroup_cpu_max"] = "max 100000";
  environment["governor"] = "performance";
  environment["load_average"] = 0.1;
  environment["transparent_huge_pages"] = "always [madvise] never";
  environment["build"]["build_type"] = "release";
  environment["build"]["simd"] = {
      {"chosen", "avx2"}, {"supported", {"avx2", "sse4"}}, {"compiled", {"avx2", "sse4"}}};
  return {environment, uint64_t{8} << 30, std::numeric_limits<uint64_t>::max()};
}

Finding finding(const std::vector<Finding>& findings, const std::string& topic) {
  const auto found = std::ranges::find(findings, topic, &Finding::topic);
  REQUIRE(found != findings.end());
  return *found;
}

TEST_CASE("what costs speed on a machine is a warning, each by its own cause") {
  for (const Finding& found : examine_machine(good_machine())) {
    CAPTURE(found.topic, found.text);
    CHECK(found.status == Status::kGood);
  }
  MachineFacts facts = good_machine();
  facts.environment["cgroup_cpu_max"] = "150000 100000";
  facts.environment["governor"] = "powersave";
  facts.environment["load_average"] = 3.0;
  facts.environment["transparent_huge_pages"] = "always madvise [never]";
  facts.environment["build"]["build_type"] = "debug";
  facts.environment["build"]["simd"]["chosen"] = "sse4";
  facts.available_bytes = facts.group_bytes = uint64_t{512} << 20;
  const auto found = examine_machine(facts);
  for (const char* topic :
       {"lumen", "simd", "threads", "memory", "huge pages", "governor", "load"}) {
    CAPTURE(topic);
    CHECK(finding(found, topic).status == Status::kWarning);
  }
  CHECK(contains(finding(found, "threads").text, "allows 1.50 CPUs"));
  CHECK(contains(finding(found, "memory").text, "control group leaves 512 MiB"));
  facts.environment["build"]["simd"]["chosen"] = "sse2";
  CHECK(contains(finding(examine_machine(facts), "simd").text, ": slow"));
  facts.environment["transparent_huge_pages"] = "";
  CHECK(finding(examine_machine(facts), "huge pages").status == Status::kWarning);
}

TEST_CASE("--doctor looks at the machine and the model, and exits with 3 for a problem") {
  const auto machine = run_tool_process("lumen-run", {"--doctor"});
  CAPTURE(machine.err);
  REQUIRE(machine.exit_code == 0);
  for (const char* topic : {"cpu", "simd", "threads", "memory", "huge pages"}) {
    CHECK(contains(machine.out, topic));
  }
  const auto good = run_tool_process("lumen-run", {random_model(), "--doctor", "--json"});
  REQUIRE(good.exit_code == 0);
  const io::Json report = io::Json::parse(good.out);
  REQUIRE(report["healthy"] == true);
  REQUIRE(report["findings"].size() > 8);
  REQUIRE(contains(good.out, "loads, with a context of"));

  const std::string directory = lumen::testing::temporary_directory();
  io::write_file_atomically(directory + "/broken.gguf", "GGUF and nothing else");
  for (const std::string model : {"/broken.gguf", "/missing.gguf"}) {
    CAPTURE(model);
    const auto bad = run_tool_process("lumen-run", {directory + model, "--doctor"});
    REQUIRE(bad.exit_code == 3);
    REQUIRE(contains(bad.out, "problem  files"));
    REQUIRE(contains(bad.err, "lumen-run: error: files: "));
  }
  const std::string cut = directory + "/cut.gguf";
  std::filesystem::copy_file(random_model(), cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  REQUIRE(run_tool_process("lumen-run", {cut, "--doctor"}).exit_code == 3);
}

TEST_CASE("--doctor refuses what has no effect, and writes errors where output fails") {
  require_error(run_tool_process("lumen-run", {"--doctor", "-p", "hi"}), 2);
  require_error(run_tool_process("lumen-run", {"--doctor", "--temp", "0"}), 2);
  require_error(run_tool_process("lumen-run", {"--doctor", "--tokenize"}), 2);
  REQUIRE(run_tool_process("lumen-run", {"--doctor"}, {.close_output = true}).exit_code == 74);
}

}  // namespace
}  // namespace lumen::runtime
