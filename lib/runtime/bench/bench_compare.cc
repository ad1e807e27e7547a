#include "lib/runtime/bench/bench_compare.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/bench/bench_output.h"
#include "lib/runtime/tool/output.h"

namespace lumen::runtime {
namespace {

constexpr double kUsualThreshold = 5, kSignificance = 0.05;

// As reports of a comparison name them.
constexpr std::array<std::string_view, 7> kVerdictNames = {
    "unchanged",    "improvement", "regression", "noise",
    "inconclusive", "only in old", "only in new"};

std::string_view verdict_name(Verdict verdict) {
  return kVerdictNames[static_cast<size_t>(verdict)];
}

bool is_undecided(Verdict verdict) {
  return verdict == Verdict::kInconclusive || verdict == Verdict::kOnlyOld;
}

bool is_paired(const RowComparison& row) {
  return row.verdict != Verdict::kOnlyOld && row.verdict != Verdict::kOnlyNew;
}

int64_t count_verdict(const Comparison& comparison, Verdict verdict) {
  return std::ranges::count_if(comparison.rows,
                               [&](const RowComparison& row) { return row.verdict == verdict; });
}

void check_alike(const BenchReport& a, const BenchReport& b, bool allow_different_machines) {
  constexpr const char* kUnlike = "the reports are not of like things: ";
  if (a.kind != b.kind) {
    fail(ErrorKind::kInconclusive, kUnlike, "benchmark is '", a.kind->verb, "' in the old, '",
         b.kind->verb, "' in the new");
  }
  std::string different;
  bool only_machine = true;
  for (size_t i = 0; i < a.conditions.size(); ++i) {
    const BenchCondition &x = a.conditions[i], &y = b.conditions[i];
    if (x.value == y.value || (x.of_machine && allow_different_machines)) continue;
    if (x.value.empty() || y.value.empty()) continue;
    different += str(different.empty() ? "" : "; ", x.name, " is ", x.value, " in the old, ",
                     y.value, " in the new");
    only_machine = only_machine && x.of_machine;
  }
  if (different.empty()) return;
  fail(ErrorKind::kInconclusive, kUnlike, different,
       only_machine ? " (--allow-different-machines compares them all the same)" : "");
}

Verdict judge(const RowComparison& row, double threshold) {
  const double worst = 1 - threshold / 100;
  const bool is_worse = row.ratio < worst;
  const bool is_better = row.ratio > 1 / worst;
  if (!is_worse && !is_better) return Verdict::kUnchanged;
  const bool excludes_one = is_worse ? row.interval.high < 1 : row.interval.low > 1;
  if (excludes_one && row.p_value < kSignificance) {
    return is_worse ? Verdict::kRegression : Verdict::kImprovement;
  }
  const bool too_few = least_mann_whitney_p(row.old_samples, row.new_samples) >= kSignificance;
  return is_worse && too_few ? Verdict::kInconclusive : Verdict::kNoise;
}

RowComparison compare_rows(const BenchKind& kind, const BenchRow& old_row, const BenchRow& new_row,
                           double threshold) {
  const std::vector<double> a = thinned(old_row.samples, kMostSamples),
                            b = thinned(new_row.samples, kMostSamples);
  RowComparison row;
  row.name = row_name(kind, old_row);
  row.old_samples = old_row.samples.size();
  row.new_samples = new_row.samples.size();
  row.old_median = spread(a).median * kind.scale;
  row.new_median = spread(b).median * kind.scale;
  const bool higher = kind.higher_is_better;
  row.ratio = higher ? row.new_median / row.old_median : row.old_median / row.new_median;
  row.interval = higher ? median_ratio_interval(b, a) : median_ratio_interval(a, b);
  row.p_value = mann_whitney_p(a, b);
  row.verdict = judge(row, threshold);
  return row;
}

RowComparison lone_row(const BenchKind& kind, const BenchRow& found, Verdict verdict) {
  RowComparison row;
  row.name = row_name(kind, found);
  row.verdict = verdict;
  const bool is_old = verdict == Verdict::kOnlyOld;
  (is_old ? row.old_samples : row.new_samples) = found.samples.size();
  (is_old ? row.old_median : row.new_median) = spread(found.samples).median * kind.scale;
  return row;
}

// Reports without a common row measured different things: tells in which member of the key, if it
// is one.
[[noreturn]] void fail_disjoint(const BenchReport& a, const BenchReport& b) {
  const auto values = [](const BenchReport& report, size_t i) {
    std::set<std::string> all;
    for (const BenchRow& row : report.rows) all.insert(row.key[i]);
    return all;
  };
  const auto listed = [](const std::set<std::string>& all) {
    return quoted(join(std::vector<std::string>(all.begin(), all.end()), ", "));
  };
  std::string where;
  for (size_t i = 0; i < a.kind->row_key.size() && where.empty(); ++i) {
    const std::set<std::string> x = values(a, i), y = values(b, i);
    if (std::any_of(x.begin(), x.end(), [&](const auto& value) { return y.contains(value); })) {
      continue;
    }
    where = str(": ", a.kind->row_key[i].path, " is ", listed(x), " in the old, ", listed(y),
                " in the new");
  }
  fail(ErrorKind::kInconclusive, "no row is in both reports", where);
}

std::string percent(double value) {
  return str(value, " %");
}

// Of the regressions, of which there is one.
const RowComparison& worst_regression(const Comparison& comparison) {
  const RowComparison* worst = nullptr;
  for (const RowComparison& row : comparison.rows) {
    if (row.verdict != Verdict::kRegression) continue;
    if (worst == nullptr || row.ratio < worst->ratio) worst = &row;
  }
  LUMEN_CHECK(worst != nullptr);
  return *worst;
}

// One sentence.
std::string summary(const Comparison& comparison) {
  const int64_t paired = std::ranges::count_if(comparison.rows, is_paired);
  const int64_t worse = count_verdict(comparison, Verdict::kRegression);
  const std::string limit = percent(comparison.threshold);
  if (worse > 0) {
    const RowComparison& worst = worst_regression(comparison);
    return str("Regression: ", worse, " of ", paired, " rows slower by more than ", limit,
               "; the slowest, ", worst.name, ", has ", fixed(worst.ratio, 3),
               " of the old speed.");
  }
  const int64_t few = count_verdict(comparison, Verdict::kInconclusive);
  const int64_t lost = count_verdict(comparison, Verdict::kOnlyOld);
  if (few + lost > 0) {
    return str("Inconclusive: of ", paired + lost, " rows ", few,
               " slower with too few samples to tell, ", lost, " only in the old report.");
  }
  return str("No regression beyond ", limit, " in ", paired, paired == 1 ? " row" : " rows", ": ",
             count_verdict(comparison, Verdict::kImprovement), " faster, ",
             count_verdict(comparison, Verdict::kNoise), " different only within the noise.");
}

std::string described(const RowComparison& row, const BenchKind& kind) {
  if (!is_paired(row)) return std::string(verdict_name(row.verdict));
  return str(fixed(row.old_median, 3), " to ", fixed(row.new_median, 3), " ", kind.unit,
             ", speed ratio ", fixed(row.ratio, 3), " [", fixed(row.interval.low, 3), ", ",
             fixed(row.interval.high, 3), "], p ", fixed(row.p_value, 4));
}

std::string to_table(const Comparison& comparison) {
  const std::string unit(comparison.kind->unit);
  std::string out =
      str("| ", comparison.kind->verb, " | old (", unit, ") | new (", unit,
          ") | speed new/old | 95 % interval | p | verdict |\n|---|--:|--:|--:|--:|--:|---|\n");
  for (const RowComparison& row : comparison.rows) {
    const bool paired = is_paired(row);
    const auto number = [](bool known, double value, int digits) {
      return known ? fixed(value, digits) : std::string();
    };
    out += str("| ", table_cell(row.name), " | ", number(row.old_samples > 0, row.old_median, 3),
               " | ", number(row.new_samples > 0, row.new_median, 3), " | ",
               number(paired, row.ratio, 3), " | ", number(paired, row.interval.low, 3),
               paired ? " to " : "", number(paired, row.interval.high, 3), " | ",
               number(paired, row.p_value, 4), " | ", verdict_name(row.verdict), " |\n");
  }
  out += str("\n", table_cell(summary(comparison)), "\n");
  if (comparison.noise_floor) {
    out += str("\nNoise floor: ", fixed(*comparison.noise_floor, 1),
               " %, the largest deviation between runs of the same program.\n");
  }
  return out;
}

io::Json to_json(const RowComparison& row) {
  io::Json json = {{"name", row.name}, {"verdict", verdict_name(row.verdict)}};
  if (row.old_samples > 0) {
    json["old_median"] = row.old_median;
    json["old_samples"] = row.old_samples;
  }
  if (row.new_samples > 0) {
    json["new_median"] = row.new_median;
    json["new_samples"] = row.new_samples;
  }
  if (is_paired(row)) {
    json["ratio"] = row.ratio;
    json["interval"] = {row.interval.low, row.interval.high};
    json["p_value"] = row.p_value;
  }
  return json;
}

io::Json to_json(const Comparison& comparison, int exit_code) {
  io::Json results = io::Json::array();
  for (const RowComparison& row : comparison.rows) results.push_back(to_json(row));
  io::Json json = {{"schema", 1},
                   {"compared", comparison.kind->verb},
                   {"unit", comparison.kind->unit},
                   {"higher_is_better", comparison.kind->higher_is_better},
                   {"threshold_percent", comparison.threshold},
                   {"summary", summary(comparison)},
                   {"exit_code", exit_code},
                   {"results", std::move(results)}};
  if (comparison.noise_floor) json["noise_floor_percent"] = *comparison.noise_floor;
  return json;
}

// `text`, of printable characters, between double quotes of XML.
std::string xml_attribute(std::string_view text) {
  static const std::map<char, std::string_view> kEscapes = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}};
  std::string out;
  for (const char c : text) {
    if (const auto escape = kEscapes.find(c); escape != kEscapes.end()) {
      out += escape->second;
    } else {
      out += c;
    }
  }
  return out;
}

