// How much memory is left to this process.
#pragma once

#include <cstdint>
#include <string>

namespace lumen::runtime {

// Bytes it may still take: those the system has left, capped by what its control groups
// (containers, batch jobs) and its address-space limit leave, of the latter seven eighths. Page
// cache counts as left.
uint64_t available_memory();

// What the control groups in `membership`, a file like /proc/self/cgroup, and those around them
// leave; `mount` is the directory of their hierarchies, of version 1 or 2. 2⁶⁴ − 1: no limit.
uint64_t left_by_control_groups(const std::string& membership, const std::string& mount);

}  // namespace lumen::runtime
