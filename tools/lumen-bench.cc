// Measure speed and memory.
#include "lib/runtime/bench_llm.h"
#include "lib/runtime/bench_train.h"
#include "lib/runtime/tool.h"

int main(int argc, char** argv) {
  using namespace lumen::runtime;
  return run_tool("lumen-bench", [&] {
    BenchOptions llm;
    TrainBenchOptions train;
    CommandLine line("lumen-bench", "Measure speed and memory.");
    declare(line, llm);
    declare(line, train);
    if (const auto exit_code = line.parse(argc, argv)) return *exit_code;
    return line.verb() == "train" ? bench_train(train) : bench_llm(llm);
  });
}
