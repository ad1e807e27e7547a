#include "lib/runtime/tool/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "lib/base/testing.h"

namespace lumen::runtime {
namespace {

void set_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("the control group with the least memory left counts, and its page cache as left") {
  const std::string directory = lumen::testing::temporary_directory();
  const std::filesystem::path mount = directory;
  const std::string membership = mount / "self";
  const auto left = [&] { return left_by_control_groups(membership, mount); };
  CHECK(left() == UINT64_MAX);

  SECTION("version 2") {
    set_file(membership, "0::/job/step\n");
    set_file(mount / "job/step/memory.max", "max\n");
    set_file(mount / "job/step/memory.current", "700\n");
    CHECK(left() == UINT64_MAX);
    set_file(mount / "job/memory.max", "1000\n");
    set_file(mount / "job/memory.current", "800\n");
    CHECK(left() == 200);
    set_file(mount / "job/memory.stat", "anon 300\ninactive_file 350\nactive_file 100\nfile 460\n");
    CHECK(left() == 650);
    set_file(mount / "memory.max", "1500\n");  // a container's own
    set_file(mount / "memory.current", "900\n");
    CHECK(left() == 600);
    set_file(mount / "memory.max", "700\n");
    CHECK(left() == 0);
  }
  SECTION("version 1") {
    set_file(membership, "5:cpu:/a\n4:memory:/docker/ab\n0::/\n");
    set_file(mount / "memory/memory.limit_in_bytes",
             "1000\n");  // as a container sees its own group
    set_file(mount / "memory/memory.usage_in_bytes", "900\n");
    set_file(mount / "memory/memory.stat",
             "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200\n");
    CHECK(left() == 600);
  }
}

TEST_CASE("some memory is available") {
  CHECK(available_memory() > 1 << 20);
  CHECK(available_memory() < UINT64_MAX);
}

TEST_CASE("an address-space limit leaves seven eighths of what is not mapped yet") {
  constexpr uint64_t kMore = uint64_t{1} << 28;
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  rlimit limit = before;
  limit.rlim_cur = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + kMore;
  ::setrlimit(RLIMIT_AS, &limit);
  const uint64_t available = available_memory();
  ::setrlimit(RLIMIT_AS, &before);
  CHECK(available <= kMore / 8 * 7);
}

}  // namespace
}  // namespace lumen::runtime
