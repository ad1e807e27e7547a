// DType: how numbers are stored. The only header of this room that kernels see.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "lib/base/check.h"

namespace lumen {

// IEEE binary16 and bfloat16 as bits; arithmetic is done in float.
struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

// Element types. Quantised types pack blocks of 32 or 256 consecutive elements of a row (the
// formats of ggml; see https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
// clang-format off
enum class DType : uint8_t {
  kF32, kF64, kF16, kBF16, kI8, kU8, kI32, kI64, kBool,
  kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1,
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K,
  kIQ4_NL, kIQ4_XS, kMXFP4,
};
// clang-format on

struct DTypeInfo {
  std::string_view name;         // as printed and as recipes spell it
  int block_elements;            // elements per block; 1 for plain types
  int block_bytes;               // bytes per block
  bool is_float;                 // f16, bf16, f32, f64
  std::string_view safetensors;  // name in safetensors files, "" if it has none
  int ggml_type;                 // number in GGUF files, −1 if it has none
};

// clang-format off
inline constexpr DTypeInfo kDTypes[] = {
    {"f32", 1, 4, true, "F32", 0},       {"f64", 1, 8, true, "F64", 28},
    {"f16", 1, 2, true, "F16", 1},       {"bf16", 1, 2, true, "BF16", 30},
    {"i8", 1, 1, false, "I8", 24},       {"u8", 1, 1, false, "U8", -1},
    {"i32", 1, 4, false, "I32", 26},     {"i64", 1, 8, false, "I64", 27},
    {"bool", 1, 1, false, "BOOL", -1},   {"q8_0", 32, 34, false, "", 8},
    {"q4_0", 32, 18, false, "", 2},      {"q4_1", 32, 20, false, "", 3},
    {"q5_0", 32, 22, false, "", 6},      {"q5_1", 32, 24, false, "", 7},
    {"q2_k", 256, 84, false, "", 10},    {"q3_k", 256, 110, false, "", 11},
    {"q4_k", 256, 144, false, "", 12},   {"q5_k", 256, 176, false, "", 13},
    {"q6_k", 256, 210, false, "", 14},   {"iq4_nl", 32, 18, false, "", 20},
    {"iq4_xs", 256, 136, false, "", 23}, {"mxfp4", 32, 17, false, "", 39},
};
// clang-format on
inline constexpr int kDTypeCount = static_cast<int>(std::size(kDTypes));

constexpr const DTypeInfo& info(DType dtype) {
  return kDTypes[static_cast<int>(dtype)];
}
constexpr std::string_view name(DType dtype) {
  return info(dtype).name;
}
// The type with this name; absent if there is none.
std::optional<DType> dtype_named(std::string_view name);
constexpr bool is_float(DType dtype) {
  return info(dtype).is_float;
}
constexpr bool is_quantized(DType dtype) {
  return info(dtype).block_elements > 1;
}

// Bytes of a row of `elements`, which must be a multiple of the block size.
constexpr int64_t row_bytes(DType dtype, int64_t elements) {
  return elements / info(dtype).block_elements * info(dtype).block_bytes;
}

// How the elements of a matrix [rows, cols] lie in memory.
enum class Layout : uint8_t {
  kRows,    // row after row, as files have them
  kPanels,  // sixteen rows interleaved: weights of products (lib/kernels/panels.h), in 2-D only
  kRowsAsPanels,  // rows that products multiply like the panels they will become: the same bits
  kShortPanels,   // panels of f16 or bf16 in twelve bits a number (lib/kernels/short_panels.h)
};

constexpr bool in_panels(Layout layout) {
  return layout == Layout::kPanels || layout == Layout::kShortPanels;
}

// Rows of a panel. The last one is filled up with zero rows.
inline constexpr int64_t kPanelRows = 16;

// Bytes of a short panel's numbers, behind the scales of its rows, and of its patches, one for 256
// numbers and an end.
constexpr int64_t short_panel_bytes(int64_t cols) {
  return 64 + kPanelRows * cols / 2 * 3;
}
constexpr int64_t short_panel_patch_bytes(int64_t cols) {
  return (8 * (cols / 16 + 1) + 63) / 64 * 64;
}

// Bytes of a matrix; a panel takes as many as its rows would, a short one fewer.
constexpr int64_t matrix_bytes(Layout layout, DType dtype, int64_t rows, int64_t cols) {
  if (!in_panels(layout)) return rows * row_bytes(dtype, cols);
  const int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  if (layout == Layout::kPanels) return panels * kPanelRows * row_bytes(dtype, cols);
  return panels * (short_panel_bytes(cols) + short_panel_patch_bytes(cols));
}

// The type that holds the values of two plain types (PyTorch's promotion table): bool < integers <
// floats, the wider of a kind. u8 with i8 gives i32 (PyTorch: its int16), f16 with bf16 f32.
constexpr DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a)) return a == DType::kF64 || b == DType::kF64 ? DType::kF64 : DType::kF32;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  return a == DType::kI64 || b == DType::kI64 ? DType::kI64 : DType::kI32;
}

// The DType of a C++ type.
// clang-format off
template <typename T>
struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::kF32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::kF64; };
template <> struct DTypeOf<f16> { static constexpr DType value = DType::kF16; };
template <> struct DTypeOf<bf16> { static constexpr DType value = DType::kBF16; };
template <> struct DTypeOf<int8_t> { static constexpr DType value = DType::kI8; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::kU8; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::kI32; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::kI64; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::kBool; };
// clang-format on

// Scalar conversions; round to nearest even, NaN stays NaN. Kernels have the vector versions.
inline float to_float(bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
float to_float(f16 x);
f16 to_f16(float x);
bf16 to_bf16(float x);

}  // namespace lumen
