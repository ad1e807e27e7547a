// Chat with a language model, or let it answer or continue one text.
#include "lib/runtime/run.h"
#include "lib/runtime/tool.h"

int main(int argc, char** argv) {
  using namespace lumen::runtime;
  return run_tool("lumen-run", [&] {
    RunOptions options;
    CommandLine line("lumen-run",
                     "Chat with a language model, or let it answer or continue a text.");
    declare(line, options);
    if (const auto exit_code = line.parse(argc, argv)) return *exit_code;
    return run(options);
  });
}
