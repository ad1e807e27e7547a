// Measuring operations: lumen-bench ops.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/graph/node.h"
#include "lib/runtime/bench/bench_output.h"
#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

struct OpsBenchOptions {
  std::optional<std::string> filter;  // part of "OPERATION CASE"; absent: all
  std::optional<int64_t> threads;
  std::optional<double> seconds;  // of each; absent: 0.05
  bool all = false;               // every case, not only the largest of each operation
  BenchOutput output;
};

// Adds the options of `lumen-bench ops` to `line`; they write to `options`.
void declare(CommandLine& line, OpsBenchOptions& options);

// The verb: walks the table of operations, runs the cases of those that have a kernel on larger
// shapes, and compares what they reach with what the machine does in a loop of multiply-adds and in
// reading memory, measured first. Returns the exit code; throws Error(kUsage) if nothing matches.
int bench_ops(const OpsBenchOptions& options);

// `test` with every extent but 1 multiplied by the largest power of two for which inputs and result
// have at most `bytes` and the work at most `flops` (graph::cost_of); with the leading extents
// alone if the operation does not allow the others to change, or as it is.
graph::OpCase enlarged(const graph::OpDef& op, const graph::OpCase& test, double bytes,
                       double flops);

}  // namespace lumen::runtime
