#include "lib/runtime/bench/bench_report.h"

#include <algorithm>
#include <map>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"

namespace lumen::runtime {
namespace {

using MemberType = ReportMember::Type;

constexpr double kLeastSample = 1e-12, kMostSample = 1e15;
constexpr size_t kMostRows = 4096;

constexpr ReportMember kEnvironment[] = {
    {"environment.cpu", MemberType::kText, true},
    {"environment.machine", MemberType::kText, true},
    {"environment.kernel", MemberType::kText, true},
    {"environment.build.simd.chosen", MemberType::kText, true},
    {"environment.build.build_type", MemberType::kText},
};
constexpr ReportMember kLlmConditions[] = {
    {"model.name", MemberType::kPath},        {"model.model_type", MemberType::kText},
    {"model.bytes", MemberType::kCount},      {"settings.kv", MemberType::kText},
    {"settings.repack", MemberType::kSwitch},
};
constexpr ReportMember kTrainConditions[] = {
    {"recipe.name", MemberType::kText},
    {"recipe.batch", MemberType::kText},
    {"recipe.precision", MemberType::kText},
    {"recipe.parameters", MemberType::kCount},
    {"recipe.settings_sha256", MemberType::kText, false, true},
};
constexpr ReportMember kLlmKey[] = {
    {"test", MemberType::kText},
    {"threads", MemberType::kCount},
    {"depth", MemberType::kCount},
    {"batch", MemberType::kCount},
};
constexpr ReportMember kTrainKey[] = {{"test", MemberType::kText}, {"threads", MemberType::kCount}};
constexpr ReportMember kOpsKey[] = {
    {"operation", MemberType::kText},
    {"case", MemberType::kText},
    {"shapes", MemberType::kText},
    {"threads", MemberType::kCount},
};

constexpr const char* kLlmNumbers[] = {"unit", "median",          "min",
                                       "max",  "bytes_per_token", "bandwidth_fraction"};
constexpr const char* kTrainNumbers[] = {"step_ms.median", "step_ms.min", "step_ms.max", "unit",
                                         "median",         "min",         "max",         "steps",
                                         "first_step_ms",  "last_loss"};
constexpr const char* kOpsNumbers[] = {"median_ms", "gflops", "gbytes_per_second", "share_of_peak"};

const std::vector<BenchKind>& bench_kinds() {
  static const std::vector<BenchKind> kinds = {
      {"llm", "tokens/s", 1, true, {"-o", "json"}, kLlmKey, kLlmConditions, kLlmNumbers},
      {"train", "ms", 1e3, false, {"-o", "json"}, kTrainKey, kTrainConditions, kTrainNumbers},
      {"ops", "ms", 1e3, false, {"--json"}, kOpsKey, {}, kOpsNumbers},
  };
  return kinds;
}

[[noreturn]] void fail_value(std::string_view path, const io::Json* found,
                             std::string_view expected) {
  fail(ErrorKind::kMalformed, path, ": found ", io::describe(found), ", expected ", expected);
}

// The value that `path` leads to from `root`, or null.
const io::Json* value_at(const io::Json& root, std::string_view path) {
  const io::Json* value = &root;
  while (value != nullptr && !path.empty()) {
    const std::string_view step = path.substr(0, path.find('.'));
    value = io::find_value(*value, step);
    path.remove_prefix(std::min(path.size(), step.size() + 1));
  }
  return value;
}

// The member as text. Throws Error(kMalformed) naming its path.
std::string member_text(const io::Json& root, const ReportMember& member) {
  const io::Json* value = value_at(root, member.path);
  switch (member.type) {
    case MemberType::kCount:
      if (value == nullptr || !value->is_number_integer() || value->get<int64_t>() < 0) {
        fail_value(member.path, value, "a whole number from 0");
      }
      return str(value->get<int64_t>());
    case MemberType::kSwitch:
      if (value == nullptr || !value->is_boolean()) {
        fail_value(member.path, value, "true or false");
      }
      return str(value->get<bool>());
    default:
      if (value == nullptr || !value->is_string()) fail_value(member.path, value, "a string");
      const auto text = value->get<std::string>();
      return member.type == MemberType::kPath ? last_name(text) : text;
  }
}

void add_conditions(const io::Json& json, std::span<const ReportMember> members,
                    std::vector<BenchCondition>& conditions) {
  for (const ReportMember& member : members) {
    if (member.optional && value_at(json, member.path) == nullptr) {
      conditions.push_back({member.path, "", member.of_machine});
      continue;
    }
    std::string text = member_text(json, member);
    const bool is_text = member.type == MemberType::kText || member.type == MemberType::kPath;
    conditions.push_back({member.path, is_text ? quoted(text) : text, member.of_machine});
  }
}

const io::Json& array_at(const io::Json& object, std::string_view key) {
  const io::Json* value = io::find_value(object, key);
  if (value == nullptr || !value->is_array() || value->empty()) {
    fail_value(key, value, "an array that is not empty");
  }
  return *value;
}

std::vector<double> parse_samples(const io::Json& values) {
  std::vector<double> samples;
  samples.reserve(values.size());
  for (const io::Json& value : values) {
    const double sample = value.is_number() ? value.get<double>() : 0;
    if (!(sample >= kLeastSample && sample <= kMostSample)) {
      fail_value(str("samples[", samples.size(), "]"), &value,
                 str("a number from ", kLeastSample, " to ", kMostSample));
    }
    samples.push_back(sample);
  }
  return samples;
}

BenchRow parse_row(const io::Json& json, const BenchKind& kind) {
  BenchRow row;
  for (const ReportMember& member : kind.row_key) row.key.push_back(member_text(json, member));
  row.samples = parse_samples(array_at(json, "samples"));
  return row;
}

const BenchKind& kind_of(const io::Json& json) {
  const io::Json* benchmark = io::find_value(json, "benchmark");
  const BenchKind* kind = nullptr;
  if (benchmark != nullptr && benchmark->is_string()) {
    kind = find_bench_kind(benchmark->get_ref<const std::string&>());
  }
  if (kind == nullptr) {
    fail_value("benchmark", benchmark,
               "'llm', 'train' or 'ops' as lumen-bench writes it with -o json");
  }
  return *kind;
}

BenchReport parse_members(const io::Json& json) {
  const int64_t schema = io::get_int(json, "schema", 1, 1'000'000);
  if (schema != 1) {
    fail(ErrorKind::kInconclusive, "schema is ", schema,
         ", but this lumen-bench compares reports of schema 1: measure again with it");
  }
  const BenchKind& kind = kind_of(json);
  BenchReport report = {&kind, {}, {}};
  add_conditions(json, kind.own_conditions, report.conditions);
  add_conditions(json, kEnvironment, report.conditions);
  const io::Json& results = array_at(json, "results");
  if (results.size() > kMostRows) {
    fail_value("results", &results, str("at most ", kMostRows, " rows"));
  }
  std::vector<BenchRow> rows;
  for (const io::Json& row : results) {
    const auto place = [&] { return str("results[", rows.size(), "]"); };
    rows.push_back(with_context(place, [&] { return parse_row(row, kind); }));
  }
  add_rows(report, std::move(rows));
  return report;
}

}  // namespace

std::string last_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
}

