// Writing safetensors files.
#pragma once

#include <map>
#include <string>

#include "lib/tensor/array.h"

namespace lumen::io {

// Writes `tensors` as a safetensors file that appears whole under its name (AtomicFile), data
// aligned to 64 bytes, tensors in the order of their names, `metadata` as __metadata__. All types
// but the quantised ones. Throws Error as AtomicFile.
void write_safetensors(const std::string& path, const std::map<std::string, Array>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lumen::io