std::string to_junit(const Comparison& comparison, bool undecided_fails) {
  const auto fails = [&](Verdict verdict) {
    return verdict == Verdict::kRegression || (undecided_fails && is_undecided(verdict));
  };
  int64_t failures = 0, skipped = 0;
  std::string cases;
  for (const RowComparison& row : comparison.rows) {
    const bool failed = fails(row.verdict), skips = !failed && is_undecided(row.verdict);
    failures += failed;
    skipped += skips;
    const std::string message = xml_attribute(described(row, *comparison.kind));
    cases += str("    <testcase classname=\"lumen-bench.", comparison.kind->verb, "\" name=\"",
                 xml_attribute(row.name), "\">");
    if (failed) {
      cases += str("<failure type=\"", verdict_name(row.verdict), "\" message=\"", message, "\"/>");
    } else if (skips) {
      cases += str("<skipped message=\"", message, "\"/>");
    } else {
      cases += str("<system-out>", message, "</system-out>");
    }
    cases += "</testcase>\n";
  }
  std::string properties;
  if (comparison.noise_floor) {
    properties = str("    <properties><property name=\"noise_floor_percent\" value=\"",
                     fixed(*comparison.noise_floor, 1), "\"/></properties>\n");
  }
  return str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"",
             "lumen-bench ", comparison.kind->verb, "\" tests=\"", comparison.rows.size(),
             "\" failures=\"", failures, "\" errors=\"0\" skipped=\"", skipped, "\">\n", properties,
             cases, "  </testsuite>\n</testsuites>\n");
}

}  // namespace

