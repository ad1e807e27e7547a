#include "lib/runtime/tool/environment.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "lib/base/pool.h"
#include "lib/base/strings.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

// The first line of a small system file, or "".
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value after `key` in a "key : value" file such as /proc/cpuinfo, or "".
std::string field_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    return value == line.npos ? "" : line.substr(value);
  }
  return "";
}

std::string now_utc() {
  const std::time_t seconds = std::time(nullptr);
  std::tm civil{};
  gmtime_r(&seconds, &civil);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &civil);
  return text;
}

}  // namespace

uint64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

io::Json environment_description() {
  utsname system{};
  uname(&system);
  double load[3] = {0, 0, 0};
  getloadavg(load, 3);
  const auto pages = static_cast<uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L));
  return {
      {"date", now_utc()},
      {"cpu", to_valid_utf8(field_of("/proc/cpuinfo", "model name"))},
      {"logical_cpus", sysconf(_SC_NPROCESSORS_ONLN)},
      {"default_threads", default_thread_count()},
      {"cgroup_cpu_max", first_line("/sys/fs/cgroup/cpu.max")},
      {"governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
      {"virtualised", field_of("/proc/cpuinfo", "flags").find("hypervisor") != std::string::npos},
      {"transparent_huge_pages", first_line("/sys/kernel/mm/transparent_hugepage/enabled")},
      {"load_average", load[0]},
      {"memory_bytes", pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE))},
      {"kernel", std::string(system.sysname) + " " + system.release},
      {"machine", std::string(system.machine)},
      {"build", build_description()}};
}

}  // namespace lumen::runtime
