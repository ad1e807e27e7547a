// Importance matrices as llama-imatrix writes them: what the columns of a model's matrices were
// multiplied with on some text, in GGUF (general.type "imatrix", for the matrix NAME the tensors
// NAME.in_sum2, sums of squares, and NAME.counts, of how many), or in the older format (.dat):
//   int32 entries; for each: int32 bytes, name, int32 calls, int32 columns, float[columns] sums;
//   then, or nothing, int32 chunks, int32 bytes, the name of the text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/io/gguf.h"

namespace lumen::io {

struct ImportanceMatrix {
  std::string path;
  // By the name of a matrix in GGUF: per column the mean square, finite and not negative.
  std::map<std::string, std::vector<float>> columns;
  std::vector<std::string> texts;  // the names of what was read
  int64_t chunks = 0;              // in so many pieces; 0: not said
};

// Whether general.type says that a GGUF file is one.
bool is_importance_matrix(const GgufFile& file);

// Reads either format. Throws Error: kMissing and kIo as map_file, kMalformed for a file that is
// broken or no importance matrix, kUnsupported for another GGUF file.
ImportanceMatrix read_importance_matrix(const std::string& path);

}  // namespace lumen::io