std::vector<std::string> BenchKind::csv_columns(std::span<const char* const> numbers) const {
  std::vector<std::string> columns;
  for (const ReportMember& member : own_conditions) columns.emplace_back(member.path);
  for (const ReportMember& member : row_key) columns.emplace_back(member.path);
  columns.insert(columns.end(), numbers.begin(), numbers.end());
  for (const char* path :
       {"environment.cpu", "environment.build.simd.chosen", "environment.build.commit"}) {
    columns.emplace_back(path);
  }
  return columns;
}

const BenchKind* find_bench_kind(std::string_view verb) {
  for (const BenchKind& kind : bench_kinds()) {
    if (kind.verb == verb) return &kind;
  }
  return nullptr;
}

BenchReport parse_bench_report(const io::Json& json, const std::string& place) {
  return with_context(place, [&] { return parse_members(json); });
}

BenchReport read_bench_report(const std::string& path) {
  io::Json json;
  try {
    json = io::read_json(path);
  } catch (const Error& error) {  // of -o jsonl or csv, perhaps
    if (error.kind() != ErrorKind::kMalformed) throw;
    fail(ErrorKind::kMalformed, error.what(),
         "; expected a report as lumen-bench llm, train or ops writes it with -o json");
  }
  return parse_bench_report(json, io::place_of(path));
}

void add_rows(BenchReport& report, std::vector<BenchRow> rows) {
  std::map<std::vector<std::string>, size_t> places;
  for (size_t i = 0; i < report.rows.size(); ++i) places.emplace(report.rows[i].key, i);
  for (BenchRow& row : rows) {
    const auto [place, is_new] = places.emplace(row.key, report.rows.size());
    if (is_new) {
      report.rows.push_back(std::move(row));
    } else {
      std::vector<double>& samples = report.rows[place->second].samples;
      samples.insert(samples.end(), row.samples.begin(), row.samples.end());
    }
  }
}

std::string row_name(const BenchKind& kind, const BenchRow& row) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < row.key.size(); ++i) {
    const ReportMember& member = kind.row_key[i];
    const std::string value = printable(row.key[i], 200);
    if (value.empty()) continue;
    parts.push_back(member.type == MemberType::kText ? value : str(member.path, " ", value));
  }
  return join(parts, ", ");
}

}  // namespace lumen::runtime
