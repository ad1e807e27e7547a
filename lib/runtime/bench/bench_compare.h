// Whether one report of lumen-bench is slower than another: lumen-bench compare.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/bench/bench_output.h"
#include "lib/runtime/bench/bench_report.h"
#include "lib/runtime/tool/command_line.h"
#include "lib/runtime/tool/statistics.h"

namespace lumen::runtime {

// What is a regression, and how it is told.
struct GateOptions {
  std::optional<double> threshold;    // percent by which a median may be worse; absent: 5
  std::string inconclusive = "fail";  // or "pass": such rows do not fail the gate
  bool allow_different_machines = false;
  BenchOutput output = {};  // md, json or junit
};

// Adds them to the verb begun last; they write to `options`.
void declare_gate(CommandLine& line, GateOptions& options);

enum class Verdict {
  kUnchanged,     // the medians differ by no more than the threshold
  kImprovement,   // better by more, and the samples are apart
  kRegression,    // worse by more, and the samples are apart
  kNoise,         // they differ by more, but the samples are not apart
  kInconclusive,  // worse by more, and so few samples can never be apart
  kOnlyOld,       // the new report lacks it
  kOnlyNew,
};

// One row of two reports. Medians are in the kind's unit, 0 where the row is absent; what compares
// them has no meaning then.
struct RowComparison {
  std::string name;
  size_t old_samples = 0, new_samples = 0;
  double old_median = 0, new_median = 0;
  double ratio = 1;            // of speeds, new / old: above 1 is better
  Interval interval = {1, 1};  // of the ratio, 95 %
  double p_value = 1;
  Verdict verdict = Verdict::kUnchanged;
};

struct Comparison {
  const BenchKind* kind;
  double threshold;                   // percent
  std::vector<RowComparison> rows;    // those of the old report, then those only the new one has
  std::optional<double> noise_floor;  // percent; known after comparing a program with itself
};

// Compares two reports of the same kind. Samples are apart if the interval of the ratio excludes 1
// and p < 0.05. Throws Error(kInconclusive) naming the members and both values if the reports are
// not of like things, or have no row in common; machines may differ if `options` allow it.
Comparison compare_reports(const BenchReport& old_report, const BenchReport& new_report,
                           const GateOptions& options);

// The comparison in a form of `options.output`, md, json or junit; ends with a newline.
std::string to_text(const Comparison& comparison, const GateOptions& options,
                    const std::string& form);

// 0, or the exit code of ErrorKind::kCheckFailed (a regression) or kInconclusive.
int gate_exit_code(const Comparison& comparison, const GateOptions& options);

struct CompareOptions {
  std::optional<std::string> old_report, new_report;
  GateOptions gate;
};

// Adds the options of `lumen-bench compare` to `line`; they write to `options`.
void declare(CommandLine& line, CompareOptions& options);

// The verb. Returns gate_exit_code; throws Error.
int bench_compare(const CompareOptions& options);

}  // namespace lumen::runtime
