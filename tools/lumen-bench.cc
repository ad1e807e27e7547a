// Measure speed and memory.
#include "lib/runtime/bench_llm.h"
#include "lib/runtime/tool.h"

int main(int argc, char** argv) {
  using namespace lumen::runtime;
  return run_tool("lumen-bench", [&] {
    BenchOptions options;
    CommandLine line("lumen-bench", "Measure speed and memory.");
    declare(line, options);
    if (const auto exit_code = line.parse(argc, argv)) return *exit_code;
    return bench_llm(options);
  });
}
