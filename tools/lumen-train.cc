// Train a network from a recipe.
#include "lib/runtime/tool.h"
#include "lib/runtime/train.h"

int main(int argc, char** argv) {
  using namespace lumen::runtime;
  return run_tool("lumen-train", [&] {
    TrainOptions options;
    CommandLine line("lumen-train", "Train a network from a recipe.");
    declare(line, options);
    if (const auto exit_code = line.parse(argc, argv)) return *exit_code;
    return train(options, make_task);
  });
}
