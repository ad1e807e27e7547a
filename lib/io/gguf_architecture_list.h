// Which GGUF files are read, for those who ask.
#pragma once

#include <string_view>
#include <vector>

namespace lumen::io {

// The values of general.architecture that are known.
std::vector<std::string_view> gguf_architectures();

}  // namespace lumen::io
