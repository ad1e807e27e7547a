// What every fuzz target of this room shares: which errors are fine, and reading every byte.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lib/base/error.h"
#include "lib/tensor/array.h"

namespace lumen::io {

// A stopped oracle: libFuzzer reports the abort with the input.
inline void require(bool condition) {
  if (!condition) std::abort();
}

// Runs `body`, which may refuse its input with an Error of the kinds for bad input.
template <typename Body>
void expect_refusal_or_success(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kMalformed || error.kind() == ErrorKind::kUnsupported ||
            error.kind() == ErrorKind::kMissing);
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

// Reads every byte, so that AddressSanitizer sees views that leave their buffer.
inline void touch(const Array& array) {
  uint8_t sum = 0;
  for (size_t i = 0; i < array.bytes(); ++i) sum ^= static_cast<uint8_t>(array.data()[i]);
  volatile uint8_t sink = sum;
  (void)sink;
}

}  // namespace lumen::io
