// Profiles as tables, JSON and traces: --profile and --trace.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/io/json.h"
#include "lib/runtime/tool/command_line.h"
#include "lib/runtime/tool/profile.h"

namespace lumen::runtime {

struct ProfileOptions {
  bool profile = false;
  std::optional<std::string> trace;  // a file to write
};

// Adds --profile and --trace to `line`; they write to `options`.
void declare(CommandLine& line, ProfileOptions& options);

// The member of a row of a report that has its profile: "title" (what was measured), "unit" (what a
// step is), "steps" (how many were), "wall_ms" and "sum_ms" (of a step, and of its operations),
// "operations" with the members of kProfileColumns; of a rate that is not known none.
io::Json to_json(const Profile& profile, const std::string& title, const std::string& unit);
inline constexpr const char* kProfileMember = "profile";
inline constexpr const char* kProfileColumns[] = {
    "operation", "shapes", "calls", "ms", "share", "gflops", "gbytes_per_second"};

// A line that says what a profile as to_json() gives it is of, and a Markdown table. Operations of
// less than 0.5 % share one row; the last row is the sum of all.
std::string profile_table(const io::Json& profile);
// After an empty line each, those of the profiles in the rows of `report`.
std::string profile_tables(const io::Json& report);

// Events under the name of what they are of: a process of the trace.
using TraceProcess = std::pair<std::string, std::vector<TraceEvent>>;

// The trace event format of Chrome ("Trace Event Format", Google), which Perfetto reads too: one
// complete event ("X") per step of a plan, in one thread for each process, times in microseconds.
std::string trace_text(const std::vector<TraceProcess>& processes);

// The profiles of one run of a verb: of as many steps again as were timed, for two seconds at most.
// Not thread-safe.
class Profiles {
 public:
  // Throws Error(kCannotCreate) if the trace could not be written.
  explicit Profiles(const ProfileOptions& options);

  bool wanted() const { return options_.profile || options_.trace; }

  // Calls `measure`, which runs one step or more, `most` times or for about two seconds, once at
  // least. Returns their profile as to_json() does, or null if only the trace is wanted.
  io::Json measure(const std::string& title, const std::string& unit, size_t most,
                   FunctionRef<void(Profiler&)> measure);

  // Writes the trace, if it is wanted. Throws Error as io::AtomicFile.
  void write_trace() const;

 private:
  ProfileOptions options_;
  std::vector<TraceProcess> processes_;
};

}  // namespace lumen::runtime
