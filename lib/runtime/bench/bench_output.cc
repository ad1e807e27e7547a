#include "lib/runtime/bench/bench_output.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/runtime/bench/bench_profile.h"
#include "lib/runtime/bench/bench_report.h"

namespace lumen::runtime {
namespace {

// One row of the results with the members of the report.
io::Json line_of(const io::Json& report, const io::Json& row) {
  io::Json line = report;
  line.erase("results");
  line.update(row);
  return line;
}

// RFC 4180; numbers are as in JSON, and what a row lacks is empty.
std::string cell(const io::Json& line, std::string path) {
  std::ranges::replace(path, '.', '/');
  const io::Json::json_pointer place("/" + path);
  if (!line.contains(place) || line[place].is_null()) return "";
  if (!line[place].is_string()) return line[place].dump();
  std::string text = line[place].get<std::string>();
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted_text = "\"";
  for (const char c : text) quoted_text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted_text + "\"";
}

std::string csv_line(const io::Json& line, const std::vector<std::string>& columns) {
  std::vector<std::string> cells;
  for (const std::string& column : columns) cells.push_back(cell(line, column));
  return join(cells, ",") + "\n";
}

std::string to_csv(const io::Json& report) {
  const BenchKind* kind = find_bench_kind(report["benchmark"].get<std::string>());
  LUMEN_CHECK(kind != nullptr);
  const io::Json& rows = report["results"];
  const bool profiled = !rows.empty() && rows[0].contains(kProfileMember);
  const std::vector<std::string> columns =
      profiled ? kind->csv_columns(kProfileColumns) : kind->csv_columns();
  std::string out = join(columns, ",") + "\n";
  for (const io::Json& row : rows) {
    io::Json line = line_of(report, row);
    if (!profiled) {
      out += csv_line(line, columns);
      continue;
    }
    for (const io::Json& operation : row[kProfileMember]["operations"]) {
      for (const char* column : kProfileColumns) line.erase(column);
      line.update(operation);
      out += csv_line(line, columns);
    }
  }
  return out;
}

}  // namespace

void declare(CommandLine& line, BenchOutput& output) {
  declare(line, output, "a Markdown table, JSON, a line of JSON per row, or CSV (md)",
          {"md", "json", "jsonl", "csv"});
}

void declare(CommandLine& line, BenchOutput& output, std::string help,
             std::vector<std::string> forms) {
  line.add(choice_field("output", std::move(help), output.form, std::move(forms)), "o");
  line.add(switch_field("json", "print one JSON object: -o json", output.json));
}

std::string form_of(const BenchOutput& output) {
  if (output.json && !output.form.empty() && output.form != "json") {
    fail(ErrorKind::kUsage, "--json and --output ", output.form,
         " ask for two forms: give one of them");
  }
  if (output.json) return "json";
  return output.form.empty() ? "md" : output.form;
}

std::string report_text(const io::Json& report, const std::string& form,
                        FunctionRef<std::string()> table) {
  if (form == "json") return report.dump(2) + "\n";
  if (form == "csv") return to_csv(report);
  if (form != "jsonl") return table();
  std::string out;
  for (const io::Json& row : report["results"]) out += line_of(report, row).dump() + "\n";
  return out;
}

std::string table_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace lumen::runtime
