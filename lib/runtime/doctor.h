// Whether this machine and a model are fit for lumen-run: --doctor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/run_options.h"

namespace lumen::runtime {

// Something that was looked at. A warning costs speed or may cost it; a problem prevents answers.
struct Finding {
  enum class Status { kGood, kWarning, kProblem };
  std::string topic;
  Status status = Status::kGood;
  std::string text;  // one line
};

// What is known of the machine: environment_description(), and memory that is left.
struct MachineFacts {
  io::Json environment;
  uint64_t available_bytes = 0;  // available_memory()
  uint64_t group_bytes = 0;      // left_by_control_groups(): more than there is without a limit
};

// CPU, SIMD targets, threads, memory, huge pages, control groups, load.
std::vector<Finding> examine_machine(const MachineFacts& facts);

// Prints what was found on the machine and, if options.model names one, of loading that model as
// the options say. Throws Error(kCheckFailed), after that, if there is a problem; otherwise returns
// 0.
int run_doctor(const RunOptions& options);

}  // namespace lumen::runtime
