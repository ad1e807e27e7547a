// The rest of a file that was made in its full size and then not filled: an interrupted download.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::io {

// A tensor in a mapped file.
struct TensorBytes {
  std::string_view name;
  std::span<const std::byte> data;
};

// Whether the data of `tensors`, in the order that they have in the file, are zero from somewhere
// in one of them on to the end, or all of them are. Tensors that are zero from their very beginning
// (weights that start so) are no sign of it, nor is a last one that is a bias or the B of an
// adapter. Looks at places all over the last tensors, not at all of them.
bool ends_in_zeros(std::span<const TensorBytes> tensors);

// Whether all places looked at, the first and the last bytes among them, are zero.
bool is_mostly_zero(std::span<const std::byte> data);

}  // namespace lumen::io
