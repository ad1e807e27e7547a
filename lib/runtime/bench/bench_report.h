// The reports that lumen-bench llm, train and ops write as JSON, read again.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"

namespace lumen::runtime {

// More samples of a row tell nothing more: `ops` writes so many, at even distances, and a
// comparison uses so many.
inline constexpr size_t kMostSamples = 500;

// A member of a report or of one of its rows.
struct ReportMember {
  enum class Type { kText, kPath, kCount, kSwitch };  // of a path the last name counts
  const char* path;                                   // keys, separated by points
  Type type;
  bool of_machine = false;  // tells the machine, not what was measured
  bool optional = false;    // older reports lack it, and are compared without it
};

// "b" of "a/b", "a/b/" and "b".
std::string last_name(std::string path);

// What sets the report of one verb apart.
struct BenchKind {
  std::string_view verb;
  std::string_view unit;  // of medians, as shown: a sample times `scale`
  double scale;
  bool higher_is_better;
  std::vector<std::string> json_arguments;       // make the verb write its report
  std::span<const ReportMember> row_key;         // which rows measured the same
  std::span<const ReportMember> own_conditions;  // beside environment's and the schema
  std::span<const char* const> csv_numbers;      // members of rows that CSV has, beside row_key

  // The members of rows and report that CSV has, keys separated by points; `numbers` stand in for
  // csv_numbers.
  std::vector<std::string> csv_columns() const { return csv_columns(csv_numbers); }
  std::vector<std::string> csv_columns(std::span<const char* const> numbers) const;
};

// The kind of `verb`, or null: only "llm", "train" and "ops" measure.
const BenchKind* find_bench_kind(std::string_view verb);

// Something that reports must have in common to be compared.
struct BenchCondition {
  std::string name, value;  // "environment.cpu", as a message shows it; "" if the report lacks it
  bool of_machine;
};

struct BenchRow {
  std::vector<std::string> key;  // the values of BenchKind::row_key
  std::vector<double> samples;   // in [1e-12, 1e15]; not empty
};

struct BenchReport {
  const BenchKind* kind;
  std::vector<BenchCondition> conditions;  // the same names in the same order for each kind
  std::vector<BenchRow> rows;              // not empty; no two have the same key
};

// The report in `json`; rows of the same key become one. Throws Error that begins with `place` and
// names the member, what was found and what is expected: kMalformed, or kInconclusive for another
// schema than 1.
BenchReport parse_bench_report(const io::Json& json, const std::string& place);

// Reads a file; throws also as io::read_json.
BenchReport read_bench_report(const std::string& path);

// Adds the samples of `rows` to those of the same key in `report`, and the rows that it lacks.
void add_rows(BenchReport& report, std::vector<BenchRow> rows);

// "pp512, threads 2, depth 0, batch 1", in printable characters.
std::string row_name(const BenchKind& kind, const BenchRow& row);

}  // namespace lumen::runtime
