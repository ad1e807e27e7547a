// Directories of small models, for the tests of this room.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "lib/base/testing.h"
#include "lib/io/test_files.h"

namespace lumen::io {

// A directory with config.json, a safetensors file with `tensors` (each [2] of U8), and `files`.
inline std::string make_directory(const std::string& config,
                                  const std::vector<std::string>& tensors,
                                  const std::map<std::string, std::string>& files = {}) {
  const std::string directory = testing::temporary_directory();
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(directory + "/" + name, std::ios::binary) << content;
  };
  std::string header = "{";
  for (size_t i = 0; i < tensors.size(); ++i) {
    header += str(i > 0 ? "," : "", "\"", tensors[i], "\":{\"dtype\":\"U8\",\"shape\":[2],",
                  "\"data_offsets\":[", 2 * i, ",", 2 * i + 2, "]}");
  }
  write("model.safetensors", safetensors_file(header + "}", 2 * tensors.size()));
  write("config.json", config);
  for (const auto& [name, content] : files) write(name, content);
  return directory;
}

// Keys of a small config.json.
inline const std::string kSizes =
    R"("hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1,
       "num_attention_heads": 4, "vocab_size": 10)";

}  // namespace lumen::io
