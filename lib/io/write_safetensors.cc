#include "lib/io/write_safetensors.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/atomic_file.h"
#include "lib/io/json.h"

namespace lumen::io {
namespace {

static_assert(std::endian::native == std::endian::little, "data are written as they lie in memory");

std::string_view type_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF64:
      return "F64";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kBool:
      return "BOOL";
    default:
      fail(ErrorKind::kUnsupported, "safetensors has no type for ", name(dtype), " tensors");
  }
}

}  // namespace

void write_safetensors(const std::string& path, const std::map<std::string, Array>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  // Widest elements first, so that every tensor is aligned to its elements without gaps.
  std::vector<const std::pair<const std::string, Array>*> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return row_bytes(a->second.dtype(), 1) > row_bytes(b->second.dtype(), 1);
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto* entry : order) {
    const Array& array = entry->second;
    Json shape = Json::array();
    for (int64_t extent : array.shape()) shape.push_back(extent);
    header[entry->first] = {{"dtype", type_name(array.dtype())},
                            {"shape", shape},
                            {"data_offsets", {offset, offset + array.bytes()}}};
    offset += array.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(std::string_view(reinterpret_cast<const char*>(&length), sizeof length));
  file.write(text);
  for (const auto* entry : order) {
    file.write(std::span<const std::byte>(entry->second.data(), entry->second.bytes()));
  }
  file.commit();
}

}  // namespace lumen::io
