// In what form the verbs of lumen-bench that measure print their reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/io/json.h"
#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

// One thing to print. "md": a table for people; "json": the report, which `compare` reads; "jsonl":
// of every row of its results one line, with what the report says of all; "csv": of every row what
// one would plot, or, of a report with profiles (bench_profile.h), of every operation; "sql": the
// same as a table; and those of bench_forms.h.
struct BenchTarget {
  std::string form;
  std::string file;  // "": standard output
};

struct BenchOutput {
  std::vector<BenchTarget> targets = {};  // none: md
  bool json = false;                      // one more, json
};

// Adds --output and --json to `line`; they write to `output`.
void declare(CommandLine& line, BenchOutput& output);
// The same with other forms, which `help` describes.
void declare(CommandLine& line, BenchOutput& output, std::string help,
             std::vector<std::string> forms);

// What is to be printed. Throws Error: kUsage if two are for standard output or for one file,
// kCannotCreate for a file in a directory that is not there.
std::vector<BenchTarget> targets_of(const BenchOutput& output);

// Prints what `text` gives for the form of each. Throws Error(kIo, kCannotCreate).
void print_targets(const std::vector<BenchTarget>& targets,
                   FunctionRef<std::string(const std::string& form)> text);

// A report of find_bench_kind's verbs in a form; `table` makes that of md.
std::string report_text(const io::Json& report, const std::string& form,
                        FunctionRef<std::string()> table);

// `text`, which is printable, as a cell of a Markdown table.
std::string table_cell(std::string_view text);

}  // namespace lumen::runtime
