#include "lib/kernels/panels.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "lib/kernels/convert.h"
#include "lib/kernels/short_panels.h"
#include "lib/kernels/weights/code_panel.h"
#include "lib/kernels/weights/panel_dot.h"

namespace lumen::kernels {
namespace {

// Where a field of a format's block stands and goes: `words` pieces of `size` bytes per row, which
// become [words][step][16] of them, the first of each step.
struct Field {
  int from, to, size, words;
  int step = 1;         // only for words of four bytes, 4 · n of them
  bool turned = false;  // bit 4 i + j of the word, the only one, becomes bit 8 j + i
};

constexpr Field kQ8_0[] = {{0, 0, 2, 1}, {2, 32, 4, 8}};
constexpr Field kQ4_0[] = {{0, 0, 2, 1}, {2, 32, 4, 4}};
constexpr Field kQ4_1[] = {{0, 0, 2, 2}, {4, 64, 4, 4}};
constexpr Field kQ5_0[] = {{0, 0, 2, 1}, {2, 32, 4, 1, 1, true}, {6, 96, 4, 4}};
constexpr Field kQ5_1[] = {{0, 0, 2, 2}, {4, 64, 4, 1, 1, true}, {8, 128, 4, 4}};
constexpr Field kQ2_K[] = {{80, 0, 2, 2}, {0, 64, 4, 4}, {16, 320, 4, 16}};
constexpr Field kQ3_K[] = {{108, 0, 2, 1}, {96, 32, 4, 3}, {0, 224, 4, 8}, {32, 736, 4, 16}};
constexpr Field kQ4_K[] = {{0, 0, 2, 2}, {4, 64, 4, 3}, {16, 256, 4, 32}};
constexpr Field kQ5_K[] = {{0, 0, 2, 2}, {4, 64, 4, 3}, {16, 256, 4, 8}, {48, 768, 4, 32}};
constexpr Field kQ6_K[] = {{208, 0, 2, 1},      {192, 32, 1, 8},      {0, 160, 4, 8, 2},
                           {128, 224, 4, 8, 2}, {32, 1184, 4, 8},     {200, 1696, 1, 8},
                           {64, 1824, 4, 8, 2}, {160, 1888, 4, 8, 2}, {96, 2848, 4, 8}};
constexpr Field kMXFP4[] = {{0, 0, 1, 1}, {1, 16, 4, 4}};
constexpr Field kIQ4_XS[] = {{0, 0, 2, 2}, {4, 64, 4, 1}, {8, 128, 4, 32}};
// Plain types as blocks of one column; bf16 of two.
constexpr Field kF32[] = {{0, 0, 4, 1}};
constexpr Field kF16[] = {{0, 0, 2, 1}};
constexpr Field kBF16[] = {{0, 0, 4, 1}};

// The fields of a block; none if the type has no panels.
std::span<const Field> fields_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kF32;
    case DType::kF16:
      return kF16;
    case DType::kBF16:
      return kBF16;
    case DType::kQ8_0:
      return kQ8_0;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return kQ4_0;
    case DType::kQ4_1:
      return kQ4_1;
    case DType::kQ5_0:
      return kQ5_0;
    case DType::kQ5_1:
      return kQ5_1;
    case DType::kQ2_K:
      return kQ2_K;
    case DType::kQ3_K:
      return kQ3_K;
    case DType::kQ4_K:
      return kQ4_K;
    case DType::kQ5_K:
      return kQ5_K;
    case DType::kQ6_K:
      return kQ6_K;
    case DType::kIQ4_XS:
      return kIQ4_XS;
    case DType::kMXFP4:
      return kMXFP4;
    default:
      return {};
  }
}

// Blocks of a plain type, which are a single word, are packed so many at a time.
constexpr int64_t kPlainBlocks = 64;

// Bytes of a row that are packed at a time, at most.
constexpr int64_t kMostBytes = std::max<int64_t>(kPlainBlocks * 4, info(DType::kQ6_K).block_bytes);

int block_columns(DType dtype) {
  return dtype == DType::kBF16 ? 2 : info(dtype).block_elements;
}

