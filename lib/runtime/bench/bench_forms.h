// Reports of lumen-bench in the forms of other programs.
#pragma once

#include <string>

#include "lib/io/json.h"

namespace lumen::runtime {

// What of a report of find_bench_kind's verbs other programs read: of every row its name and its
// samples, in tokens/s (llm) or milliseconds. Throw Error as parse_bench_report.

// github-action-benchmark's JSON array (github.com/benchmark-action/github-action-benchmark, "Use
// with other benchmark tools"): {"name", "unit", "value", "range", "extra"}, medians. Of llm the
// bigger is the better (its tool customBiggerIsBetter), else the smaller.
std::string to_github_action(const io::Json& report);

// Google Benchmark's JSON, which its compare.py and others read: every sample as an iteration, then
// mean, median and standard deviation. Times are nanoseconds, of llm per token.
std::string to_google_benchmark(const io::Json& report);

// The text of Go's benchmarks, a line per sample, for benchstat.
std::string to_benchstat(const io::Json& report);

}  // namespace lumen::runtime
