#include "lib/io/importance_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/byte_reader.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr int64_t kMostChunks = int64_t{1} << 31;

void add(const std::string& name, std::vector<float> values, ImportanceMatrix& matrix) {
  for (const float value : values) {
    if (value >= 0 && std::isfinite(value)) continue;
    fail(ErrorKind::kMalformed, "the values of ", quoted(name), " have ", value,
         ", expected finite numbers from 0");
  }
  if (!matrix.columns.emplace(name, std::move(values)).second) {
    fail(ErrorKind::kMalformed, quoted(name), " is there twice");
  }
}

// Copied, as data of a file with a small alignment may lie anywhere.
std::vector<float> floats_of(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.dtype != DType::kF32) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), " is no float32");
  }
  const Array array = file.array(tensor);
  std::vector<float> values(static_cast<size_t>(array.elements()));
  if (!values.empty()) std::memcpy(values.data(), array.data(), array.bytes());
  return values;
}

// Of a layer with several matrices (experts) there is one count for each.
void read_pair(const GgufFile& file, const GgufTensor& sums, ImportanceMatrix& matrix) {
  const std::string name = sums.name.substr(0, sums.name.size() - kSums.size());
  const GgufTensor* counts = file.find_tensor(name + std::string(kCounts));
  if (counts == nullptr) {
    fail(ErrorKind::kMalformed, quoted(sums.name), " has no ", quoted(name + std::string(kCounts)),
         " beside it");
  }
  std::vector<float> means = floats_of(file, sums);
  const std::vector<float> count = floats_of(file, *counts);
  if (count.empty() || means.size() % count.size() != 0) {
    fail(ErrorKind::kMalformed, quoted(sums.name), " has ", means.size(), " numbers, ",
         quoted(counts->name), " ", count.size());
  }
  const size_t columns = means.size() / count.size();
  for (size_t i = 0; i < means.size(); ++i) {
    if (count[i / columns] > 0) means[i] /= count[i / columns];
  }
  add(name, std::move(means), matrix);
}

void read_gguf_matrix(const GgufFile& file, ImportanceMatrix& matrix) {
  if (!is_importance_matrix(file)) {
    fail(ErrorKind::kUnsupported, "is no importance matrix: general.type is ",
         quoted(file.metadata.get_string("general.type", "")), ", expected 'imatrix'");
  }
  for (const GgufTensor& tensor : file.tensors) {
    if (tensor.name.ends_with(kSums)) read_pair(file, tensor, matrix);
  }
  matrix.chunks = file.metadata.get_int("imatrix.chunk_count", 0, kMostChunks, 0);
  const auto texts = file.metadata.find("imatrix.datasets");
  if (!texts) return;
  if (!texts->is_array()) {
    matrix.texts.emplace_back(texts->as_string());
    return;
  }
  for (size_t i = 0; i < texts->size(); ++i) matrix.texts.emplace_back(texts->string_at(i));
}

uint64_t read_count(ByteReader& reader, std::string_view what, int64_t lo, uint64_t hi) {
  const uint64_t at = reader.offset();
  const auto count = int64_t{reader.read<int32_t>()};
  if (count < lo || static_cast<uint64_t>(count) > hi) {
    fail(ErrorKind::kMalformed, "byte ", at, ": ", count, " ", what, ", expected ", lo, " to ", hi,
         ": no importance matrix as llama-imatrix writes it?");
  }
  return static_cast<uint64_t>(count);
}

void read_older(std::span<const std::byte> bytes, ImportanceMatrix& matrix) {
  constexpr uint64_t kEntryBytes = 13;  // a name of one byte
  ByteReader reader(bytes);
  const uint64_t entries = read_count(reader, "entries", 1, limits::kGgufTensors);
  reader.expect_items(entries, kEntryBytes, "entries");
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t name_bytes = read_count(reader, "bytes of a name", 1, limits::kTensorNameBytes);
    const std::string name(reader.text(name_bytes));
    const auto calls = reader.read<int32_t>();
    const uint64_t columns = read_count(reader, "columns", 1, std::numeric_limits<int32_t>::max());
    reader.expect_items(columns, sizeof(float), "columns");
    const auto values = reader.bytes(columns * sizeof(float));
    std::vector<float> means(columns);
    std::memcpy(means.data(), values.data(), values.size());
    for (float& mean : means) {
      if (calls > 0) mean /= static_cast<float>(calls);
    }
    add(name, std::move(means), matrix);
  }
  if (reader.remaining() == 0) return;
  matrix.chunks = static_cast<int64_t>(read_count(reader, "chunks", 0, kMostChunks));
  const uint64_t text = read_count(reader, "bytes of a file's name", 0, reader.remaining());
  if (text > 0) matrix.texts.emplace_back(reader.text(text));
  if (reader.remaining() > 0) {
    fail(ErrorKind::kMalformed, "byte ", reader.offset(), ": ", reader.remaining(),
         " bytes too many");
  }
}

void require_values(const ImportanceMatrix& matrix) {
  if (matrix.columns.empty()) fail(ErrorKind::kMalformed, "the importance matrix has no values");
}

}  // namespace

bool is_importance_matrix(const GgufFile& file) {
  const auto type = file.metadata.find("general.type");
  return type && type->is_string() && type->as_string() == "imatrix";
}

bool begins_importance_matrix(const std::string& path) {
  const auto buffer = map_file(path);
  ByteReader reader({buffer->data, buffer->bytes});
  if (reader.remaining() < 2 * sizeof(int32_t)) return false;
  const auto entries = reader.read<int32_t>(), name_bytes = reader.read<int32_t>();
  if (entries < 1 || static_cast<uint64_t>(entries) > limits::kGgufTensors) return false;
  if (name_bytes < 1 || static_cast<uint64_t>(name_bytes) > limits::kTensorNameBytes) return false;
  if (static_cast<uint64_t>(name_bytes) > reader.remaining()) return false;
  const std::string_view name = reader.text(static_cast<uint64_t>(name_bytes));
  return std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7F'; });
}

ImportanceMatrix importance_matrix_of(const GgufFile& file, const std::string& path) {
  ImportanceMatrix matrix;
  matrix.path = path;
  with_context(place_of(path), [&] {
    read_gguf_matrix(file, matrix);
    require_values(matrix);
  });
  return matrix;
}

ImportanceMatrix parse_older_importance_matrix(std::span<const std::byte> bytes,
                                               const std::string& path) {
  ImportanceMatrix matrix;
  matrix.path = path;
  with_context(place_of(path), [&] {
    read_older(bytes, matrix);
    require_values(matrix);
  });
  return matrix;
}

ImportanceMatrix read_importance_matrix(const std::string& path) {
  if (const auto gguf = read_if_gguf(path)) return importance_matrix_of(*gguf, path);
  const auto buffer = map_file(path);
  return parse_older_importance_matrix({buffer->data, buffer->bytes}, path);
}

}  // namespace lumen::io