// Four words of four rows `stride` bytes apart, transposed: those of column i go to the words of
// panel row i, one of every `step`.
void transpose_words(const std::byte* from, int64_t stride, int step, std::byte* to) {
  using Words = uint32_t __attribute__((vector_size(16)));
  Words row[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&row[i], from + i * stride, sizeof(Words));
  const Words a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Words b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Words c = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Words d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Words column[4] = {
      __builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
      __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) {
    std::memcpy(to + i * step * kPanelRows * sizeof(uint32_t), &column[i], sizeof(Words));
  }
}

// Interleaves one field of a block of sixteen rows `stride` bytes apart, from word `begin` of each
// on, two rows at a time: stores are what this loop has most of.
template <class Word, class Pair>
void interleave(const std::byte* from, int64_t stride, int begin, int end, std::byte* to) {
  static_assert(sizeof(Pair) == 2 * sizeof(Word));
  for (int64_t row = 0; row < kPanelRows; row += 2, from += 2 * stride) {
    for (int i = begin; i < end; ++i) {
      Word first, second;
      std::memcpy(&first, from + i * sizeof(Word), sizeof(Word));
      std::memcpy(&second, from + stride + i * sizeof(Word), sizeof(Word));
      const Pair pair = static_cast<Pair>(first | static_cast<Pair>(second) << (8 * sizeof(Word)));
      std::memcpy(to + (i * kPanelRows + row) * sizeof(Word), &pair, sizeof(Pair));
    }
  }
}

void interleave_words(const std::byte* from, int64_t stride, int words, int step, std::byte* to) {
  constexpr int64_t kWord = sizeof(uint32_t);
  const int whole = words / 4 * 4;
  for (int64_t row = 0; row < kPanelRows; row += 4) {
    for (int i = 0; i < whole; i += 4) {
      transpose_words(from + row * stride + i * kWord, stride, step,
                      to + (i * step * kPanelRows + row) * kWord);
    }
  }
  interleave<uint32_t, uint64_t>(from, stride, whole, words, to);
}

// Every fourth bit of a word from bit j on becomes byte j.
uint32_t turn_bits(uint32_t word) {
  uint32_t turned = 0;
  for (int j = 0; j < 4; ++j) {
    uint32_t bits = word >> j & 0x11111111;
    bits = (bits | bits >> 3) & 0x03030303;
    bits = (bits | bits >> 6) & 0x000F000F;
    bits = (bits | bits >> 12) & 0xFF;
    turned |= bits << (8 * j);
  }
  return turned;
}

void turn_words(std::byte* words) {
  for (int64_t row = 0; row < kPanelRows; ++row) {
    uint32_t word;
    std::memcpy(&word, words + 4 * row, sizeof word);
    word = turn_bits(word);
    std::memcpy(words + 4 * row, &word, sizeof word);
  }
}

// The same of a field as it is described; several blocks only if it is the only one.
void interleave(const Field& field, int blocks, const std::byte* from, int64_t stride,
                std::byte* to) {
  const int words = blocks * field.words;
  from += field.from;
  to += field.to;
  switch (field.size) {
    case 1:
      return interleave<uint8_t, uint16_t>(from, stride, 0, words, to);
    case 2:
      return interleave<uint16_t, uint32_t>(from, stride, 0, words, to);
    default:
      interleave_words(from, stride, words, field.step, to);
  }
  if (field.turned) turn_words(to);
}

}  // namespace

bool has_panels(DType dtype, int64_t cols) {
  return !fields_of(dtype).empty() && cols > 0 && cols % block_columns(dtype) == 0;
}

void pack_panel(const Weight& w, int64_t index, std::byte* panel) {
  pack_panel(w, index, 0, w.cols, panel);
}

void pack_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, std::byte* panel) {
  if (w.layout == Layout::kShortPanels) return unpack_short_panel(w, index, k, cols, panel);
  if (w.layout == Layout::kPanels) {
    const auto from = stored_columns(w, index, k, cols).bytes;
    std::memcpy(panel, from.data(), from.size());
    return;
  }
  const std::span<const Field> fields = fields_of(w.dtype);
  const int64_t stride = row_bytes(w.dtype, w.cols);
  const int64_t block = row_bytes(w.dtype, block_columns(w.dtype));
  const int64_t together = fields.size() == 1 ? kPlainBlocks : 1;
  const int64_t rows = std::min(kPanelRows, w.rows - index * kPanelRows);
  const std::byte* from = static_cast<const std::byte*>(w.data) + index * kPanelRows * stride;
  const int64_t end = row_bytes(w.dtype, k + cols);
  for (int64_t at = row_bytes(w.dtype, k), bytes; at < end; at += bytes) {
    bytes = std::min(together * block, end - at);
    const int blocks = static_cast<int>(bytes / block);
    if (rows == kPanelRows) {
      for (const Field& field : fields) interleave(field, blocks, from + at, stride, panel);
    } else {
      std::byte filled[kPanelRows * kMostBytes] = {};
      for (int64_t row = 0; row < rows; ++row) {
        std::memcpy(filled + row * bytes, from + row * stride + at, bytes);
      }
      for (const Field& field : fields) interleave(field, blocks, filled, bytes, panel);
    }
    panel += kPanelRows * bytes;
  }
}

