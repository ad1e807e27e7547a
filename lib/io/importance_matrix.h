// Importance matrices as llama-imatrix writes them: what the columns of a model's matrices were
// multiplied with on some text, in GGUF (general.type "imatrix", for the matrix NAME the tensors
// NAME.in_sum2, sums of squares, and NAME.counts, of how many), or in the older format (.dat):
//   int32 entries; for each: int32 bytes, name, int32 calls, int32 columns, float[columns] sums;
//   then, or nothing, int32 chunks, int32 bytes, the name of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
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

// Whether a file begins as one in the older format: with a number of entries and a name of
// printable characters. Throws as map_file.
bool begins_importance_matrix(const std::string& path);

// Reads either format. Throws Error: kMissing and kIo as map_file, kMalformed for a file that is
// broken or no importance matrix, kUnsupported for another GGUF file.
ImportanceMatrix read_importance_matrix(const std::string& path);

// The same of the bytes of a file in the older format; `path` is for messages.
ImportanceMatrix parse_older_importance_matrix(std::span<const std::byte> bytes,
                                               const std::string& path);

// The same of a GGUF file.
ImportanceMatrix importance_matrix_of(const GgufFile& file, const std::string& path);

}  // namespace lumen::io
