#include "lib/runtime/bench/bench_output.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/bench/bench_forms.h"
#include "lib/runtime/bench/bench_profile.h"
#include "lib/runtime/bench/bench_report.h"
#include "lib/runtime/tool/output.h"

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

// A column of a table in SQL, and the value that `line` has there.
std::string sql_name(std::string path) {
  std::ranges::replace(path, '.', '_');
  return str("\"", path, "\"");
}
std::string sql_value(const io::Json& line, std::string path) {
  std::ranges::replace(path, '.', '/');
  const io::Json::json_pointer place("/" + path);
  if (!line.contains(place) || line[place].is_null()) return "NULL";
  const io::Json& value = line[place];
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_number()) return value.dump();
  std::string text = "'";
  for (const char c : value.is_string() ? value.get<std::string>() : value.dump()) {
    text += c == '\'' ? std::string("''") : std::string(1, c);
  }
  return text + "'";
}

std::string csv_line(const io::Json& line, const std::vector<std::string>& columns) {
  std::vector<std::string> cells;
  for (const std::string& column : columns) cells.push_back(cell(line, column));
  return join(cells, ",") + "\n";
}

const BenchKind& kind_of_report(const io::Json& report) {
  const BenchKind* kind = find_bench_kind(report["benchmark"].get<std::string>());
  LUMEN_CHECK(kind != nullptr);
  return *kind;
}

std::string to_sql(const io::Json& report) {
  const BenchKind& kind = kind_of_report(report);
  const std::vector<std::string> columns = kind.csv_columns();
  const std::string table = str("lumen_bench_", kind.verb);
  std::vector<std::string> names;
  for (const std::string& column : columns) names.push_back(sql_name(column));
  std::string out = str("CREATE TABLE IF NOT EXISTS ", table, " (", join(names, ", "), ");\n");
  for (const io::Json& row : report["results"]) {
    const io::Json line = line_of(report, row);
    std::vector<std::string> values;
    for (const std::string& column : columns) values.push_back(sql_value(line, column));
    out += str("INSERT INTO ", table, " (", join(names, ", "), ") VALUES (", join(values, ", "),
               ");\n");
  }
  return out;
}

std::string to_csv(const io::Json& report) {
  const BenchKind& kind = kind_of_report(report);
  const io::Json& rows = report["results"];
  const bool profiled = !rows.empty() && rows[0].contains(kProfileMember);
  const std::vector<std::string> columns =
      profiled ? kind.csv_columns(kProfileColumns) : kind.csv_columns();
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

// FORM or FORM:FILE.
Field target_field(std::string help, std::vector<std::string> forms,
                   std::vector<BenchTarget>& targets) {
  std::string unused;
  Field field = choice_field("output", std::move(help), unused, forms);
  field.set = [forms = std::move(forms), &targets](std::string_view value) {
    const size_t colon = value.find(':');
    BenchTarget target;
    choice_field("output", "", target.form, forms).set(value.substr(0, colon));
    if (colon != value.npos) target.file = value.substr(colon + 1);
    if (colon != value.npos && target.file.empty()) {
      fail(ErrorKind::kUsage, "output: ", quoted(value), " names no file after the colon");
    }
    targets.push_back(std::move(target));
  };
  field.get = [] { return std::string(); };
  field.repeatable = true;
  return field;
}

}  // namespace

void declare(CommandLine& line, BenchOutput& output) {
  declare(line, output, "form, or FORM:FILE, repeatable (md)",
          {"md", "json", "jsonl", "csv", "sql", "gha", "googlebench", "benchstat"});
}

void declare(CommandLine& line, BenchOutput& output, std::string help,
             std::vector<std::string> forms) {
  line.add(target_field(std::move(help), std::move(forms), output.targets), "o");
  line.add(switch_field("json", "print one JSON object: -o json", output.json));
}

std::vector<BenchTarget> targets_of(const BenchOutput& output) {
  std::vector<BenchTarget> targets = output.targets;
  const auto is_printed = [](const BenchTarget& target) { return target.file.empty(); };
  const auto printed = std::ranges::find_if(targets, is_printed);
  if (output.json && (printed == targets.end() || printed->form != "json")) {
    targets.push_back({"json", ""});
  }
  if (targets.empty()) targets.push_back({"md", ""});
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::string& file = targets[i].file;
    for (size_t j = 0; j < i; ++j) {
      if (targets[j].file != file) continue;
      fail(ErrorKind::kUsage, "--output: ", targets[j].form, " and ", targets[i].form,
           file.empty() ? " are both for standard output: give one a file, as in -o json:FILE"
                        : str(" are both for ", quoted(file)));
    }
    if (file.empty()) continue;
    const size_t slash = file.rfind('/');
    const std::string directory = slash == file.npos ? "." : file.substr(0, slash + 1);
    if (!io::is_directory(directory) || io::is_directory(file)) {
      fail(ErrorKind::kCannotCreate, io::place_of(file), ": ",
           io::is_directory(file) ? "is a directory, expected a file"
                                  : "there is no such directory");
    }
  }
  return targets;
}

void print_targets(const std::vector<BenchTarget>& targets,
                   FunctionRef<std::string(const std::string& form)> text) {
  for (const BenchTarget& target : targets) {
    if (target.file.empty()) {
      write_stdout(text(target.form));
    } else {
      io::write_file_atomically(target.file, text(target.form));
    }
  }
}

std::string report_text(const io::Json& report, const std::string& form,
                        FunctionRef<std::string()> table) {
  if (form == "json") return report.dump(2) + "\n";
  if (form == "csv") return to_csv(report);
  if (form == "sql") return to_sql(report);
  if (form == "gha") return to_github_action(report);
  if (form == "googlebench") return to_google_benchmark(report);
  if (form == "benchstat") return to_benchstat(report);
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