StoredColumns stored_columns(const Weight& w, int64_t index, int64_t k, int64_t cols) {
  if (!in_panels(w.layout)) return {};
  const bool shorter = w.layout == Layout::kShortPanels;
  // Of so many columns of sixteen rows; short panels begin with what is there once.
  const auto columns = [&](int64_t count) {
    return shorter ? short_panel_bytes(count) - short_panel_bytes(0)
                   : kPanelRows * row_bytes(w.dtype, count);
  };
  const int64_t header = shorter ? short_panel_bytes(0) : 0, panel = header + columns(w.cols);
  const auto* from = static_cast<const std::byte*>(w.data) + index * panel + header + columns(k);
  return {{from, static_cast<size_t>(columns(cols))}, panel};
}

namespace {

// A piece of a panel as floats, [column][row] but for bf16, whose columns stand in pairs.
constexpr int64_t kPieceColumns = 256;
using PanelPiece = float[kPieceColumns * kPanelRows];

void quantized_piece(const Weight& w, int64_t index, int64_t k, int64_t columns,
                     PanelPiece& values) {
  alignas(64) uint8_t codes[kPieceColumns * kPanelRows];
  alignas(64) float scales[kPieceColumns], mins[kPieceColumns] = {};
  const CodeForm form = code_form(w.dtype);
  const int added = form.has_min ? 0 : 128;  // so that no code is negative
  expand_panel(w, index, k, columns, added, {codes, scales, mins});
  for (int64_t i = 0; i < columns; ++i) {
    const uint8_t* from = codes + i / 4 * 4 * kPanelRows + i % 4;
    const float* scale = scales + i / form.sub * kPanelRows;
    const float* min = mins + i / form.sub * kPanelRows;
    float* to = values + i * kPanelRows;
    for (int64_t j = 0; j < kPanelRows; ++j) {
      to[j] = scale[j] * static_cast<float>(from[4 * j] - added);
      if (form.has_min) to[j] += min[j];
    }
  }
}

}  // namespace

void pack_panel_strip(const Weight& w, const StripRequest& want) {
  const int64_t pair = w.dtype == DType::kBF16 ? 2 : 1;
  PanelPiece values;
  for (int64_t done = 0; done < want.rows;) {
    const int64_t index = (want.row + done) / kPanelRows, lane = (want.row + done) % kPanelRows;
    const int64_t rows = std::min(kPanelRows - lane, want.rows - done);
    for (int64_t k = 0; k < want.depth; k += kPieceColumns) {
      const int64_t columns = std::min(kPieceColumns, want.depth - k);
      if (is_quantized(w.dtype)) {
        quantized_piece(w, index, want.k + k, columns, values);
      } else if (w.layout == Layout::kShortPanels) {
        alignas(64) std::byte piece[kPieceColumns * kPanelRows * sizeof(uint16_t)];
        pack_panel(w, index, want.k + k, columns, piece);
        to_float(w.dtype, piece, values, columns * kPanelRows);
      } else {
        const int64_t first = (want.k + k) / pair * pair;
        const std::byte* stored = stored_columns(w, index, first, columns).bytes.data();
        to_float(w.dtype, stored, values, columns * kPanelRows);
      }
      for (int64_t i = 0; i < columns; ++i) {
        float* to = want.panel + (k + i) * want.padded_rows + done;
        const float* column = values + i / pair * pair * kPanelRows + i % pair;
        for (int64_t j = 0; j < rows; ++j) to[j] = column[(lane + j) * pair];
      }
    }
    done += rows;
  }
}

}  // namespace lumen::kernels
