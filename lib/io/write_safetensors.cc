#include "lib/io/write_safetensors.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/io/atomic_file.h"
#include "lib/io/json.h"
#include "lib/io/shard_index.h"

namespace lumen::io {
namespace {

static_assert(std::endian::native == std::endian::little, "data are written as they lie in memory");

// "model-00002-of-00010.safetensors"
std::string shard_name(size_t number, size_t count) {
  return str("model", shard_suffix(number + 1, count), ".safetensors");
}

}  // namespace

void SafetensorsWriter::add(std::string name, DType dtype, const Shape& shape,
                            std::function<Array()> make) {
  if (info(dtype).safetensors.empty()) {
    fail(ErrorKind::kUnsupported, "safetensors has no type for ", lumen::name(dtype), " tensors");
  }
  tensors_.push_back({std::move(name), dtype, shape, std::move(make)});
}

uint64_t SafetensorsWriter::bytes() const {
  uint64_t total = 0;
  for (const PendingTensor& tensor : tensors_) total += tensor.bytes();
  return total;
}

size_t SafetensorsWriter::shards(uint64_t shard_bytes) const {
  return divide(tensors_, shard_bytes).size();
}

void SafetensorsWriter::write_tensors(const std::string& path, PendingTensors tensors,
                                      uint64_t room) const {
  // Widest elements first, so that every tensor is aligned to its elements without gaps.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const PendingTensor* a, const PendingTensor* b) {
                     return row_bytes(a->dtype, 1) > row_bytes(b->dtype, 1);
                   });
  Json header = Json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  uint64_t offset = 0;
  for (const PendingTensor* tensor : tensors) {
    Json shape = Json::array();
    for (int64_t extent : tensor->shape) shape.push_back(extent);
    header[tensor->name] = {{"dtype", info(tensor->dtype).safetensors},
                            {"shape", shape},
                            {"data_offsets", {offset, offset + tensor->bytes()}}};
    offset += tensor->bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.require_room(length + room);
  file.write(std::string_view(reinterpret_cast<const char*>(&length), sizeof length));
  file.write(text);
  for (const PendingTensor* tensor : tensors) {
    const Array array = tensor->make();
    LUMEN_CHECK(array.dtype() == tensor->dtype && array.shape() == tensor->shape);
    file.write(std::span<const std::byte>(array.data(), array.bytes()));
  }
  file.commit();
}

void SafetensorsWriter::write(const std::string& path) const {
  write_tensors(path, divide(tensors_, ~uint64_t{0}).front(), bytes());
}

void SafetensorsWriter::write_model(const std::string& directory, uint64_t shard_bytes) const {
  const std::vector<PendingTensors> shards = divide(tensors_, shard_bytes);
  if (shards.size() == 1) return write(directory + "/model.safetensors");
  Json map = Json::object();
  uint64_t room = bytes();
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_tensors(str(directory, "/", name), shards[i], room);
    for (const PendingTensor* tensor : shards[i]) {
      map[tensor->name] = name;
      room -= tensor->bytes();
    }
  }
  const Json index = {{"metadata", {{"total_size", bytes()}}}, {"weight_map", std::move(map)}};
  write_file_atomically(directory + "/model.safetensors.index.json", index.dump(2) + "\n");
}

void write_safetensors(const std::string& path, const std::map<std::string, Array>& tensors,
                       const SafetensorsWriter::Metadata& metadata) {
  SafetensorsWriter writer(metadata);
  for (const auto& [name, array] : tensors) {
    writer.add(name, array.dtype(), array.shape(), [&array = array] { return array; });
  }
  writer.write(path);
}

}  // namespace lumen::io
