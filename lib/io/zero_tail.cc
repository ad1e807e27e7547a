#include "lib/io/zero_tail.h"

#include <algorithm>

namespace lumen::io {
namespace {

using Data = std::span<const std::byte>;

constexpr size_t kTailBytes = 64;  // looked at in one place

bool is_zero(Data bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

bool ends_zero(Data data) {
  return is_zero(data.last(std::min(data.size(), kTailBytes)));
}

}  // namespace

bool is_mostly_zero(Data data) {
  constexpr size_t kPlaces = 256;
  const size_t length = std::min(data.size(), kTailBytes), rest = data.size() - length;
  for (size_t i = 0; i < kPlaces; ++i) {
    if (!is_zero(data.subspan(rest / kPlaces * i, length))) return false;
  }
  return ends_zero(data);
}

bool ends_in_zeros(std::span<const TensorBytes> tensors) {
  if (tensors.empty()) return false;
  const TensorBytes& last = tensors.back();
  for (const std::string_view end : {"bias", ".lora_b", ".lora_B.weight"}) {
    if (last.name.ends_with(end)) return false;
  }
  if (!is_mostly_zero(last.data)) return false;
  for (size_t i = tensors.size() - 1; i-- > 0;) {
    if (!ends_zero(tensors[i].data)) return false;
    if (!is_mostly_zero(tensors[i].data)) break;
  }
  return true;
}

}  // namespace lumen::io
