// Measure speed and memory.
#include "lib/runtime/bench/bench_ab.h"
#include "lib/runtime/bench/bench_compare.h"
#include "lib/runtime/bench/bench_llm.h"
#include "lib/runtime/bench/bench_ops.h"
#include "lib/runtime/bench/bench_train.h"
#include "lib/runtime/tool.h"

int main(int argc, char** argv) {
  using namespace lumen::runtime;
  return run_tool("lumen-bench", [&] {
    BenchOptions llm;
    OpsBenchOptions ops;
    TrainBenchOptions train;
    CompareOptions compare;
    AbOptions ab;
    CommandLine line("lumen-bench", "Measure speed and memory.");
    declare(line, llm);
    declare(line, train);
    declare(line, ops);
    declare(line, compare);
    declare(line, ab);
    if (const auto exit_code = line.parse(argc, argv)) return *exit_code;
    if (line.verb() == "train") return bench_train(train);
    if (line.verb() == "compare") return bench_compare(compare);
    if (line.verb() == "ab") return bench_ab(ab);
    return line.verb() == "ops" ? bench_ops(ops) : bench_llm(llm);
  });
}
