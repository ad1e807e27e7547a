#include "lib/runtime/bench/bench_forms.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "lib/base/strings.h"
#include "lib/runtime/bench/bench_report.h"
#include "lib/runtime/tool/statistics.h"

namespace lumen::runtime {
namespace {

using io::Json;

// "pp512/threads:2/depth:0" with ':' between names of counts and their values.
std::string path_name(const BenchKind& kind, const BenchRow& row, char between) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < row.key.size(); ++i) {
    const ReportMember& member = kind.row_key[i];
    std::string value = printable(row.key[i], 200);
    if (value.empty()) continue;
    const bool is_text = member.type == ReportMember::Type::kText;
    parts.push_back(is_text ? value : str(member.path, std::string(1, between), value));
  }
  return join(parts, "/");
}

// A text at `pointer` of the report, or "".
std::string text_at(const Json& report, const char* pointer) {
  const Json::json_pointer place(pointer);
  const bool is_there = report.contains(place) && report[place].is_string();
  return is_there ? report[place].get<std::string>() : "";
}

// Seconds per token or of the operation.
double seconds_of(const BenchKind& kind, double sample) {
  return kind.higher_is_better ? 1 / sample : sample;
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of a sample: divided by one less than there are.
double deviation_of(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

void add_google_rows(const BenchKind& kind, const BenchRow& row, Json& benchmarks) {
  constexpr double kNanoseconds = 1e9;
  const std::string name = path_name(kind, row, ':');
  std::vector<double> times;
  for (const double sample : row.samples) times.push_back(seconds_of(kind, sample) * kNanoseconds);
  const auto add = [&](const std::string& suffix, const char* type, double time) -> Json& {
    benchmarks.push_back({{"name", name + suffix},
                          {"run_name", name},
                          {"run_type", type},
                          {"repetitions", times.size()},
                          {"iterations", 1},
                          {"real_time", time},
                          {"cpu_time", time},
                          {"time_unit", "ns"}});
    return benchmarks.back();
  };
  for (size_t i = 0; i < times.size(); ++i) {
    Json& benchmark = add("", "iteration", times[i]);
    benchmark["repetition_index"] = i;
    if (kind.higher_is_better) benchmark["items_per_second"] = row.samples[i];
  }
  const std::pair<const char*, double> aggregates[] = {
      {"mean", mean_of(times)}, {"median", spread(times).median}, {"stddev", deviation_of(times)}};
  for (const auto& [aggregate, time] : aggregates) {
    Json& benchmark = add(str("_", aggregate), "aggregate", time);
    benchmark["aggregate_name"] = aggregate;
    benchmark["aggregate_unit"] = "time";
  }
}

}  // namespace

std::string to_github_action(const Json& report) {
  const BenchReport read = parse_bench_report(report, "report");
  const BenchKind& kind = *read.kind;
  Json rows = Json::array();
  for (const BenchRow& row : read.rows) {
    const Spread of = spread(row.samples);
    rows.push_back({{"name", row_name(kind, row)},
                    {"unit", kind.unit},
                    {"value", of.median * kind.scale},
                    {"range", str(of.min * kind.scale, " to ", of.max * kind.scale)},
                    {"extra", str(text_at(report, "/environment/cpu"), ", commit ",
                                  text_at(report, "/environment/build/commit"))}});
  }
  return rows.dump(2) + "\n";
}

std::string to_google_benchmark(const Json& report) {
  const BenchReport read = parse_bench_report(report, "report");
  Json benchmarks = Json::array();
  for (const BenchRow& row : read.rows) add_google_rows(*read.kind, row, benchmarks);
  const std::string type = text_at(report, "/environment/build/build_type");
  const Json context = {{"executable", str("lumen-bench ", read.kind->verb)},
                        {"cpu", text_at(report, "/environment/cpu")},
                        {"simd", text_at(report, "/environment/build/simd/chosen")},
                        {"commit", text_at(report, "/environment/build/commit")},
                        {"library_build_type", type == "debug" ? "debug" : "release"}};
  return Json({{"context", context}, {"benchmarks", benchmarks}}).dump(2) + "\n";
}

std::string to_benchstat(const Json& report) {
  const BenchReport read = parse_bench_report(report, "report");
  const BenchKind& kind = *read.kind;
  std::string out = str("cpu: ", printable(text_at(report, "/environment/cpu"), 200), "\n");
  for (const BenchRow& row : read.rows) {
    std::string name = path_name(kind, row, '=');
    std::ranges::replace(name, ' ', '_');
    for (const double sample : row.samples) {
      out += str("Benchmark_", kind.verb, "/", name, "\t1\t", sample * kind.scale, " ", kind.unit,
                 "\n");
    }
  }
  return out;
}

}  // namespace lumen::runtime
