#include "lib/runtime/bench/bench_profile.h"

#include <cmath>

#include "lib/base/clock.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"

namespace lumen::runtime {
namespace {

constexpr double kProfileSeconds = 2;
constexpr double kLeastShare = 0.005;  // of a row of its own
constexpr std::string_view kTraceBeginning = R"({"traceEvents":)";

io::Json operation_json(const ProfileRow& row) {
  io::Json json = {{"operation", row.operation},
                   {"shapes", row.shapes},
                   {"calls", row.calls},
                   {"ms", row.seconds * 1e3},
                   {"share", row.share}};
  if (row.flops) json["gflops"] = *row.flops * 1e-9;
  if (row.bytes) json["gbytes_per_second"] = *row.bytes * 1e-9;
  return json;
}

// What the rows of a table have in numbers.
struct TableNumbers {
  double calls = 0, milliseconds = 0, share = 0;

  void add(const io::Json& operation) {
    calls += operation["calls"].get<double>();
    milliseconds += operation["ms"].get<double>();
    share += operation["share"].get<double>();
  }
};

// Calls are whole numbers where every step is alike.
std::string calls_text(double calls) {
  return fixed(calls, std::abs(calls - std::round(calls)) < 1e-6 ? 0 : 2);
}

std::string table_row(const std::string& name, const std::string& shapes,
                      const TableNumbers& numbers, const std::string& rates) {
  return str("| ", name, " | ", shapes, " | ", calls_text(numbers.calls), " | ",
             fixed(numbers.milliseconds, 3), " | ", fixed(100 * numbers.share, 1), " % | ", rates,
             " |\n");
}

// A rate of 0, of what only copies, says nothing.
std::string rate_text(const io::Json& operation, const char* key) {
  const double rate = operation.value(key, 0.0);
  return rate > 0 ? fixed(rate, 1) : "";
}

io::Json event_json(const TraceEvent& event, size_t process) {
  // In whole nanoseconds, which is what the clock has.
  const auto microseconds = [](double seconds) { return std::round(seconds * 1e9) / 1e3; };
  io::Json json = {{"name", event.name},
                   {"ph", "X"},
                   {"ts", microseconds(event.start)},
                   {"dur", microseconds(event.length)},
                   {"pid", process},
                   {"tid", 1}};
  if (!event.shapes.empty()) json["args"] = {{"shapes", event.shapes}};
  return json;
}

}  // namespace

void declare(CommandLine& line, ProfileOptions& options) {
  line.add(switch_field("profile", "then show, of some more steps, the time of each operation",
                        options.profile));
  line.add(path_field("trace", "FILE", "write a few of these steps as a Chrome trace, for Perfetto",
                      options.trace));
}

io::Json to_json(const Profile& profile, const std::string& title, const std::string& unit) {
  io::Json operations = io::Json::array();
  double sum = 0;
  for (const ProfileRow& row : profile.rows) {
    operations.push_back(operation_json(row));
    sum += row.seconds;
  }
  return {{"title", title},         {"unit", unit},
          {"steps", profile.steps}, {"wall_ms", profile.wall_seconds * 1e3},
          {"sum_ms", sum * 1e3},    {"operations", std::move(operations)}};
}

std::string profile_table(const io::Json& profile) {
  const std::string unit = profile["unit"].get<std::string>();
  std::string out =
      str(profile["title"].get<std::string>(), ": where the time of a ", unit, " goes (mean of ",
          profile["steps"].get<int64_t>(), ")\n\n| operation | shapes | calls | ms | ",
          "share | GFLOP/s | GB/s |\n|---|---|--:|--:|--:|--:|--:|\n");
  TableNumbers sum, other;
  size_t others = 0;
  for (const io::Json& operation : profile["operations"]) {
    TableNumbers numbers;
    numbers.add(operation);
    sum.add(operation);
    if (numbers.share < kLeastShare) {
      other.add(operation);
      ++others;
      continue;
    }
    out += table_row(
        operation["operation"].get<std::string>(), operation["shapes"].get<std::string>(), numbers,
        str(rate_text(operation, "gflops"), " | ", rate_text(operation, "gbytes_per_second")));
  }
  if (others > 0) out += table_row("other", str(others, " of less than 0.5 %"), other, " | ");
  return out + table_row("sum",
                         str("wall time ", fixed(profile["wall_ms"].get<double>(), 3), " ms"), sum,
                         " | ");
}

std::string profile_tables(const io::Json& report) {
  std::string out;
  for (const io::Json& row : report["results"]) {
    if (row.contains(kProfileMember)) out += "\n" + profile_table(row[kProfileMember]);
  }
  return out;
}

std::string trace_text(const std::vector<TraceProcess>& processes) {
  std::vector<std::string> events;
  for (size_t i = 0; i < processes.size(); ++i) {
    const io::Json name = {{"name", "process_name"},
                           {"ph", "M"},
                           {"pid", i},
                           {"args", {{"name", processes[i].first}}}};
    events.push_back(name.dump());
    for (const TraceEvent& event : processes[i].second)
      events.push_back(event_json(event, i).dump());
  }
  return str(kTraceBeginning, "[\n", join(events, ",\n"), "\n],\"displayTimeUnit\":\"ms\"}\n");
}

Profiles::Profiles(const ProfileOptions& options) : options_(options) {
  if (options_.trace) io::check_replaceable(*options_.trace, kTraceBeginning, "a trace");
}

io::Json Profiles::measure(const std::string& title, const std::string& unit, size_t most,
                           FunctionRef<void(Profiler&)> measure) {
  Profiler profiler;
  const auto begin = Clock::now();
  for (size_t i = 0; i == 0 || (i < most && seconds_since(begin) < kProfileSeconds); ++i) {
    measure(profiler);
  }
  if (options_.trace) processes_.emplace_back(title, profiler.trace());
  return options_.profile ? to_json(profiler.profile(), title, unit) : io::Json();
}

void Profiles::write_trace() const {
  if (options_.trace) io::write_file_atomically(*options_.trace, trace_text(processes_));
}

}  // namespace lumen::runtime
