// Base64 (RFC 4648).
#pragma once

#include <string>
#include <string_view>

namespace lumen::text {

// The bytes that `text` encodes, with or without padding. Throws Error(kMalformed) for any other
// character or an impossible length.
std::string decode_base64(std::string_view text);

// With padding.
std::string encode_base64(std::string_view bytes);

}  // namespace lumen::text
