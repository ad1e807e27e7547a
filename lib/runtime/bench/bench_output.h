// In what form the verbs of lumen-bench that measure print their reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/io/json.h"
#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

// "md", a table for people; "json", the report, which `compare` reads; "jsonl", of every row of its
// results one line, with what the report says of all; "csv", of every row what one would plot,
// or, of a report with profiles (bench_profile.h), of every operation.
struct BenchOutput {
  std::string form;   // "": md
  bool json = false;  // the same as form "json"
};

// Adds --output and --json to `line`; they write to `output`.
void declare(CommandLine& line, BenchOutput& output);
// The same with other forms, which `help` describes.
void declare(CommandLine& line, BenchOutput& output, std::string help,
             std::vector<std::string> forms);

// The form that is meant. Throws Error(kUsage) if --json and another one are.
std::string form_of(const BenchOutput& output);

// A report of find_bench_kind's verbs in a form; `table` makes that of md.
std::string report_text(const io::Json& report, const std::string& form,
                        FunctionRef<std::string()> table);

// `text`, which is printable, as a cell of a Markdown table.
std::string table_cell(std::string_view text);

}  // namespace lumen::runtime
