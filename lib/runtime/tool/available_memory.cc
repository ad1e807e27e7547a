#include "lib/runtime/tool/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string_view>

namespace lumen::runtime {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The number in a file that holds nothing else; `otherwise` if there is none ("max").
uint64_t number_in(const std::string& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : otherwise;
}

// The sum of the values of `keys` in a file of lines "key value unit".
uint64_t sum_of(const std::string& path, std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  uint64_t sum = 0, value = 0;
  for (std::string key; file >> key >> value;) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) sum += value;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return sum;
}

uint64_t less(uint64_t limit, uint64_t used) {
  return limit - std::min(limit, used);
}

// Of one group. Page cache is charged to it, but given back where memory is short.
uint64_t left_by_group(const std::string& group, bool second_version) {
  const uint64_t limit =
      number_in(group + (second_version ? "/memory.max" : "/memory.limit_in_bytes"), kUnlimited);
  if (limit == kUnlimited) return kUnlimited;
  const uint64_t used =
      number_in(group + (second_version ? "/memory.current" : "/memory.usage_in_bytes"), 0);
  const std::string statistics = group + "/memory.stat";
  const uint64_t cache = second_version
                             ? sum_of(statistics, {"active_file", "inactive_file"})
                             : sum_of(statistics, {"total_active_file", "total_inactive_file"});
  return less(limit, less(used, cache));
}

}  // namespace

uint64_t left_by_control_groups(const std::string& membership, const std::string& mount) {
  uint64_t left = kUnlimited;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "ID:CONTROLLERS:PATH"
    const size_t controllers = line.find(':') + 1, path = line.find(':', controllers) + 1;
    if (controllers == 0 || path == 0) continue;
    const std::string_view names =
        std::string_view(line).substr(controllers, path - 1 - controllers);
    const bool second_version = names.empty();
    if (!second_version && names != "memory") continue;
    const std::string root = mount + (second_version ? "" : "/memory");
    // Inside a container the path may be one that only the outside has: then the root is the group.
    std::string group = line.substr(path);
    do {
      group.resize(group.find_last_not_of('/') + 1);
      left = std::min(left, left_by_group(root + group, second_version));
      group.resize(group.find_last_of('/') + 1);
    } while (!group.empty());
  }
  return left;
}

uint64_t available_memory() {
  constexpr uint64_t kKiB = 1024;
  const uint64_t free = sum_of("/proc/meminfo", {"MemAvailable:"}) * kKiB;
  uint64_t available = std::min(free > 0 ? free : kUnlimited,
                                left_by_control_groups("/proc/self/cgroup", "/sys/fs/cgroup"));
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const uint64_t used =
        number_in("/proc/self/statm", 0) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    // Not all of an address space can be memory: stacks and malloc's arenas take theirs.
    available = std::min<uint64_t>(available, less(limit.rlim_cur, used) / 8 * 7);
  }
  return available;
}

}  // namespace lumen::runtime
