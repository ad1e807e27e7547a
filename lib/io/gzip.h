// Files compressed with gzip (RFC 1952), read through zlib.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lumen::io {

// Whether `bytes` begin as a gzip file does.
bool is_gzip(std::span<const std::byte> bytes);

// The content of a gzip file, all of its members one after the other. Throws Error(kMalformed) if
// it is truncated or corrupt, if other bytes follow, or if the content is longer than `max_bytes`.
std::string gunzip(std::span<const std::byte> bytes, uint64_t max_bytes);

}  // namespace lumen::io