void declare_gate(CommandLine& line, GateOptions& options) {
  line.group("Gate");
  line.add(number_field("threshold", "percent by which a median may be worse (5)",
                        options.threshold, 0, 99));
  line.add(choice_field("inconclusive", "whether undecided rows pass or fail (fail)",
                        options.inconclusive, {"pass", "fail"}));
  line.add(switch_field("allow-different-machines", "compare though CPU, SIMD or kernel differ",
                        options.allow_different_machines));
  line.group("Output");
  declare(line, options.output, "a Markdown table, JSON or JUnit XML (md)",
          {"md", "json", "junit"});
}

Comparison compare_reports(const BenchReport& old_report, const BenchReport& new_report,
                           const GateOptions& options) {
  check_alike(old_report, new_report, options.allow_different_machines);
  const BenchKind& kind = *old_report.kind;
  Comparison comparison = {&kind, options.threshold.value_or(kUsualThreshold), {}, {}};
  std::map<std::vector<std::string>, const BenchRow*> unpaired;
  for (const BenchRow& row : new_report.rows) unpaired.emplace(row.key, &row);
  for (const BenchRow& row : old_report.rows) {
    const auto partner = unpaired.find(row.key);
    if (partner == unpaired.end()) {
      comparison.rows.push_back(lone_row(kind, row, Verdict::kOnlyOld));
    } else {
      comparison.rows.push_back(compare_rows(kind, row, *partner->second, comparison.threshold));
      unpaired.erase(partner);
    }
  }
  if (unpaired.size() == new_report.rows.size()) fail_disjoint(old_report, new_report);
  for (const BenchRow& row : new_report.rows) {
    if (unpaired.contains(row.key)) {
      comparison.rows.push_back(lone_row(kind, row, Verdict::kOnlyNew));
    }
  }
  return comparison;
}

