// What the names of testdata/goldens/ops.safetensors and layers.safetensors mean in Lumen; for
// golden_test.cc.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lib/ops/ops.h"

namespace lumen::ops {

using GoldenBuild = std::vector<Tensor> (*)(std::span<const Tensor> inputs);

// By the part of a case's name before the first dot.
const std::map<std::string, GoldenBuild>& golden_builders();

// Adds those of layers.safetensors.
void add_layer_builders(std::map<std::string, GoldenBuild>& builders);

}  // namespace lumen::ops
