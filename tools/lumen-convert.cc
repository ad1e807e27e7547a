// Convert model files and look into them.
#include "lib/runtime/convert.h"
#include "lib/runtime/tool.h"

int main(int argc, char** argv) {
  using namespace lumen::runtime;
  return run_tool("lumen-convert", [&] {
    ConvertOptions options;
    CommandLine line("lumen-convert", "Convert model files and look into them.");
    declare(line, options);
    if (const auto exit_code = line.parse(argc, argv)) return *exit_code;
    return convert(options);
  });
}