std::string to_text(const Comparison& comparison, const GateOptions& options,
                    const std::string& form) {
  if (form == "json") {
    return to_json(comparison, gate_exit_code(comparison, options)).dump(2) + "\n";
  }
  if (form == "junit") return to_junit(comparison, options.inconclusive == "fail");
  return to_table(comparison);
}

int gate_exit_code(const Comparison& comparison, const GateOptions& options) {
  if (count_verdict(comparison, Verdict::kRegression) > 0) {
    return static_cast<int>(ErrorKind::kCheckFailed);
  }
  const bool undecided = std::ranges::any_of(
      comparison.rows, [](const RowComparison& row) { return is_undecided(row.verdict); });
  if (undecided && options.inconclusive == "fail") {
    return static_cast<int>(ErrorKind::kInconclusive);
  }
  return 0;
}

void declare(CommandLine& line, CompareOptions& options) {
  line.begin_verb("compare", "Fail if one report is slower than another.");
  line.add_positional(
      path_field("old", "FILE", "report of llm, train or ops, as JSON", options.old_report));
  line.add_positional(path_field("new", "FILE", "report of the same verb", options.new_report));
  declare_gate(line, options.gate);
  line.add_example("lumen-bench compare old.json new.json --threshold 10",
                   "exit with 3 if anything is slower by more than 10 %");
}

int bench_compare(const CompareOptions& options) {
  if (!options.old_report || !options.new_report) {
    fail(ErrorKind::kUsage, "name two reports: lumen-bench compare OLD.json NEW.json");
  }
  const std::vector<BenchTarget> targets = targets_of(options.gate.output);
  const BenchReport old_report = read_bench_report(*options.old_report);
  const BenchReport new_report = read_bench_report(*options.new_report);
  const Comparison comparison = compare_reports(old_report, new_report, options.gate);
  print_targets(targets,
                [&](const std::string& form) { return to_text(comparison, options.gate, form); });
  return gate_exit_code(comparison, options.gate);
}

}  // namespace lumen::runtime
