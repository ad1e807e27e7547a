// Numbers of a type known when the program runs, float32, float16 or bfloat16, one by one: for what
// lies outside the loops of kernels (float16-inl.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// The types of what a gradient is made of: dy has that of x or is float32.
struct GradientTypes {
  DType x, dy;
};

// Where number i of x lies.
inline const std::byte* number_address(DType dtype, const void* x, int64_t i) {
  return static_cast<const std::byte*>(x) + row_bytes(dtype, i);
}
inline std::byte* number_address(DType dtype, void* x, int64_t i) {
  return static_cast<std::byte*>(x) + row_bytes(dtype, i);
}

// Number i of x.
inline float number_at(DType dtype, const void* x, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(x)[i];
  uint16_t bits;
  std::memcpy(&bits, number_address(dtype, x, i), sizeof(bits));
  return dtype == DType::kF16 ? to_float(f16{bits}) : to_float(bf16{bits});
}

}  // namespace lumen::kernels
