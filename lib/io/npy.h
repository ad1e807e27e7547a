// NumPy's .npy files, versions 1 to 3.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <span>
#include <string>

#include "lib/tensor/array.h"

namespace lumen::io {

// Writes `array` (float, integer or bool; not quantised, not bf16) as version 1.0, C order,
// atomically as AtomicFile does. Throws as AtomicFile; kUnsupported for other element types.
void write_npy(const std::string& path, const Array& array);

// Reads an array into memory, in C order and native byte order whatever the file has. Types that
// Lumen lacks become the next wider one: i2, u2 → i32; u4 → i64; u8 → i64 if every value fits.
//
// Throws Error: kMalformed for a bad header, a negative or overflowing shape, or a size that is not
// the file's; kUnsupported for object, structured, complex and string types (objects would be
// pickles, which Lumen never executes) and for .npz archives; kMissing and kIo as map_file.
Array read_npy(const std::string& path);

// The same for bytes in memory; `path` is for messages only.
Array parse_npy(std::span<const std::byte> bytes, const std::string& path);

}  // namespace lumen::io
